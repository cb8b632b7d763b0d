package health

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// volumeWith is a volume with a Healthy condition.
func volumeWith(trouble string) *storagev1alpha1.DPUVolume {
	v := &storagev1alpha1.DPUVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Status: storagev1alpha1.DPUVolumeStatus{Phase: storagev1alpha1.DPUVolumeBound}}
	status := metav1.ConditionTrue
	if trouble != "" {
		status = metav1.ConditionFalse
	}
	v.Status.Conditions = []metav1.Condition{{Type: storagev1alpha1.ConditionHealthy, Status: status, Message: trouble}}
	return v
}

// shownOn is an attachment that a node uses.
func shownOn(node string, change func(*storagev1alpha1.DPUVolumeAttachment)) *storagev1alpha1.DPUVolumeAttachment {
	a := &storagev1alpha1.DPUVolumeAttachment{
		Spec:   storagev1alpha1.DPUVolumeAttachmentSpec{DPUVolumeName: "v", DPUNodeName: node},
		Status: storagev1alpha1.DPUVolumeAttachmentStatus{DPUAttached: ptr.To(true)},
	}
	change(a)
	return a
}

func aNode(change func(*moorv1alpha1.DPUStorageNode)) *moorv1alpha1.DPUStorageNode {
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
		return aNode(func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Message: "words"}}
		})
	}
	using := func(a func(*storagev1alpha1.DPUVolumeAttachment), n *moorv1alpha1.DPUStorageNode) []use {
		return []use{{shownOn("n1", a), n}}
	}
	replicas := func(missing int32, words string) *storagev1alpha1.DPUVolume {
		v := volumeWith("")
		v.Status.Replicas = &storagev1alpha1.ReplicaState{Wanted: 2, Missing: missing, Message: words}
		return v
	}
	for name, c := range map[string]struct {
		aVolume *storagev1alpha1.DPUVolume
		uses    []use
		want    []string
	}{
		"unused":             {volumeWith(""), nil, nil},
		"in use":             {volumeWith(""), using(sound, aNode(func(*moorv1alpha1.DPUStorageNode) {})), nil},
		"on an unknown node": {volumeWith(""), using(sound, nil), nil},
		"well again":         {volumeWith(""), nil, nil},
		"its claim is gone":  {volumeWith("the claim is gone"), nil, []string{"Inaccessible VendorVolumeUnusable: the claim is gone"}},
		"on its way":         {volumeWith(""), using(unshown(30*time.Second, 30*time.Second), nil), nil},
		"just taken away":    {volumeWith(""), using(unshown(time.Hour, 30*time.Second), nil), nil},
		"never came":         {volumeWith(""), using(unshown(2*time.Minute, 2*time.Minute), nil), []string{"Inaccessible DeviceNotShown: node n1 does not see the device: the DPU is busy"}},
		"its mount is dead": {volumeWith(""), using(func(a *storagev1alpha1.DPUVolumeAttachment) {
			a.Spec.DPUNodeName = "n1"
			a.Status.Conditions = []metav1.Condition{{Type: storagev1alpha1.ConditionMountHealthy, Status: metav1.ConditionFalse, Message: "words"}}
		}, nil), []string{"Inaccessible MountDead: on node n1: words"}},
		"its path is lost": {volumeWith(""), using(func(a *storagev1alpha1.DPUVolumeAttachment) {
			a.Spec.DPUNodeName = "n1"
			a.Status.Conditions = []metav1.Condition{{Type: storagev1alpha1.ConditionPathHealthy, Status: metav1.ConditionFalse, Message: "words"}}
		}, nil), []string{"Inaccessible PathLost: node n1 does not reach the storage: words"}},
		"the host is dead":    {volumeWith(""), using(sound, says(moorv1alpha1.ConditionHostAlive, metav1.ConditionFalse)), []string{"Inaccessible HostDead: node n1, which uses the volume: words"}},
		"the host is unknown": {volumeWith(""), using(sound, says(moorv1alpha1.ConditionHostAlive, metav1.ConditionUnknown)), nil},
		"the DPU is silent":   {volumeWith(""), using(sound, says(moorv1alpha1.ConditionDPUAlive, metav1.ConditionFalse)), []string{"Degraded DPUSilent: node n1, which uses the volume: words"}},
		"SNAP is down": {
			volumeWith(""), using(sound, aNode(func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.SNAPReady = false })),
			[]string{"Inaccessible SNAPDown: node n1, which uses the volume: SNAP does not answer on DPU d1"},
		},
		"replicas on their way":  {replicas(1, ""), nil, nil},
		"replicas find no place": {replicas(1, "no node has room"), nil, []string{"Degraded ReplicasMissing: 1 of 2 replicas are missing: no node has room"}},
		"all replicas are there": {replicas(0, "late"), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, words(diagnose(c.aVolume, c.uses, now))); diff != "" {
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
