package helper

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func recordOf(uid types.UID) *moorv1alpha1.HelperPod {
	return &moorv1alpha1.HelperPod{Namespace: "ns", Name: "p", UID: uid, NodeName: "n", Since: metav1.NewTime(begin)}
}

// podIn is pod p with UID u on node n.
func podIn(phase corev1.PodPhase, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: phase}}
	for _, c := range change {
		c(p)
	}
	return p
}

func terminated(code int32, reason, message string, after time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, Message: message, FinishedAt: metav1.NewTime(begin.Add(after)),
		}}})
	}
}

func waiting(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
}

func unscheduled(p *corev1.Pod) {
	p.Spec.NodeName = ""
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available"}}
}

func deleted(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: begin} }

// TestJudge: what a pod has come to, and the words for it.
func TestJudge(t *testing.T) {
	free := recordOf("u")
	free.NodeName = ""
	mine, others := &moorv1alpha1.PodReport{PodUID: "u"}, &moorv1alpha1.PodReport{PodUID: "another", Error: "old"}
	for name, tt := range map[string]struct {
		phase  pods.Phase
		record *moorv1alpha1.HelperPod
		seen   Seen
		report *moorv1alpha1.PodReport
		at     time.Duration
		want   Verdict
		words  string
		again  time.Duration
	}{
		"recorded and not made":                      {pods.Creation, recordOf(""), Seen{}, nil, 0, Unmade, "", time.Minute},
		"could not be made in time":                  {pods.Creation, recordOf(""), Seen{}, nil, time.Minute, Failed, "the creation pod ns/p has not ended within 1m0s: it could not be made", 0},
		"another pod has its name":                   {pods.Creation, recordOf(""), Seen{Foreign: true}, nil, 0, Waits, "another pod has its name", time.Minute},
		"another pod keeps its name":                 {pods.Creation, recordOf(""), Seen{Foreign: true}, nil, time.Minute, Failed, "could not be made: another pod has its name", 0},
		"not made, at the last moment":               {pods.Creation, recordOf(""), Seen{}, nil, time.Minute - 1, Unmade, "", 1},
		"its name is free at the last moment":        {pods.Creation, recordOf(""), Seen{Foreign: true}, nil, time.Minute - 1, Waits, "another pod has its name", 1},
		"runs at the last moment":                    {pods.Creation, recordOf("u"), Seen{Pod: podIn("Running")}, nil, time.Minute - 1, Waits, "the creation pod ns/p runs", 1},
		"stages":                                     {pods.Staging, recordOf("u"), Seen{Pod: podIn("Running")}, nil, 0, Waits, "the staging pod ns/p runs", time.Minute},
		"stages, and is not ready":                   {pods.Staging, recordOf("u"), Seen{Pod: podIn("Running")}, mine, 0, Waits, "the staging pod ns/p runs", time.Minute},
		"stages, and what it says is of no use":      {pods.Staging, recordOf("u"), Seen{Pod: podIn("Running")}, &moorv1alpha1.PodReport{PodUID: "u", Problem: "/pav/ready is a directory"}, 0, Failed, "/pav/ready is a directory", 0},
		"failed, and is read at the last moment":     {pods.Validation, recordOf("u"), Seen{Pod: podIn("Failed", terminated(1, "Error", "", 0))}, nil, reportGrace - 1, Waits, "is to read", 1},
		"failed by the last of its containers":       {pods.Validation, recordOf("u"), Seen{Pod: podIn("Failed", terminated(1, "Error", "", 20*time.Second), terminated(1, "Error", "", 5*time.Second))}, nil, 40 * time.Second, Waits, "is to read", 10 * time.Second},
		"failed, and a container says nothing":       {pods.Validation, recordOf("u"), Seen{Pod: podIn("Failed", waiting("ContainerCreating", ""))}, nil, 0, Waits, "is to read", reportGrace},
		"made and not noted":                         {pods.Creation, recordOf(""), Seen{Pod: podIn("Pending")}, nil, 0, Unnoted, "", time.Minute},
		"scheduled and not noted":                    {pods.Creation, free, Seen{Pod: podIn("Pending")}, nil, 0, Unnoted, "", time.Minute},
		"deleted by another, gone":                   {pods.Creation, recordOf("u"), Seen{}, mine, 0, Failed, "was deleted by another", 0},
		"deleted by another, going":                  {pods.Creation, recordOf("u"), Seen{Pod: podIn("Running", deleted)}, nil, 0, Failed, "is being deleted by another", 0},
		"runs":                                       {pods.Creation, recordOf("u"), Seen{Pod: podIn("Running")}, nil, 20 * time.Second, Waits, "the creation pod ns/p runs", 40 * time.Second},
		"a report of another pod counts for nothing": {pods.Creation, recordOf("u"), Seen{Pod: podIn("Succeeded", terminated(0, "", "", 0))}, others, 0, Waits, "has ended, and pod-provisioner of node n is to read", time.Minute},
		"succeeded and read":                         {pods.Creation, recordOf("u"), Seen{Pod: podIn("Succeeded")}, mine, 0, Succeeded, "", 0},
		"succeeded, read, and its node is gone":      {pods.Creation, recordOf("u"), Seen{Pod: podIn("Succeeded"), NodeGone: true}, mine, 0, Succeeded, "", 0},
		"succeeded, unread, and its node is gone":    {pods.Creation, recordOf("u"), Seen{Pod: podIn("Succeeded"), NodeGone: true}, nil, 0, Failed, "is lost: its node n is gone", 0},
		"succeeded and never read":                   {pods.Creation, recordOf("u"), Seen{Pod: podIn("Succeeded", terminated(0, "", "", 50*time.Second))}, nil, 80 * time.Second, Failed, "does not say what it has left", 0},
		"succeeded late, read a moment later":        {pods.Creation, recordOf("u"), Seen{Pod: podIn("Succeeded", terminated(0, "", "", 50*time.Second))}, nil, 70 * time.Second, Waits, "is to read", 10 * time.Second},
		"left something that cannot be used":         {pods.Creation, recordOf("u"), Seen{Pod: podIn("Succeeded")}, &moorv1alpha1.PodReport{PodUID: "u", Problem: "/pav/handle is a directory"}, 0, Failed, "/pav/handle is a directory", 0},
		"failed, and its words are awaited":          {pods.Validation, recordOf("u"), Seen{Pod: podIn("Failed", terminated(1, "Error", "", time.Second))}, nil, 2 * time.Second, Waits, "is to read", 29 * time.Second},
		"failed with words in /pav/error":            {pods.Validation, recordOf("u"), Seen{Pod: podIn("Failed", terminated(3, "Error", "log line", 0))}, &moorv1alpha1.PodReport{PodUID: "u", Error: "no such bucket"}, 0, Failed, "the validation pod ns/p failed: no such bucket: container c ended with exit code 3: log line", 0},
		"failed and never read":                      {pods.Validation, recordOf("u"), Seen{Pod: podIn("Failed", terminated(137, "OOMKilled", "", 0))}, nil, 31 * time.Second, Failed, "the validation pod ns/p failed: container c ended with exit code 137 (OOMKilled)", 0},
		"evicted":                                    {pods.Validation, recordOf("u"), Seen{Pod: podIn("Failed", func(p *corev1.Pod) { p.Status.Reason, p.Status.Message = "Evicted", "low on disk" })}, mine, 0, Failed, "failed: Evicted: low on disk", 0},
		"its node is gone while it runs":             {pods.Creation, recordOf("u"), Seen{Pod: podIn("Running"), NodeGone: true}, nil, 0, Failed, "its node n is gone", 0},
		"cannot be scheduled":                        {pods.Creation, free, Seen{Pod: podIn("Pending", unscheduled)}, nil, 0, Waits, "does not run: it is not scheduled: 0/3 nodes are available", time.Minute},
		"was never scheduled":                        {pods.Creation, free, Seen{Pod: podIn("Pending", unscheduled)}, nil, time.Minute, Failed, "has not ended within 1m0s: it is not scheduled: 0/3 nodes are available", 0},
		"its image cannot be pulled":                 {pods.Creation, recordOf("u"), Seen{Pod: podIn("Pending", waiting("ErrImagePull", "no such image"))}, nil, time.Minute, Failed, "its container c waits: ErrImagePull: no such image", 0},
		"its container is being created":             {pods.Creation, recordOf("u"), Seen{Pod: podIn("Pending", waiting("ContainerCreating", ""))}, nil, 0, Waits, "the creation pod ns/p runs", time.Minute},
		"hangs": {pods.Creation, recordOf("u"), Seen{Pod: podIn("Running", func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		})}, nil, time.Minute, Failed, "has not ended within 1m0s: its container c runs on node n", 0},
		"stages and runs on":         {pods.Staging, recordOf("u"), Seen{Pod: podIn("Running")}, &moorv1alpha1.PodReport{PodUID: "u", Ready: true}, time.Hour, Ready, "", 0},
		"ready is for staging alone": {pods.Unstaging, recordOf("u"), Seen{Pod: podIn("Running")}, &moorv1alpha1.PodReport{PodUID: "u", Ready: true}, 0, Waits, "runs", time.Minute},
		"was ready, and has failed":  {pods.Staging, recordOf("u"), Seen{Pod: podIn("Failed")}, &moorv1alpha1.PodReport{PodUID: "u", Ready: true}, 0, Failed, "the staging pod ns/p failed", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := Judge(Case{Phase: tt.phase, Record: tt.record, Seen: tt.seen, Report: tt.report, Timeout: time.Minute, Now: begin.Add(tt.at)})
			if got.Verdict != tt.want || got.Again != tt.again || !strings.Contains(got.Words, tt.words) || (tt.words == "") != (got.Words == "") {
				t.Errorf("got %+v, want %d after %s: %s", got, tt.want, tt.again, tt.words)
			}
		})
	}
}

// keeps is a pod with a container that keeps it, whose one other container has come to an exit code.
func keeps(code int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.Containers = []corev1.Container{{Name: "c"}, {Name: pods.HoldName}}
		terminated(code, "Error", "no key", 0)(p)
	}
}

// TestJudgeHeld: a staging pod that is kept has done its work when its own containers have, and runs on; that is of no use
// once the keeper has ended.
func TestJudgeHeld(t *testing.T) {
	mine := &moorv1alpha1.PodReport{PodUID: "u"}
	for name, tt := range map[string]struct {
		pod    *corev1.Pod
		report *moorv1alpha1.PodReport
		want   Verdict
		words  string
		lost   string
		at     time.Duration
	}{
		"has done its work, unread":         {podIn("Running", keeps(0)), nil, Waits, "has ended, and pod-provisioner of node n is to read", "", 0},
		"has done its work, never read":     {podIn("Running", keeps(0)), nil, Failed, "does not say what it has left", "", 2 * time.Minute},
		"has done its work":                 {podIn("Running", keeps(0)), mine, Ready, "", "", 0},
		"has done its work, pulls no image": {podIn("Pending", keeps(0)), mine, Ready, "", "", 0},
		"failed":                            {podIn("Running", keeps(2)), mine, Failed, "failed: container c ended with exit code 2: no key", "failed: container c ended with exit code 2: no key", 0},
		"its keeper has ended":              {podIn("Succeeded", keeps(0)), mine, Failed, "has ended with its container pav-hold", "the volumes of its claims have left the node", 0},
		"its keeper has failed":             {podIn("Failed", keeps(0)), mine, Failed, "failed", "failed", 0},
		"left something useless":            {podIn("Running", keeps(0)), &moorv1alpha1.PodReport{PodUID: "u", Problem: "/pav/ready is a directory"}, Failed, "/pav/ready is a directory", "", 0},
	} {
		got := Judge(Case{Phase: pods.Staging, Record: recordOf("u"), Seen: Seen{Pod: tt.pod}, Report: tt.report, Timeout: time.Minute, Now: begin.Add(tt.at)})
		if got.Verdict != tt.want || !strings.Contains(got.Words, tt.words) || (tt.words == "") != (got.Words == "") {
			t.Errorf("%s: got %+v, want %d: %s", name, got, tt.want, tt.words)
		}
		if lost := Lost(pods.Staging, recordOf("u"), Seen{Pod: tt.pod}); !strings.Contains(lost, tt.lost) || (tt.lost == "") != (lost == "") {
			t.Errorf("%s: lost: %q, want %q", name, lost, tt.lost)
		}
	}
}

// TestJudgeAlone: a pod without /pav has done its work if each of its containers has ended with exit code 0, it was not taken
// away, and it was not on the node where it must not run. No report is waited for, and none counts.
func TestJudgeAlone(t *testing.T) {
	well := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "i"}, {Name: "beside", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
		p.Spec.Containers = []corev1.Container{{Name: "c"}}
		of := func(name string, code int32) corev1.ContainerStatus {
			return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}}
		}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{of("i", 0), of("beside", 143)}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{of("c", 0)}
	}
	for name, tt := range map[string]struct {
		pod   *corev1.Pod
		not   string
		want  Verdict
		words string
	}{
		"has ended well":                   {podIn("Succeeded", well), "dpu", Succeeded, ""},
		"runs":                             {podIn("Running", well), "dpu", Waits, "the revocation pod ns/p runs"},
		"runs where it must not":           {podIn("Running", well), "n", Failed, "is on node n, which it must not run on"},
		"has ended well where it must not": {podIn("Succeeded", well), "n", Failed, "is on node n, which it must not run on"},
		"failed":                           {podIn("Failed", terminated(3, "Error", "no route", 0)), "dpu", Failed, "the revocation pod ns/p failed: container c ended with exit code 3: no route"},
		"was evicted":                      {podIn("Failed", well, func(p *corev1.Pod) { p.Status.Reason, p.Status.Message = "Evicted", "low on disk" }), "dpu", Failed, "failed: Evicted: low on disk"},
		"ended well as it was deleted":     {podIn("Succeeded", well, deleted), "dpu", Failed, "was deleted by another before its end was seen"},
		"ended well as it was evicted":     {podIn("Succeeded", well, disrupted(corev1.ConditionTrue)), "dpu", Failed, "was evicted before it had done its work"},
		"was to be evicted, and was not":   {podIn("Succeeded", well, disrupted(corev1.ConditionFalse)), "dpu", Succeeded, ""},
		"has ended well where it was scheduled to": {podIn("Succeeded", well, func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
		}), "dpu", Succeeded, ""},
		"a container of a restart policy of its own has not ended": {podIn("Succeeded", well, func(p *corev1.Pod) {
			p.Spec.InitContainers[0].RestartPolicy, p.Status.InitContainerStatuses = ptr.To(corev1.ContainerRestartPolicyNever), nil
		}), "dpu", Failed, "not each of its containers"},
		"a container has not said how":            {podIn("Succeeded", well, func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }), "dpu", Failed, "not each of its containers with exit code 0"},
		"a container has not ended":               {podIn("Succeeded", well, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Terminated = nil }), "dpu", Failed, "not each of its containers"},
		"an init container has not said how":      {podIn("Succeeded", well, func(p *corev1.Pod) { p.Status.InitContainerStatuses = nil }), "dpu", Failed, "not each of its containers"},
		"a container ended in another way":        {podIn("Succeeded", well, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Terminated.ExitCode = 1 }), "dpu", Failed, "not each of its containers"},
		"has no container, for all that is known": {podIn("Succeeded"), "dpu", Failed, "not each of its containers"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Judge(Case{Phase: pods.Revocation, Record: recordOf("u"), Seen: Seen{Pod: tt.pod}, Timeout: time.Minute, Now: begin, NotOn: tt.not})
			if got.Verdict != tt.want || !strings.Contains(got.Words, tt.words) || (tt.words == "") != (got.Words == "") {
				t.Errorf("got %+v, want %d: %s", got, tt.want, tt.words)
			}
		})
	}
}

func disrupted(is corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: is}}
	}
}

// TestLost: a staged pod is lost unless it runs on or has ended well.
func TestLost(t *testing.T) {
	for name, tt := range map[string]struct {
		seen Seen
		want string
	}{
		"runs":                {Seen{Pod: podIn("Running")}, ""},
		"has ended well":      {Seen{Pod: podIn("Succeeded", deleted)}, ""},
		"failed":              {Seen{Pod: podIn("Failed", terminated(9, "Error", "broken pipe", 0))}, "failed: container c ended with exit code 9: broken pipe"},
		"gone":                {Seen{}, "was deleted by another"},
		"is being deleted":    {Seen{Pod: podIn("Running", deleted)}, "is being deleted by another"},
		"its kubelet is lost": {Seen{Pod: podIn("Unknown")}, ""},
	} {
		if got := Lost(pods.Staging, recordOf("u"), tt.seen); !strings.Contains(got, tt.want) || (tt.want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
