package pods

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestHold: staging pods that use claims are kept by one container more, which has nothing of the pod's, and no others are.
func TestHold(t *testing.T) {
	claim := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}
	for name, tt := range map[string]struct {
		phase  Phase
		image  string
		volume corev1.Volume
		want   bool
	}{
		"a claim":                   {Staging, "i", claim, true},
		"a claim made with the pod": {Staging, "i", corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}, true},
		"a volume of a driver":      {Staging, "i", corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}}, true},
		"what stays on the node":    {Staging, "i", corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}}, false},
		"the volume is made":        {Creation, "i", claim, false},
		"the volume is unstaged":    {Unstaging, "i", claim, false},
		"the admin does without it": {Staging, "", claim, false},
	} {
		template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: []corev1.Volume{tt.volume}, Containers: []corev1.Container{{Name: "c"}}}}
		pod, err := Pod(template, Helper{Phase: tt.phase, HoldImage: tt.image, Root: "/root", Directory: "d"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		last := pod.Spec.Containers[len(pod.Spec.Containers)-1]
		if Held(pod) != tt.want || tt.want != (len(pod.Spec.Containers) == 2) {
			t.Errorf("%s: %d containers", name, len(pod.Spec.Containers))
		}
		if tt.want && (last.Image != "i" || len(last.VolumeMounts) > 0 || last.Resources.Limits.Memory().IsZero() || !*last.SecurityContext.RunAsNonRoot || *last.SecurityContext.RunAsUser != 65535 || !reflect.DeepEqual(last.Resources.Requests, last.Resources.Limits)) {
			t.Errorf("%s: %+v", name, last)
		}
	}
}

// TestOutcome: what a pod has come to without the container that keeps it.
func TestOutcome(t *testing.T) {
	const never, onFailure, always = corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure, corev1.RestartPolicyAlways
	const runs = int32(-1)
	for name, tt := range map[string]struct {
		phase   corev1.PodPhase
		restart corev1.RestartPolicy
		codes   map[string]int32
		want    corev1.PodPhase
	}{
		"one of two runs":                       {corev1.PodRunning, never, map[string]int32{"a": 0, "b": runs, HoldName: runs}, corev1.PodRunning},
		"one of two has failed, the other runs": {corev1.PodRunning, never, map[string]int32{"a": 1, "b": runs, HoldName: runs}, corev1.PodRunning},
		"one of two has not begun":              {corev1.PodPending, never, map[string]int32{"a": 0, HoldName: runs}, corev1.PodPending},
		"both have ended well":                  {corev1.PodRunning, never, map[string]int32{"a": 0, "b": 0, HoldName: runs}, corev1.PodSucceeded},
		"the keeper has not begun":              {corev1.PodPending, never, map[string]int32{"a": 0, "b": 0}, corev1.PodSucceeded},
		"one of two has failed":                 {corev1.PodRunning, never, map[string]int32{"a": 0, "b": 3, HoldName: runs}, corev1.PodFailed},
		"the first of two has failed":           {corev1.PodRunning, never, map[string]int32{"a": 3, "b": 0, HoldName: runs}, corev1.PodFailed},
		"one of two is tried again":             {corev1.PodRunning, onFailure, map[string]int32{"a": 0, "b": 3, HoldName: runs}, corev1.PodRunning},
		"both have ended well at last":          {corev1.PodRunning, onFailure, map[string]int32{"a": 0, "b": 0, HoldName: runs}, corev1.PodSucceeded},
		"both are started again for ever":       {corev1.PodRunning, always, map[string]int32{"a": 0, "b": 0, HoldName: runs}, corev1.PodRunning},
		"the keeper has failed":                 {corev1.PodFailed, never, map[string]int32{"a": 0, "b": 0, HoldName: 1}, corev1.PodFailed},
		"was evicted":                           {corev1.PodFailed, never, nil, corev1.PodFailed},
		"all have ended well":                   {corev1.PodSucceeded, never, map[string]int32{"a": 0, "b": 0, HoldName: 0}, corev1.PodSucceeded},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: tt.restart, Containers: []corev1.Container{{Name: "a"}, {Name: "b"}, {Name: HoldName}}}, Status: corev1.PodStatus{Phase: tt.phase}}
		for container, code := range tt.codes {
			s := corev1.ContainerStatus{Name: container}
			if code == runs {
				s.State.Running = &corev1.ContainerStateRunning{}
			} else {
				s.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: code}
			}
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, s)
		}
		ended := tt.want == corev1.PodSucceeded || tt.want == corev1.PodFailed
		if got := Outcome(pod); got != tt.want || Ended(pod) != ended {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		if got, want := Holds(pod), ended && tt.phase == corev1.PodRunning; got != want {
			t.Errorf("%s: keeps on alone: %t, want %t", name, got, want)
		}
		pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		if Holds(pod) {
			t.Errorf("%s: keeps on while it is deleted", name)
		}
		pod.Spec.Containers = pod.Spec.Containers[:2]
		if got := Outcome(pod); got != tt.phase {
			t.Errorf("%s, without a keeper: %s, want %s", name, got, tt.phase)
		}
	}
}
