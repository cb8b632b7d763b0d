package attachment

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// observed is how far the device has come, by the status of the mirror.
type observed struct {
	// stored: the vendor's storage lets the DPU use the volume.
	stored bool
	// prepared: all is made but the attachment of the namespace.
	prepared bool
	// shown: the host sees the device.
	shown bool
	// exhausted: it will not before another device goes.
	exhausted bool
}

func observe(p *pass) observed {
	if p.mirror == nil || p.waiting != "" && !p.sound {
		return observed{}
	}
	status := p.mirror.Status
	out := observed{stored: status.StorageAttached, shown: status.DPU.Attached && p.waiting == ""}
	out.prepared = out.stored && status.DPU.PreEmulated && !status.DPU.Attached
	out.exhausted = p.waiting == "" && status.DPU.Exhausted && !status.DPU.Attached
	return out
}

// ready reports whether it has come as far as it is to.
func (o observed) ready(hidden bool) bool { return o.shown || hidden && o.prepared }

func (o observed) warmth() storagev1alpha1.Warmth {
	switch {
	case o.shown:
		return storagev1alpha1.WarmthAttached
	case o.prepared:
		return storagev1alpha1.WarmthPreEmulated
	case o.stored:
		return storagev1alpha1.WarmthStorageAttached
	}
	return ""
}

// notYetShown is why a replica that is ready is not shown.
const notYetShown = "a replica is hidden from its host until it is promoted"

// report rebuilds the status from what was observed. The DPU's fields are there
// only while the DPU shows the device or has it prepared, so that status and
// conditions never contradict each other.
func report(a *storagev1alpha1.DPUVolumeAttachment, p *pass, outcome kube.Outcome) {
	conditions := kube.Conditions{List: &a.Status.Conditions, Generation: a.Generation}
	a.Status.ObservedGeneration = a.Generation
	seen := observe(p)
	a.Status.ControllerAttached, a.Status.DPUAttached, a.Status.Warmth = &seen.stored, &seen.shown, seen.warmth()
	a.Status.Message = messageOf(p, seen, outcome.Err)
	a.Status.DPU, a.Status.AttachmentMetadata, a.Status.Epoch = nil, nil, 0
	if seen.shown || seen.prepared {
		a.Status.DPU = dpuOf(p.mirror)
	}
	if seen.shown {
		a.Status.AttachmentMetadata = maps.Clone(p.mirror.Spec.Parameters)
		a.Status.Epoch = p.mirror.Status.DPU.Epoch
	}
	conditions.Whether(storagev1alpha1.ConditionControllerAttached, seen.stored, a.Status.Message)
	if seen.exhausted {
		conditions.False(storagev1alpha1.ConditionDPUAttached, storagev1alpha1.ReasonExhausted, a.Status.Message)
	} else {
		conditions.Whether(storagev1alpha1.ConditionDPUAttached, seen.shown, cmp.Or(a.Status.Message, notYetShown))
	}
	if p.hidden() || seen.prepared {
		conditions.Whether(storagev1alpha1.ConditionPreEmulated, seen.prepared, a.Status.Message)
	} else {
		meta.RemoveStatusCondition(&a.Status.Conditions, storagev1alpha1.ConditionPreEmulated)
	}
	reportMount(a, p, conditions)
	reportPath(a, p, conditions)
	if p.going {
		conditions.False(storagev1alpha1.ConditionDPUVolumeAttachmentReconciled, storagev1alpha1.ReasonAwaitingDeletion, p.waiting)
	} else {
		conditions.Reconciled(storagev1alpha1.ConditionDPUVolumeAttachmentReconciled, outcome)
	}
	last := storagev1alpha1.ConditionDPUAttached
	if p.hidden() && !seen.shown {
		last = storagev1alpha1.ConditionPreEmulated
	}
	conditions.Summarize(storagev1alpha1.ConditionReady, storagev1alpha1.ConditionDPUVolumeAttachmentReconciled,
		storagev1alpha1.ConditionControllerAttached, last)
}

// reportMount says how the host's mounts of the volume are, once one was dead.
func reportMount(a *storagev1alpha1.DPUVolumeAttachment, p *pass, conditions kube.Conditions) {
	if p.node == nil {
		return
	}
	switch dead := deadMountOf(p.node.Status.DeadMounts(), a.Spec.DPUVolumeName); {
	case dead != nil:
		conditions.False(storagev1alpha1.ConditionMountHealthy, storagev1alpha1.ReasonMountDead, fmt.Sprintf("%s; pods with this mount: %d", dead.Message, len(dead.Pods)))
	case meta.FindStatusCondition(a.Status.Conditions, storagev1alpha1.ConditionMountHealthy) != nil:
		conditions.True(storagev1alpha1.ConditionMountHealthy)
	}
}

// reportPath says how the way of the host's DPU to the storage is, once it was lost.
func reportPath(a *storagev1alpha1.DPUVolumeAttachment, p *pass, conditions kube.Conditions) {
	if p.node == nil {
		return
	}
	switch lost := p.node.Status.LostPath(a.Spec.DPUVolumeName); {
	case lost != nil:
		conditions.False(storagev1alpha1.ConditionPathHealthy, storagev1alpha1.ReasonPathLost, fmt.Sprintf("DPU %s: %s", p.dpu, lost.Message))
	case meta.FindStatusCondition(a.Status.Conditions, storagev1alpha1.ConditionPathHealthy) != nil:
		conditions.True(storagev1alpha1.ConditionPathHealthy)
	}
}

// deadMountOf is that of a volume; nil if there is none.
func deadMountOf(all []moorv1alpha1.DeadMount, volume string) *moorv1alpha1.DeadMount {
	i := slices.IndexFunc(all, func(d moorv1alpha1.DeadMount) bool { return d.Volume == volume })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// messageOf says what the attachment waits for; "" once it is ready.
func messageOf(p *pass, seen observed, failure error) string {
	switch {
	case p.waiting == "" && seen.ready(p.hidden()):
		return ""
	case p.waiting != "":
		return p.waiting
	case failure != nil:
		return failure.Error()
	case p.mirror == nil:
		return ""
	case !p.mirror.Status.StorageAttached && p.mirror.Status.StorageMessage != "":
		return p.mirror.Status.StorageMessage
	case !p.mirror.Status.StorageAttached:
		return "waiting for the vendor to attach the volume to DPU " + p.mirror.Spec.NodeName
	case p.mirror.Status.Message != "":
		return saidByDPU(p.mirror)
	case p.hidden():
		return "waiting for snap-node-driver on DPU " + p.mirror.Spec.NodeName + " to prepare the device"
	}
	return "waiting for snap-node-driver on DPU " + p.mirror.Spec.NodeName + " to show the device"
}

// saidByDPU is what the DPU says of the attachment, and which DPU that is; "" if it says
// nothing.
func saidByDPU(m *storagev1alpha1.VolumeAttachment) string {
	if m.Status.Message == "" || strings.Contains(m.Status.Message, "DPU "+m.Spec.NodeName) {
		return m.Status.Message
	}
	return "DPU " + m.Spec.NodeName + ": " + m.Status.Message
}

func dpuOf(m *storagev1alpha1.VolumeAttachment) *storagev1alpha1.AttachedDPU {
	dpu := m.Status.DPU
	out := &storagev1alpha1.AttachedDPU{PCIAddress: dpu.PCIDeviceAddress, FuncVUID: dpu.FuncVUID, DeviceName: dpu.DeviceName}
	if dpu.BdevAttrs != nil {
		out.NVMeAttrs = &storagev1alpha1.NVMeAttrs{NamespaceID: dpu.BdevAttrs.NVMeNsID, NamespaceUUID: dpu.BdevAttrs.NVMeUUID}
	}
	if dpu.FsdevAttrs != nil {
		out.VirtioFSAttrs = &storagev1alpha1.VirtioFSAttrs{FilesystemTag: dpu.FsdevAttrs.FilesystemTag}
	}
	return out
}

// detaching says that the attachment is on its way out.
func detaching(a *storagev1alpha1.DPUVolumeAttachment, message string) {
	conditions := kube.Conditions{List: &a.Status.Conditions, Generation: a.Generation}
	a.Status.Message = message
	conditions.False(storagev1alpha1.ConditionDPUVolumeAttachmentReconciled, storagev1alpha1.ReasonAwaitingDeletion, message)
	conditions.Summarize(storagev1alpha1.ConditionReady, storagev1alpha1.ConditionDPUVolumeAttachmentReconciled)
}
