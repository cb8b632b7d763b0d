package attachment

import (
	"cmp"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// sight is how far the device has come, as the mirror tells.
type sight struct {
	// stored: the vendor's storage lets the DPU use the volume.
	stored bool
	// prepared: all is made but the attachment of the namespace.
	prepared bool
	// shown: the host sees the device.
	shown bool
	// exhausted: it will not before another device goes.
	exhausted bool
}

func see(s *state) sight {
	if s.mirror == nil || s.waiting != "" && !s.sound {
		return sight{}
	}
	status := s.mirror.Status
	out := sight{stored: status.StorageAttached, shown: status.DPU.Attached && s.waiting == ""}
	out.prepared = out.stored && status.DPU.PreEmulated && !status.DPU.Attached
	out.exhausted = s.waiting == "" && status.DPU.Exhausted && !status.DPU.Attached
	return out
}

// ready reports whether it has come as far as it shall.
func (s sight) ready(hidden bool) bool { return s.shown || hidden && s.prepared }

func (s sight) warmth() storagev1alpha1.AttachmentWarmth {
	switch {
	case s.shown:
		return storagev1alpha1.AttachmentAttached
	case s.prepared:
		return storagev1alpha1.AttachmentPreEmulated
	case s.stored:
		return storagev1alpha1.AttachmentStorageAttached
	}
	return ""
}

// notYetShown is why a replica that is ready is not shown.
const notYetShown = "a replica is hidden from its host until it is promoted"

// report rebuilds the status from what was seen. The DPU's fields are there
// only while the DPU shows the device or has it prepared, so that status and
// conditions never contradict each other.
func report(a *storagev1alpha1.DPUVolumeAttachment, s *state, failure error) {
	conditions := kube.Conditions{List: &a.Status.Conditions, Generation: a.Generation}
	a.Status.ObservedGeneration = a.Generation
	seen := see(s)
	a.Status.ControllerAttached, a.Status.DPUAttached, a.Status.Warmth = &seen.stored, &seen.shown, seen.warmth()
	a.Status.Message = words(s, seen, failure)
	a.Status.DPU, a.Status.AttachmentMetadata, a.Status.Epoch = nil, nil, 0
	if seen.shown || seen.prepared {
		a.Status.DPU = dpuOf(s.mirror)
	}
	if seen.shown {
		a.Status.AttachmentMetadata = maps.Clone(s.mirror.Spec.Parameters)
		a.Status.Epoch = s.mirror.Status.DPU.Epoch
	}
	conditions.Whether(storagev1alpha1.ConditionControllerAttached, seen.stored, a.Status.Message)
	if seen.exhausted {
		conditions.False(storagev1alpha1.ConditionDPUAttached, storagev1alpha1.ReasonExhausted, a.Status.Message)
	} else {
		conditions.Whether(storagev1alpha1.ConditionDPUAttached, seen.shown, cmp.Or(a.Status.Message, notYetShown))
	}
	if s.hidden() || seen.prepared {
		conditions.Whether(storagev1alpha1.ConditionPreEmulated, seen.prepared, a.Status.Message)
	} else {
		meta.RemoveStatusCondition(&a.Status.Conditions, storagev1alpha1.ConditionPreEmulated)
	}
	if s.going {
		conditions.False(storagev1alpha1.ConditionDPUVolumeAttachmentReconciled, storagev1alpha1.ReasonAwaitingDeletion, s.waiting)
	} else {
		outcome := kube.Outcome{Message: s.waiting, Err: failure}
		if failure != nil {
			outcome.Message = failure.Error()
		}
		conditions.Reconciled(storagev1alpha1.ConditionDPUVolumeAttachmentReconciled, outcome)
	}
	last := storagev1alpha1.ConditionDPUAttached
	if s.hidden() && !seen.shown {
		last = storagev1alpha1.ConditionPreEmulated
	}
	conditions.Summarize(storagev1alpha1.ConditionReady, storagev1alpha1.ConditionDPUVolumeAttachmentReconciled,
		storagev1alpha1.ConditionControllerAttached, last)
}

// words says what the attachment waits for; "" once it is ready.
func words(s *state, seen sight, failure error) string {
	switch {
	case s.waiting == "" && seen.ready(s.hidden()):
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
	case s.hidden():
		return "waiting for snap-node-driver on DPU " + s.mirror.Spec.NodeName + " to prepare the device"
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
