package podvolume

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
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
	slim, err := Slim(pod.DeepCopy())
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

// TestBehind: only the volumes of the driver that are for that very claim.
func TestBehind(t *testing.T) {
	pv := func(name, driver, namespace, claim string) *corev1.PersistentVolume {
		out := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		out.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}
		if claim != "" {
			out.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: claim}
		}
		return out
	}
	builder := indexed{fake.NewClientBuilder().WithObjects(pv("ours", "d", "ns", "c"), pv("other-driver", "e", "ns", "c"),
		pv("other-namespace", "d", "other", "c"), pv("free", "d", "", ""))}
	if err := Index(t.Context(), builder); err != nil {
		t.Fatal(err)
	}
	got, err := Behind(t.Context(), builder.Build(), "d", "ns/c")
	if err != nil || len(got) != 1 || got[0].Name != "ours" {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestOn: only the pods that use that very claim, and have not finished.
func TestOn(t *testing.T) {
	pod := func(namespace, name, claim string) *corev1.Pod {
		out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		out.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}}}
		return out
	}
	finished := pod("ns", "finished", "c")
	finished.Status.Phase = corev1.PodSucceeded
	builder := indexed{fake.NewClientBuilder().WithObjects(pod("ns", "ours", "c"), finished, pod("ns", "other-claim", "d"), pod("other", "other-namespace", "c"))}
	if err := Index(t.Context(), builder); err != nil {
		t.Fatal(err)
	}
	got, err := On(t.Context(), builder.Build(), "ns/c")
	if err != nil || len(got) != 1 || got[0].Name != "ours" {
		t.Errorf("got %v, %v", got, err)
	}
}

// indexed registers indexes with a fake client.
type indexed struct{ *fake.ClientBuilder }

func (i indexed) IndexField(_ context.Context, o client.Object, field string, extract client.IndexerFunc) error {
	i.WithIndex(o, field, extract)
	return nil
}
