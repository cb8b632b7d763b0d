package staging

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// TestDecide: each phase, what is seen, and the step that follows.
func TestDecide(t *testing.T) {
	running, over, broken := helper.Seen{Pod: podIn("Running")}, helper.Seen{Pod: podIn("Succeeded")}, helper.Seen{Pod: podIn("Failed")}
	directory := &moorv1alpha1.StagingReport{PodReport: moorv1alpha1.PodReport{PodUID: "u"}, VolumeMode: corev1.PersistentVolumeFilesystem}
	ready := directory.DeepCopy()
	ready.Ready = true
	cleared := &moorv1alpha1.StagingReport{Cleared: true}
	for name, tt := range map[string]struct {
		phase   moorv1alpha1.PodStagingPhase
		pod     pods.Phase // of the pod that is recorded
		deleted bool
		seen    seen
		report  *moorv1alpha1.StagingReport
		retry   string
		want    action
		to      moorv1alpha1.PodStagingPhase
	}{
		"new":                                      {"", "", false, seen{}, nil, "", begin, ""},
		"new, its node is gone":                    {"", "", false, seen{nodeGone: true}, nil, "", retire, ""},
		"being staged":                             {isStaging, pods.Staging, false, seen{pod: running}, nil, "", write, isStaging},
		"staged by a pod that has ended":           {isStaging, pods.Staging, false, seen{pod: over}, directory, "", write, isStaged},
		"staged by a pod that runs on":             {isStaging, pods.Staging, false, seen{pod: running}, ready, "", write, isStaged},
		"not staged":                               {isStaging, pods.Staging, false, seen{pod: broken}, directory, "", write, isReverting},
		"staged as nothing":                        {isStaging, pods.Staging, false, seen{pod: over}, &moorv1alpha1.StagingReport{PodReport: directory.PodReport}, "", write, isReverting},
		"being staged, its pod was deleted":        {isStaging, pods.Staging, false, seen{}, nil, "", write, isReverting},
		"being staged, deleted":                    {isStaging, pods.Staging, true, seen{pod: running}, nil, "", write, isUnstaging},
		"being staged, its node is gone":           {isStaging, pods.Staging, false, seen{pod: running, nodeGone: true}, nil, "", retire, ""},
		"staged":                                   {isStaged, "", false, seen{}, directory, "", wait, ""},
		"staged, with a pod":                       {isStaged, pods.Staging, false, seen{pod: running}, ready, "", wait, ""},
		"staged, its pod ends well":                {isStaged, pods.Staging, false, seen{pod: over}, ready, "", write, isStaged},
		"staged, its pod dies":                     {isStaged, pods.Staging, false, seen{pod: broken}, ready, "", write, isBroken},
		"staged, its pod was deleted":              {isStaged, pods.Staging, false, seen{}, ready, "", write, isBroken},
		"staged, deleted, with a pod":              {isStaged, pods.Staging, true, seen{}, ready, "", write, isUnstaging},
		"staged, deleted":                          {isStaged, "", true, seen{}, directory, "", begin, ""},
		"staged, deleted, the old pod is there":    {isStaged, "", true, seen{strays: 1}, directory, "", sweep, ""},
		"staged, its node is gone":                 {isStaged, "", true, seen{nodeGone: true}, directory, "", write, isUnstaged},
		"broken, with its pod":                     {isBroken, pods.Staging, false, seen{pod: broken}, ready, "", removePod, ""},
		"broken, its pod is gone":                  {isBroken, pods.Staging, false, seen{}, ready, "", write, isBroken},
		"broken, not cleared":                      {isBroken, "", false, seen{}, nil, "", wait, ""},
		"broken, cleared":                          {isBroken, "", false, seen{}, cleared, "", begin, ""},
		"broken, cleared, a pod is there":          {isBroken, "", false, seen{strays: 1}, cleared, "", sweep, ""},
		"broken, deleted":                          {isBroken, "", true, seen{}, cleared, "", begin, ""},
		"to be reverted, the staging pod is there": {isReverting, pods.Staging, false, seen{pod: broken}, nil, "", removePod, ""},
		"to be reverted":                           {isReverting, pods.Staging, false, seen{}, nil, "", begin, ""},
		"reverted":                                 {isReverting, pods.Unstaging, false, seen{pod: over}, directory, "", write, isFailed},
		"not reverted":                             {isReverting, pods.Unstaging, false, seen{pod: broken}, directory, "", write, isStuck},
		"failed":                                   {isFailed, "", false, seen{}, nil, "", wait, ""},
		"failed, deleted, not cleared":             {isFailed, "", true, seen{}, nil, "", wait, ""},
		"failed, deleted, cleared":                 {isFailed, "", true, seen{}, cleared, "", write, isUnstaged},
		"to be unstaged, the staging pod is there": {isUnstaging, pods.Staging, true, seen{pod: running}, ready, "", removePod, ""},
		"to be unstaged":                           {isUnstaging, pods.Staging, true, seen{}, ready, "", begin, ""},
		"unstaged":                                 {isUnstaging, pods.Unstaging, true, seen{pod: over}, directory, "", write, isUnstaging},
		"not unstaged":                             {isUnstaging, pods.Unstaging, true, seen{pod: broken}, directory, "", write, isStuck},
		"unstaged, the unstaging pod is there":     {isUnstaging, "", true, seen{strays: 1}, cleared, "", sweep, ""},
		"unstaged, not cleared":                    {isUnstaging, "", true, seen{}, nil, "", write, isUnstaging},
		"unstaged, cleared":                        {isUnstaging, "", true, seen{}, cleared, "", write, isUnstaged},
		"unstaged, not cleared, its node is gone":  {isUnstaging, "", true, seen{nodeGone: true}, nil, "", write, isUnstaged},
		"stuck":                    {isStuck, "", true, seen{}, nil, "", wait, ""},
		"stuck, retried before":    {isStuck, "", true, seen{}, nil, "old", wait, ""},
		"stuck, retry":             {isStuck, "", true, seen{}, nil, "new", begin, ""},
		"stuck, not due yet":       {isStuck, "", true, seen{now: kubetest.Begin.Add(4999 * time.Millisecond)}, nil, "", wait, ""},
		"stuck, due":               {isStuck, "", true, seen{now: kubetest.Begin.Add(5 * time.Second)}, nil, "", begin, ""},
		"stuck, due, with its pod": {isStuck, pods.Unstaging, true, seen{pod: broken, now: kubetest.Begin.Add(5 * time.Second)}, nil, "", removePod, ""},
		"stuck, its node is gone":  {isStuck, "", true, seen{nodeGone: true}, nil, "", write, isUnstaged},
		"at its end, with a stray": {isUnstaged, "", true, seen{strays: 1}, nil, "", sweep, ""},
		"at its end":               {isUnstaged, "", true, seen{nodeGone: true}, nil, "", release, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := stagingOf("s", "n", "user")
			p.Status = moorv1alpha1.PodStagingStatus{Phase: tt.phase, HelperTries: moorv1alpha1.HelperTries{Retried: "old", Failures: 1, LastFailure: &metav1.Time{Time: kubetest.Begin}}, Report: tt.report, Directory: "d"}
			p.Annotations = map[string]string{moorv1alpha1.AnnotationRetry: tt.retry}
			if tt.pod != "" {
				p.Status.Pod = &moorv1alpha1.HelperPod{Namespace: "ns", Name: podName(p, tt.pod), UID: "u", NodeName: "n", Since: metav1.NewTime(kubetest.Begin)}
			}
			if tt.deleted {
				p.DeletionTimestamp = &metav1.Time{Time: kubetest.Begin}
			}
			if tt.seen.now.IsZero() {
				tt.seen.now = kubetest.Begin.Add(time.Second)
			}
			tt.seen.provisioner, tt.seen.expected.mode = compiled.Found{Provisioner: &pods.Provisioner{}}, corev1.PersistentVolumeFilesystem
			before := p.DeepCopy()
			got := decide(p, tt.seen)
			if got.do != tt.want || got.next.Phase != tt.to {
				t.Errorf("got %+v, want %d, %q", got, tt.want, tt.to)
			}
			if due := kubetest.Begin.Add(5 * time.Second).Sub(tt.seen.now); tt.phase == isStuck && got.do == wait && got.after != due {
				t.Errorf("it looks again after %s, and is tried again after %s", got.after, due)
			}
			if p.Status.Phase != before.Status.Phase || (p.Status.Pod == nil) != (before.Status.Pod == nil) || p.Status.Pod != nil && *p.Status.Pod != *before.Status.Pod {
				t.Error("it changes the object")
			}
		})
	}
}

func podIn(phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: phase}}
}
