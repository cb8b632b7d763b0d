package fleet

import (
	"fmt"
	"hash/fnv"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/writer"
)

// answer is what a DPU writes about one attachment: the finalizer comes before the
// first effect, and goes after the last.
type answer struct {
	hold, release bool
	status        storagev1alpha1.VolumeAttachmentDPU
}

// answerTo is what the DPU of an attachment does, given its claim (nil: there is
// none), as pkg/node/dpu does it with SNAP and a vendor that never fail.
func answerTo(a *storagev1alpha1.VolumeAttachment, claim *moorv1alpha1.WriterClaim) answer {
	out := answer{status: a.Status.DPU}
	held := slices.Contains(a.Finalizers, storagev1alpha1.FinalizerDPUAttachment)
	if !a.DeletionTimestamp.IsZero() {
		out.status = withdrawn(out.status, a.Spec.Epoch)
		out.release = held
		return out
	}
	single := writer.SingleWriter(a, nil)
	if epoch := writer.FencedEpoch(a.Spec.NodeName, a, claim); single && epoch != 0 {
		out.status = withdrawn(out.status, epoch)
		return out
	}
	if !a.Status.StorageAttached {
		return out
	}
	out.hold = !held
	if single && writer.Refusal(a.Spec.NodeName, a, claim) != "" {
		return out
	}
	if !out.status.Attached || out.status.Epoch != a.Spec.Epoch {
		out.status = shown(a)
	}
	return out
}

// letGo reports whether the DPU of an attachment that goes has nothing to do with it any
// more.
func letGo(a *storagev1alpha1.VolumeAttachment) bool {
	return !a.DeletionTimestamp.IsZero() && !a.Status.DPU.Attached && !slices.Contains(a.Finalizers, storagev1alpha1.FinalizerDPUAttachment)
}

// withdrawn is a status after the device was taken away and an epoch was retired.
func withdrawn(s storagev1alpha1.VolumeAttachmentDPU, epoch int64) storagev1alpha1.VolumeAttachmentDPU {
	return storagev1alpha1.VolumeAttachmentDPU{DeviceName: s.DeviceName, Capacity: s.Capacity, RetiredEpoch: max(s.RetiredEpoch, epoch)}
}

// shown is a status with the device of an attachment, on a function by its name.
func shown(a *storagev1alpha1.VolumeAttachment) storagev1alpha1.VolumeAttachmentDPU {
	hash := fnv.New32a()
	hash.Write([]byte(a.Name))
	function := hash.Sum32() % functions
	address := fmt.Sprintf("3b:%02x.%x", function/8, function%8)
	return storagev1alpha1.VolumeAttachmentDPU{
		Attached: true, PCIDeviceAddress: address, DeviceName: "moor-" + a.Name, Capacity: a.Spec.Capacity,
		FuncVUID:  "MT2333XZ0VJKNVMES0D0F0",
		BdevAttrs: &storagev1alpha1.BdevAttrs{NVMeNsID: 1, NVMeUUID: string(types.UID(uuid(a.Name)))},
		Epoch:     a.Spec.Epoch, RetiredEpoch: a.Status.DPU.RetiredEpoch,
	}
}

// uuid is one that belongs to a name.
func uuid(name string) string {
	hash := fnv.New128a()
	hash.Write([]byte(name))
	x := hash.Sum(nil)
	return fmt.Sprintf("%x-%x-%x-%x-%x", x[0:4], x[4:6], x[6:8], x[8:10], x[10:16])
}
