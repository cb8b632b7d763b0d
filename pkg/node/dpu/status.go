package dpu

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap"
)

// pass is one look at one attachment.
type pass struct {
	attachment *storagev1alpha1.VolumeAttachment
	// volume is nil if it is not known.
	volume *storagev1alpha1.Volume
	// volumeID is what the vendor's plugin calls the volume: the name of the
	// vendor's claim. "" if the attachment names no volume.
	volumeID string
	// vendor is the volume's plugin, once it was found.
	vendor *vendor
	// claim is the volume's as this pass has read it; nil if there is none. known:
	// it was read.
	claim *moorv1alpha1.WriterClaim
	known bool
	// refused says why the volume may not be shown here; "" if it may.
	refused string

	// term is that of the lease under which the claim was read.
	term int64

	// dpu and message are the status to write.
	dpu     storagev1alpha1.VolumeAttachmentDPU
	message string
	// stop ends the pass without an error: something is waited for.
	stop bool
	// again is when to look again where no watch tells.
	again time.Duration
}

func newPass(attachment *storagev1alpha1.VolumeAttachment) *pass {
	p := &pass{attachment: attachment, dpu: *attachment.Status.DPU.DeepCopy()}
	p.dpu.Exhausted = false // for each pass to find out
	if volume := volumeName(attachment); volume != "" {
		p.volumeID = volumeID(volume)
	}
	return p
}

// volumeID is what a vendor's plugin calls a volume.
func volumeID(volume string) string { return kube.ClaimName(volume) }

// keys are what nobody else may work on during the pass.
func (p *pass) keys() []string {
	out := []string{volumeKey(p.volumeID)}
	if p.dpu.DeviceName != "" {
		out = append(out, deviceKey(p.dpu.DeviceName))
	}
	return out
}

func volumeKey(volumeID string) string { return "volume/" + volumeID }
func deviceKey(device string) string   { return "device/" + snap.NQN(device) }

// wait ends the pass with words for the user.
func (p *pass) wait(words string) {
	p.message, p.stop = words, true
}

// outdated ends a pass whose attachment the cache showed as it was. What it
// lacks is on its way and brings the next pass, so that nothing is said of it.
func (p *pass) outdated() {
	p.wait(p.attachment.Status.Message)
	p.again = staleRetry
}

// keepBack leaves the words of a pass that has changed nothing unwritten while
// the attachment is new, and has it looked at again when it is not.
func (p *pass) keepBack(now time.Time) {
	if p.message == p.attachment.Status.Message || !equality.Semantic.DeepEqual(p.dpu, p.attachment.Status.DPU) {
		return
	}
	// A server whose clock is ahead shall not make it longer than grace.
	wait := min(grace, grace-now.Sub(p.attachment.CreationTimestamp.Time))
	if wait <= 0 {
		return
	}
	p.message = p.attachment.Status.Message
	if p.again == 0 || wait < p.again {
		p.again = wait
	}
}

// withdrawn notes that the host does not see the device, and that nothing of it
// stands ready. What identifies it is kept, so that it comes back the same.
func (p *pass) withdrawn() {
	p.dpu.Attached, p.dpu.PreEmulated, p.dpu.Epoch = false, false, 0
}

// see notes what the host sees, or what stands ready for it.
func (p *pass) see(e provisioner.Exposure) {
	p.withdrawn()
	p.dpu.Attached, p.dpu.PreEmulated = e.Visible, e.Hidden
	if e.Visible {
		p.dpu.Epoch = p.attachment.Spec.Epoch
	}
	p.dpu.PCIDeviceAddress, p.dpu.FuncVUID = e.PCIAddress, e.VUID
	if e.Tag != "" {
		p.dpu.BdevAttrs, p.dpu.FsdevAttrs = nil, &storagev1alpha1.FsdevAttrs{FilesystemTag: e.Tag}
		return
	}
	p.dpu.FsdevAttrs = nil
	p.dpu.BdevAttrs = &storagev1alpha1.BdevAttrs{NVMeNsID: e.NamespaceID, NVMeUUID: e.UUID}
}

// report writes the status, if it differs.
func (r *Reconciler) report(ctx context.Context, p *pass, failure error) error {
	if failure != nil {
		p.message = failure.Error()
	}
	was := p.attachment.Status.DPU
	wrote, err := kube.PatchStatus(ctx, r.o.Client, p.attachment, func(a *storagev1alpha1.VolumeAttachment) {
		a.Status.DPU, a.Status.Message = p.dpu, p.message
	})
	if wrote && (was.Attached != p.dpu.Attached || was.PreEmulated != p.dpu.PreEmulated || was.RetiredEpoch != p.dpu.RetiredEpoch) {
		ctrl.LoggerFrom(ctx).Info("attachment changed", "attached", p.dpu.Attached, "ready", p.dpu.PreEmulated, "function", p.dpu.PCIDeviceAddress,
			daemon.KeyEpoch, p.dpu.Epoch, "retired", p.dpu.RetiredEpoch)
		r.tellChange()
	}
	return err
}
