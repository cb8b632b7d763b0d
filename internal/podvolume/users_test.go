package podvolume

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/moor-storage/moor/internal/kube"
)

const (
	ours  = "csi.ours"
	other = "csi.other"
)

// persistent is a PersistentVolume of a driver whose handle is its name. Without a
// claim it is for none; with one it is bound to that in namespace ns.
func persistent(name, driver, claim string) *corev1.PersistentVolume {
	out := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	out.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: name}
	if claim != "" {
		out.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: claim}
		out.Status.Phase = corev1.VolumeBound
	}
	return out
}

// podOn is a pod on a claim, bound to a node.
func podOn(namespace, name, claim, node string) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	out.Spec.NodeName = node
	out.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	return out
}

func ended(p *corev1.Pod) *corev1.Pod {
	p.Status.Phase = corev1.PodSucceeded
	return p
}

// usersOf finds in a cluster with these objects, in which live ones may differ.
func usersOf(cached, live []client.Object) Users {
	b := fake.NewClientBuilder().WithObjects(cached...)
	for _, i := range append(Indexes(), IndexPodsByNode()) {
		b.WithIndex(i.Object, i.Field, i.Extract)
	}
	return Users{Host: kube.Cluster{Client: b.Build(), Live: fake.NewClientBuilder().WithObjects(live...).Build()}, Drivers: []string{ours}}
}

// TestVolumes: only the volumes of the driver that are for that very claim.
func TestVolumes(t *testing.T) {
	elsewhere := persistent("other-namespace", ours, "c")
	elsewhere.Spec.ClaimRef.Namespace = "other"
	unbound := persistent("promised", ours, "c")
	unbound.Status.Phase = corev1.VolumeAvailable
	u := usersOf([]client.Object{
		persistent("vol", ours, "c"), persistent("other-driver", other, "c"), elsewhere, persistent("free", ours, ""), unbound,
	}, nil)
	for name, tc := range map[string]struct {
		got  func() ([]string, error)
		want []string
	}{
		"handles":                         {func() ([]string, error) { return u.Handles(t.Context(), "ns/c") }, []string{"promised", "vol"}},
		"bound handles":                   {func() ([]string, error) { return u.BoundHandles(t.Context(), "ns/c") }, []string{"vol"}},
		"handles of a pod":                {func() ([]string, error) { return u.HandlesOf(t.Context(), podOn("ns", "p", "c", "n")) }, []string{"promised", "vol"}},
		"handles of a pod elsewhere":      {func() ([]string, error) { return u.HandlesOf(t.Context(), podOn("ns", "p", "d", "n")) }, nil},
		"claims":                          {func() ([]string, error) { return u.Claims(t.Context(), "promised") }, []string{"ns/c"}},
		"bound claims of a promise":       {func() ([]string, error) { return u.BoundClaims(t.Context(), "promised") }, nil},
		"bound claims":                    {func() ([]string, error) { return u.BoundClaims(t.Context(), "vol") }, []string{"ns/c"}},
		"claims of another driver's":      {func() ([]string, error) { return u.Claims(t.Context(), "other-driver") }, nil},
		"claims of a volume without":      {func() ([]string, error) { return u.Claims(t.Context(), "free") }, nil},
		"claims of a volume that is gone": {func() ([]string, error) { return u.Claims(t.Context(), "gone") }, nil},
	} {
		got, err := tc.got()
		if d := cmp.Diff(tc.want, got); d != "" || err != nil {
			t.Errorf("%s: %s, %v", name, d, err)
		}
	}
}

// TestVolumesOf: what the cache lacks is read from the API server.
func TestVolumesOf(t *testing.T) {
	claim := func(name, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	bound, unbound, pv := claim("c", "vol"), claim("c", ""), persistent("vol", ours, "c")
	for name, test := range map[string]struct {
		cached, live []client.Object
		want         []string
	}{
		"in the cache":                      {[]client.Object{bound, pv}, nil, []string{"vol"}},
		"none of it in the cache":           {nil, []client.Object{bound, pv}, []string{"vol"}},
		"bound since":                       {[]client.Object{unbound, pv}, []client.Object{bound}, []string{"vol"}},
		"the volume is not in the cache":    {[]client.Object{bound}, []client.Object{pv}, []string{"vol"}},
		"unbound":                           {[]client.Object{unbound}, []client.Object{unbound}, nil},
		"another driver's":                  {[]client.Object{bound, persistent("vol", other, "c")}, nil, nil},
		"without a claim and a volume":      {nil, nil, nil},
		"a claim of another namespace only": {[]client.Object{persistent("vol", ours, "c")}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := usersOf(test.cached, test.live).VolumesOf(t.Context(), podOn("ns", "p", "c", "n"))
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
}

// TestPods: only the pods that use that very claim, and have not finished.
func TestPods(t *testing.T) {
	u := usersOf([]client.Object{
		podOn("ns", "a", "c", "n1"), podOn("ns", "b", "c", "n2"), podOn("ns", "waits", "c", ""), ended(podOn("ns", "finished", "c", "n1")),
		podOn("ns", "other-claim", "d", "n1"), podOn("other", "other-namespace", "c", "n1"),
	}, nil)
	for name, tc := range map[string]struct {
		got  func() ([]corev1.Pod, error)
		want []string
	}{
		"on a claim":           {func() ([]corev1.Pod, error) { return u.Pods(t.Context(), "ns/c") }, []string{"a", "b", "waits"}},
		"on a node by a claim": {func() ([]corev1.Pod, error) { return u.PodsOnNode(t.Context(), "n1", "ns/c") }, []string{"a"}},
		"on a node":            {func() ([]corev1.Pod, error) { return u.AllPodsOnNode(t.Context(), "n1") }, []string{"a", "finished", "other-claim", "other-namespace"}},
	} {
		pods, err := tc.got()
		var got []string
		for i := range pods {
			got = append(got, pods[i].Name)
		}
		if d := cmp.Diff(tc.want, got); d != "" || err != nil {
			t.Errorf("%s: %s, %v", name, d, err)
		}
	}
}

// TestConfirm: only what the API server itself has counts.
func TestConfirm(t *testing.T) {
	for name, tc := range map[string]struct {
		live []client.Object
		want bool
	}{
		"it uses it":                   {[]client.Object{podOn("ns", "p", "c", "n")}, true},
		"it is gone":                   {nil, false},
		"it has finished":              {[]client.Object{ended(podOn("ns", "p", "c", "n"))}, false},
		"its successor runs elsewhere": {[]client.Object{podOn("ns", "p", "c", "n2")}, false},
		"its successor uses another":   {[]client.Object{podOn("ns", "p", "d", "n")}, false},
	} {
		got, err := usersOf(nil, tc.live).Confirm(t.Context(), podOn("ns", "p", "c", "n"), "n", "ns/c")
		if got != tc.want || err != nil {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
}

// TestBackedOff: only a kubelet that says it leaves the pod alone does.
func TestBackedOff(t *testing.T) {
	said := corev1.Event{
		Reason: ReasonFailedMount, InvolvedObject: corev1.ObjectReference{Kind: "Pod", UID: "uid"},
		Message: "Unable to attach or mount volumes: unmounted volumes=[data]",
	}
	again, another, claim := said, said, said
	again.Message, another.Reason, claim.InvolvedObject.Kind = "MountVolume.SetUp failed for volume", "Failed", "PersistentVolumeClaim"
	if BackedOff(&said) != "uid" || BackedOff(&again) != "" || BackedOff(&another) != "" || BackedOff(&claim) != "" {
		t.Errorf("%q, %q, %q, %q", BackedOff(&said), BackedOff(&again), BackedOff(&another), BackedOff(&claim))
	}
}
