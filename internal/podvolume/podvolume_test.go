package podvolume

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestClaims(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "a", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}},
		{Name: "b", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "c", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
	}
	pod.Spec.Containers = []corev1.Container{{Name: "main"}}
	pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Message: "x"}
	slim, err := SlimUser(pod.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*corev1.Pod{pod, slim.(*corev1.Pod)} {
		if d := cmp.Diff([]string{"n/claim", "n/p-c"}, Claims(p)); d != "" || !Finished(p) {
			t.Errorf("finished %v, claims: %s", Finished(p), d)
		}
	}
	if s := slim.(*corev1.Pod); s.Spec.Containers != nil || s.Status.Message != "" {
		t.Errorf("kept %+v", s)
	}
}

func TestPersistentVolume(t *testing.T) {
	pv := &corev1.PersistentVolume{}
	if Handle(pv) != "" || HandleOf("driver", pv) != "" || BoundTo(pv) != "" {
		t.Error("an empty one has something")
	}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver", VolumeHandle: "vol"}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "n", Name: "claim"}
	if Handle(pv) != "vol" || HandleOf("driver", pv) != "vol" || HandleOf("other", pv) != "" || BoundTo(pv) != "n/claim" {
		t.Errorf("%q, %q, %q, %q", Handle(pv), HandleOf("driver", pv), HandleOf("other", pv), BoundTo(pv))
	}
}

// TestAttachmentName is held to a VolumeAttachment that Kubernetes 1.35 made.
func TestAttachmentName(t *testing.T) {
	const want = "csi-2f421207362050107387591f9aed4c54a2500b8398e7c8a81ce98be17eb35be7"
	if got := AttachmentName("pvc-ede99d3a-809c-4130-91e2-f3444e4d64ee", "csi.snap.nvidia.com", "host-3"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
