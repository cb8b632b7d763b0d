package dpf

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// ailing is a volume with a Healthy condition.
func ailing(name, words string) *storagev1alpha1.DPUVolume {
	v, status := boundVolume(name), metav1.ConditionTrue
	if words != "" {
		status = metav1.ConditionFalse
	}
	v.Status.Conditions = []metav1.Condition{{Type: storagev1alpha1.ConditionHealthy, Status: status, Message: words}}
	return v
}

func nodeThat(change func(*moorv1alpha1.DPUStorageNode)) *moorv1alpha1.DPUStorageNode {
	n := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: "d1"}}
	n.Status.DPU = &moorv1alpha1.DPUState{SNAPReady: true}
	change(n)
	return n
}

func TestDiagnose(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	sound := func(*storagev1alpha1.DPUVolumeAttachment) {}
	unshown := func(made, since time.Duration) func(*storagev1alpha1.DPUVolumeAttachment) {
		return func(a *storagev1alpha1.DPUVolumeAttachment) {
			a.CreationTimestamp = metav1.NewTime(now.Add(-made))
			a.Status.DPUAttached, a.Status.Message = ptr.To(false), "the DPU is busy"
			a.Status.Conditions = []metav1.Condition{{
				Type: storagev1alpha1.ConditionDPUAttached, Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-since)),
			}}
		}
	}
	says := func(kind string, status metav1.ConditionStatus) *moorv1alpha1.DPUStorageNode {
		return nodeThat(func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Message: "words"}}
		})
	}
	using := func(a func(*storagev1alpha1.DPUVolumeAttachment), n *moorv1alpha1.DPUStorageNode) []use {
		return []use{{attachmentOf("v", "n1", a), n}}
	}
	replicas := func(missing int32, words string) *storagev1alpha1.DPUVolume {
		v := boundVolume("v")
		v.Status.Replicas = &storagev1alpha1.ReplicaState{Wanted: 2, Missing: missing, Message: words}
		return v
	}
	for name, c := range map[string]struct {
		volume *storagev1alpha1.DPUVolume
		uses   []use
		want   []string
	}{
		"unused":                          {boundVolume("v"), nil, nil},
		"in use":                          {boundVolume("v"), using(sound, nodeThat(func(*moorv1alpha1.DPUStorageNode) {})), nil},
		"on a node of which nobody knows": {boundVolume("v"), using(sound, nil), nil},
		"well again":                      {ailing("v", ""), nil, nil},
		"its claim is gone":               {ailing("v", "the claim is gone"), nil, []string{"Inaccessible VendorVolumeUnusable: the claim is gone"}},
		"on its way":                      {boundVolume("v"), using(unshown(30*time.Second, 30*time.Second), nil), nil},
		"just taken away":                 {boundVolume("v"), using(unshown(time.Hour, 30*time.Second), nil), nil},
		"never came":                      {boundVolume("v"), using(unshown(2*time.Minute, 2*time.Minute), nil), []string{"Inaccessible DeviceNotShown: node n1 does not see the device: the DPU is busy"}},
		"the host is dead":                {boundVolume("v"), using(sound, says(moorv1alpha1.ConditionHostAlive, metav1.ConditionFalse)), []string{"Inaccessible HostDead: node n1, which uses the volume: words"}},
		"nobody knows of the host":        {boundVolume("v"), using(sound, says(moorv1alpha1.ConditionHostAlive, metav1.ConditionUnknown)), nil},
		"the DPU is silent":               {boundVolume("v"), using(sound, says(moorv1alpha1.ConditionDPUAlive, metav1.ConditionFalse)), []string{"Degraded DPUSilent: node n1, which uses the volume: words"}},
		"SNAP is down": {
			boundVolume("v"), using(sound, nodeThat(func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.SNAPReady = false })),
			[]string{"Inaccessible SNAPDown: node n1, which uses the volume: SNAP does not answer on DPU d1"},
		},
		"replicas on their way":  {replicas(1, ""), nil, nil},
		"replicas find no place": {replicas(1, "no node has room"), nil, []string{"Degraded ReplicasMissing: 1 of 2 replicas are missing: no node has room"}},
		"all replicas are there": {replicas(0, "late"), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, words(diagnose(c.volume, c.uses, now))); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func words(problems []provisioner.Problem) (out []string) {
	for _, p := range problems {
		out = append(out, fmt.Sprintf("%s %s: %s", p.Severity, p.Reason, p.Message))
	}
	return out
}

func TestHealthIsOfThePrimariesAlone(t *testing.T) {
	replica := func(a *storagev1alpha1.DPUVolumeAttachment) { a.Spec.Role = storagev1alpha1.RoleReplica }
	sound := func(*storagev1alpha1.DPUVolumeAttachment) {}
	down := nodeThat(func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.SNAPReady = false })
	unmade := ailing("unmade", "never begun")
	unmade.Status.Phase = storagev1alpha1.DPUVolumePending
	there := []client.Object{
		down, unmade, boundVolume("used"), attachmentOf("used", "n1", sound), boundVolume("spare"), attachmentOf("spare", "n1", replica),
		ailing("a", "gone"), boundVolume("idle"),
	}
	h := &Health{options: Options{Client: newHost(t, nil, there...), Namespace: namespace}, clock: clock.RealClock{}}
	var all []provisioner.VolumeHealth
	for page := (provisioner.Page{Max: 1}); ; {
		got, next, err := h.List(t.Context(), page)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got...)
		if page.After = next; next == "" {
			break
		}
	}
	if len(all) != 2 || all[0].VolumeID != "a" || all[1].VolumeID != "used" || all[1].Problems[0].Reason != reasonSNAPDown {
		t.Errorf("unwell are %+v", all)
	}
	one, err := h.Get(t.Context(), "used")
	if diff := cmp.Diff(all[1], one); err != nil || diff != "" {
		t.Errorf("of one volume (-list +get): %s, %v", diff, err)
	}
	for _, id := range []string{"unmade", "nothing"} {
		if _, err := h.Get(t.Context(), id); !errors.Is(err, provisioner.ErrNotFound) {
			t.Errorf("of %s: %v", id, err)
		}
	}
}
