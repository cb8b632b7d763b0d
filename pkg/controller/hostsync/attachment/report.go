package attachment

import (
	"maps"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// report rebuilds the status from what was seen. The DPU's fields are there
// only while the DPU shows the device, so that status and conditions never
// contradict each other.
func report(a *storagev1alpha1.DPUVolumeAttachment, s *state, failure error) {
	conditions := kube.Conditions{List: &a.Status.Conditions, Generation: a.Generation}
	a.Status.ObservedGeneration = a.Generation
	stored, shown := false, false
	if s.mirror != nil && s.waiting == "" {
		stored, shown = s.mirror.Status.StorageAttached, s.mirror.Status.DPU.Attached
	}
	a.Status.ControllerAttached, a.Status.DPUAttached = &stored, &shown
	a.Status.Message = words(s, shown, failure)
	a.Status.DPU, a.Status.AttachmentMetadata, a.Status.Epoch = nil, nil, 0
	if shown {
		a.Status.DPU = dpuOf(s.mirror)
		a.Status.AttachmentMetadata = maps.Clone(s.mirror.Spec.Parameters)
		a.Status.Epoch = s.mirror.Status.DPU.Epoch
	}
	set(conditions, storagev1alpha1.ConditionControllerAttached, stored, a.Status.Message)
	set(conditions, storagev1alpha1.ConditionDPUAttached, shown, a.Status.Message)
	switch {
	case failure != nil:
		conditions.False(storagev1alpha1.ConditionDPUVolumeAttachmentReconciled, storagev1alpha1.ReasonError, failure.Error())
	case s.waiting != "":
		conditions.False(storagev1alpha1.ConditionDPUVolumeAttachmentReconciled, storagev1alpha1.ReasonPending, s.waiting)
	default:
		conditions.True(storagev1alpha1.ConditionDPUVolumeAttachmentReconciled)
	}
	conditions.Summarize(storagev1alpha1.ConditionReady, storagev1alpha1.ConditionDPUVolumeAttachmentReconciled,
		storagev1alpha1.ConditionControllerAttached, storagev1alpha1.ConditionDPUAttached)
}

// words says what the attachment waits for; "" once it is shown.
func words(s *state, shown bool, failure error) string {
	switch {
	case shown:
		return ""
	case s.waiting != "":
		return s.waiting
	case failure != nil:
		return failure.Error()
	case s.mirror == nil:
		return ""
	case !s.mirror.Status.StorageAttached && s.mirror.Status.StorageMessage != "":
		return s.mirror.Status.StorageMessage
	case !s.mirror.Status.StorageAttached:
		return "waiting for the vendor to attach the volume to DPU " + s.mirror.Spec.NodeName
	case s.mirror.Status.Message != "":
		return s.mirror.Status.Message
	}
	return "waiting for snap-node-driver on DPU " + s.mirror.Spec.NodeName + " to show the device"
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
func detaching(a *storagev1alpha1.DPUVolumeAttachment, words string) {
	conditions := kube.Conditions{List: &a.Status.Conditions, Generation: a.Generation}
	a.Status.Message = words
	conditions.False(storagev1alpha1.ConditionDPUVolumeAttachmentReconciled, storagev1alpha1.ReasonAwaitingDeletion, words)
	conditions.Summarize(storagev1alpha1.ConditionReady, storagev1alpha1.ConditionDPUVolumeAttachmentReconciled)
}

func set(c kube.Conditions, kind string, ok bool, words string) {
	if ok {
		c.True(kind)
		return
	}
	c.False(kind, storagev1alpha1.ReasonPending, words)
}
