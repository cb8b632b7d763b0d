package state

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/placement"
)

// volumeOf is what counts of a PersistentVolume; false if it is
// another driver's.
func volumeOf(pv *corev1.PersistentVolume, drivers []string) (persistent, bool) {
	csi := pv.Spec.CSI
	if csi == nil || !slices.Contains(drivers, csi.Driver) {
		return persistent{}, false
	}
	hotplug, _ := strconv.ParseBool(csi.VolumeAttributes[storagev1alpha1.VolumeContextHotplug])
	return persistent{
		handle: csi.VolumeHandle, vendor: csi.VolumeAttributes[storagev1alpha1.VolumeContextVendor],
		function: functionKind(csi.VolumeAttributes[storagev1alpha1.VolumeContextFunctionType], hotplug),
	}, true
}

// functionKind is the kind of function that an attachment will ask for; vf if
// the volume names none, which is the driver's default.
func functionKind(kind string, hotplug bool) placement.Function {
	switch {
	case hotplug:
		return placement.Hotplug
	case kind == string(storagev1alpha1.FunctionTypePF):
		return placement.PF
	}
	return placement.VF
}

// warmthOf is how warm an attachment keeps its volume. One that is being
// deleted keeps nothing.
func warmthOf(a *storagev1alpha1.DPUVolumeAttachment) placement.Warmth {
	switch s := &a.Status; {
	case !a.DeletionTimestamp.IsZero():
		return placement.Cold
	case s.DPUAttached != nil && *s.DPUAttached:
		return placement.Attached
	case meta.IsStatusConditionTrue(s.Conditions, storagev1alpha1.ConditionPreEmulated):
		return placement.PreEmulated
	case s.ControllerAttached != nil && *s.ControllerAttached:
		return placement.StorageAttached
	}
	return placement.Cold
}

// nodeOf is what counts of a DPUStorageNode. Heartbeats are not judged here:
// the conditions say what their silence means.
func nodeOf(n *moorv1alpha1.DPUStorageNode) *placement.Node {
	out := &placement.Node{Name: n.Name, Trouble: n.Spec.Draining(), Lost: lostOf(n), Free: placement.UnknownFree()}
	judge(out, n.Status.Conditions, moorv1alpha1.ConditionDPUAlive, "DPU "+n.Spec.DPUName)
	judge(out, n.Status.Conditions, moorv1alpha1.ConditionHostAlive, "the host")
	dpu := n.Status.DPU
	switch {
	case !n.DeletionTimestamp.IsZero():
		out.NoDPU = "the DPUStorageNode is being deleted"
	case n.Spec.DPUName == "":
		out.NoDPU = "the node has no DPU: spec.dpuName of its DPUStorageNode is empty"
	case dpu == nil:
		out.Trouble = cmp.Or(out.Trouble, fmt.Sprintf("DPU %s has never reported", n.Spec.DPUName))
	case !dpu.SNAPReady:
		out.Trouble = cmp.Or(out.Trouble, fmt.Sprintf("the SNAP service of DPU %s does not answer", n.Spec.DPUName))
	default:
		count(&out.Free, dpu.Functions)
	}
	return out
}

// count takes over the counts of the kinds of functions that are known here.
func count(free *placement.Free, functions []moorv1alpha1.FunctionCount) {
	for _, f := range functions {
		switch f.Type {
		case moorv1alpha1.FunctionHotplug:
			free[placement.Hotplug] = int(max(0, f.Free))
		case string(storagev1alpha1.FunctionTypePF):
			free[placement.PF] = int(max(0, f.Free))
		case string(storagev1alpha1.FunctionTypeVF):
			free[placement.VF] = int(max(0, f.Free))
		}
	}
}

// judge carries a condition over: False is trouble, Unknown is doubt. Where it
// is not there, there is no watcher, and nothing is known against the node.
func judge(n *placement.Node, conditions []metav1.Condition, kind, who string) {
	c := meta.FindStatusCondition(conditions, kind)
	switch {
	case c == nil:
	case c.Status == metav1.ConditionFalse:
		n.Trouble = cmp.Or(n.Trouble, fmt.Sprintf("%s is not alive (%s)", who, c.Reason))
	case c.Status == metav1.ConditionUnknown:
		n.Doubt = cmp.Or(n.Doubt, fmt.Sprintf("it is not known whether %s is alive (%s)", who, c.Reason))
	}
}

// opens reports whether a node may serve, by what changed, a pod that it refused.
func opens(old, now *placement.Node) bool {
	if now.NoDPU != "" || now.Trouble != "" {
		return false
	}
	if old.NoDPU != "" || old.Trouble != "" || regained(old.Lost, now.Lost) {
		return true
	}
	for kind, free := range now.Free {
		if old.Free[kind] != placement.Unknown && (free == placement.Unknown || free > old.Free[kind]) {
			return true
		}
	}
	return false
}
