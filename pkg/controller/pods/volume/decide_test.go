package volume

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
	const (
		validating, creating, created, reverting = moorv1alpha1.PodVolumeValidating, moorv1alpha1.PodVolumeCreating, moorv1alpha1.PodVolumeCreated, moorv1alpha1.PodVolumeReverting
		failed, deleting, stuck, gone            = moorv1alpha1.PodVolumeFailed, moorv1alpha1.PodVolumeDeleting, moorv1alpha1.PodVolumeDeletionFailed, moorv1alpha1.PodVolumeDeleted
	)
	running, over, broken := helper.Seen{Pod: podIn("Running")}, helper.Seen{Pod: podIn("Succeeded")}, helper.Seen{Pod: podIn("Failed")}
	usable := compiled.Found{Provisioner: &pods.Provisioner{}}
	for name, tt := range map[string]struct {
		phase   moorv1alpha1.PodVolumePhase
		pod     pods.Phase // of the pod that is recorded
		deleted bool
		seen    seen
		retry   string
		want    action
		to      moorv1alpha1.PodVolumePhase
	}{
		"new":                      {"", "", false, seen{}, "", begin, ""},
		"new, deleted":             {"", "", true, seen{}, "", write, gone},
		"new, abandoned":           {"", "", false, seen{abandoned: true}, "", retire, ""},
		"validated":                {validating, pods.Validation, false, seen{pod: over}, "", write, creating},
		"not validated":            {validating, pods.Validation, false, seen{pod: broken}, "", write, failed},
		"being validated, deleted": {validating, pods.Validation, true, seen{pod: running}, "", write, gone},
		"to be made, the validation pod is there":   {creating, pods.Validation, false, seen{pod: over}, "", removePod, ""},
		"to be made, the validation pod is gone":    {creating, pods.Validation, false, seen{}, "", begin, ""},
		"to be made, a stray is there":              {creating, pods.Validation, false, seen{strays: 1}, "", sweep, ""},
		"to be made, deleted":                       {creating, pods.Validation, true, seen{}, "", write, gone},
		"being made, deleted":                       {creating, pods.Creation, true, seen{pod: running}, "", write, deleting},
		"made":                                      {creating, pods.Creation, false, seen{pod: over}, "", resolve, ""},
		"not made":                                  {creating, pods.Creation, false, seen{pod: broken}, "", write, reverting},
		"being made, its pod was deleted":           {creating, pods.Creation, false, seen{}, "", write, reverting},
		"being made, abandoned":                     {creating, pods.Creation, false, seen{pod: running, abandoned: true}, "", retire, ""},
		"being made, its provisioner goes":          {creating, pods.Creation, false, seen{pod: running, provisioner: compiled.Found{Provisioner: &pods.Provisioner{}, Deleting: true}}, "", retire, ""},
		"to be reverted, the creation pod is there": {reverting, pods.Creation, false, seen{pod: broken}, "", removePod, ""},
		"to be reverted":                            {reverting, pods.Creation, false, seen{}, "", begin, ""},
		"to be reverted, deleted":                   {reverting, pods.Creation, true, seen{}, "", begin, ""},
		"reverted":                                  {reverting, pods.Deletion, false, seen{pod: over}, "", write, failed},
		"not reverted":                              {reverting, pods.Deletion, false, seen{pod: broken}, "", write, stuck},
		"being reverted, abandoned":                 {reverting, pods.Deletion, false, seen{pod: running, abandoned: true}, "", wait, ""},
		"there, with the creation pod":              {created, pods.Creation, false, seen{pod: over}, "", removePod, ""},
		"there, and the creation pod is gone":       {created, pods.Creation, false, seen{}, "", write, created},
		"there":                                     {created, "", false, seen{}, "", wait, ""},
		"there, retained without its volume":        {created, "", false, seen{kept: true}, "", write, created},
		"there, its provisioner goes":               {created, "", false, seen{provisioner: compiled.Found{Provisioner: &pods.Provisioner{}, Deleting: true}}, "", wait, ""},
		"there, deleted, and staged":                {created, "", true, seen{staged: []string{"x"}}, "", write, created},
		"there, deleted":                            {created, "", true, seen{}, "", begin, ""},
		"removed":                                   {deleting, pods.Deletion, true, seen{pod: over}, "", write, gone},
		"not removed":                               {deleting, pods.Deletion, true, seen{pod: broken}, "", write, stuck},
		"not removed, with its pod":                 {stuck, pods.Deletion, true, seen{pod: broken}, "1", removePod, ""},
		"not removed, no retry":                     {stuck, "", true, seen{}, "", wait, ""},
		"not removed, retried before":               {stuck, "", true, seen{}, "old", wait, ""},
		"not removed, retry":                        {stuck, "", true, seen{}, "new", begin, ""},
		"not removed, not due yet":                  {stuck, "", true, seen{now: kubetest.Begin.Add(4999 * time.Millisecond)}, "", wait, ""},
		"not removed, due":                          {stuck, "", true, seen{now: kubetest.Begin.Add(5 * time.Second)}, "", begin, ""},
		"not removed, due, with its pod":            {stuck, pods.Deletion, true, seen{pod: broken, now: kubetest.Begin.Add(5 * time.Second)}, "", removePod, ""},
		"not reverted, due":                         {stuck, "", false, seen{now: kubetest.Begin.Add(5 * time.Second)}, "", begin, ""},
		"not reverted, abandoned":                   {stuck, "", false, seen{abandoned: true}, "", wait, ""},
		"failed":                                    {failed, "", false, seen{}, "", wait, ""},
		"failed, abandoned":                         {failed, "", false, seen{abandoned: true}, "", retire, ""},
		"failed, deleted":                           {failed, "", true, seen{}, "", write, gone},
		"at its end, with a pod":                    {gone, pods.Deletion, true, seen{pod: over}, "", removePod, ""},
		"at its end, with a stray":                  {gone, pods.Deletion, true, seen{strays: 1}, "", sweep, ""},
		"at its end":                                {gone, pods.Deletion, true, seen{}, "", release, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := podVolume()
			v.Status = moorv1alpha1.PodVolumeStatus{Phase: tt.phase, HelperTries: moorv1alpha1.HelperTries{Retried: "old", Failures: 1, LastFailure: &metav1.Time{Time: kubetest.Begin}}, Report: &moorv1alpha1.PodReport{PodUID: "u"}}
			v.Annotations = map[string]string{moorv1alpha1.AnnotationRetry: tt.retry}
			if tt.pod != "" {
				v.Status.Pod = &moorv1alpha1.HelperPod{Namespace: "ns", Name: podName(v, tt.pod), UID: "u", NodeName: "n", Since: metav1.NewTime(kubetest.Begin)}
			}
			if tt.deleted {
				v.DeletionTimestamp = &metav1.Time{Time: kubetest.Begin}
			}
			if tt.seen.now.IsZero() {
				tt.seen.now = kubetest.Begin.Add(time.Second)
			}
			if tt.seen.provisioner.Provisioner == nil {
				tt.seen.provisioner = usable
			}
			before := v.DeepCopy()
			got := decide(v, tt.seen)
			if got.do != tt.want || got.next.Phase != tt.to {
				t.Errorf("got %+v, want %d, %q", got, tt.want, tt.to)
			}
			if due := kubetest.Begin.Add(5 * time.Second).Sub(tt.seen.now); tt.phase == stuck && got.do == wait && got.after != due {
				t.Errorf("it looks again after %s, and is tried again after %s", got.after, due)
			}
			if v.Status.Phase != before.Status.Phase || (v.Status.Pod == nil) != (before.Status.Pod == nil) {
				t.Error("it changes the object")
			}
		})
	}
}

func podIn(phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: phase}}
}
