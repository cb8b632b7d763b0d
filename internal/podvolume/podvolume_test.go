package podvolume

import (
	"strings"
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
	if Handle(pv) != "" || HandleOf(pv, "driver") != "" || BoundTo(pv) != "" {
		t.Error("an empty one has something")
	}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver", VolumeHandle: "vol"}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "n", Name: "claim"}
	if Handle(pv) != "vol" || HandleOf(pv, "driver") != "vol" || HandleOf(pv, "other") != "" || BoundTo(pv) != "n/claim" {
		t.Errorf("%q, %q, %q, %q", Handle(pv), HandleOf(pv, "driver"), HandleOf(pv, "other"), BoundTo(pv))
	}
}

// TestHandleOfSeveral: a volume is ours if it is of one of the drivers.
func TestHandleOfSeveral(t *testing.T) {
	for want, drivers := range map[string][][]string{
		"vol": {{"driver"}, {"driver", "other"}, {"other", "driver"}},
		"":    {nil, {"other"}, {"other", "another"}, {"driver,other"}},
	} {
		for _, d := range drivers {
			if got := HandleOf(persistent("vol", "driver", ""), d...); got != want {
				t.Errorf("of %q: %q, want %q", d, got, want)
			}
		}
	}
}

func TestValidDrivers(t *testing.T) {
	for name, tc := range map[string]struct {
		names []string
		words string
	}{
		"one":         {[]string{"csi.snap.nvidia.com"}, ""},
		"two":         {[]string{"csi.snap.nvidia.com", "csi-virtiofs.snap.nvidia.com"}, ""},
		"one letter":  {[]string{"A"}, ""},
		"longest":     {[]string{strings.Repeat("a", 63)}, ""},
		"too long":    {[]string{strings.Repeat("a", 64)}, "63 of them"},
		"none":        {nil, "no CSI driver is named"},
		"empty":       {[]string{"a", ""}, `""`},
		"with blanks": {[]string{"a", " b"}, `" b"`},
		"list in one": {[]string{"a,b"}, `"a,b"`},
		"ends in -":   {[]string{"a-"}, `"a-"`},
		"begins in .": {[]string{".a"}, `".a"`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := ValidDrivers(tc.names); (err == nil) != (tc.words == "") || err != nil && !strings.Contains(err.Error(), tc.words) {
				t.Errorf("%v, want %q", err, tc.words)
			}
		})
	}
}

// TestAttachmentName is held to a VolumeAttachment that Kubernetes 1.35 made.
func TestAttachmentName(t *testing.T) {
	const want = "csi-2f421207362050107387591f9aed4c54a2500b8398e7c8a81ce98be17eb35be7"
	if got := AttachmentName("pvc-ede99d3a-809c-4130-91e2-f3444e4d64ee", "csi.snap.nvidia.com", "host-3"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
