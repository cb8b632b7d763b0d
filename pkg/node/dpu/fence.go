package dpu

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/devices"
	"github.com/moor-storage/moor/pkg/node/dpu/journal"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap"
	"github.com/moor-storage/moor/pkg/writer"
)

// fence takes away what is being taken from this DPU, and retires the epoch.
type fence struct {
	right
	devices *devices.Devices
}

// obey takes a volume that is being fenced from this DPU away from the host,
// before anything else and whatever the vendor does, and retires the epoch. The
// status that is written then is the receipt: it says that the epoch is over
// here, so it is written only when every SNAP service has confirmed that it shows
// none of it.
func (f fence) obey(ctx context.Context, p *pass) error {
	if !writer.SingleWriter(p.attachment, nil) {
		return nil // nothing was ever granted to it
	}
	if err := f.readClaim(ctx, p); err != nil {
		return err
	}
	if epoch := writer.LostEpoch(f.attachments.Node, p.attachment, p.writerClaim); epoch > p.dpu.ClearedEpoch || epoch > 0 && p.dpu.Attached {
		if err := f.endAll(ctx, p, epoch); err != nil {
			return err
		}
		p.dpu.ClearedEpoch = max(p.dpu.ClearedEpoch, epoch)
		return f.ended(ctx, p, epoch)
	}
	if err := f.clearUp(ctx, p); err != nil {
		return err
	}
	if err := f.overtaken(ctx, p); err != nil {
		return err
	}
	epoch := writer.FencedEpoch(f.attachments.Node, p.attachment, p.writerClaim)
	if epoch == 0 || (epoch <= p.dpu.RetiredEpoch && !p.dpu.Attached) {
		return nil
	}
	return f.retire(ctx, p, epoch)
}

// interrupt ends a pass that is under way over a volume which is being fenced from
// this DPU: the next one, which is queued already, withdraws it.
func (f fence) interrupt(claim *moorv1alpha1.WriterClaim) {
	if writer.FencedFrom(claim, f.attachments.Node) {
		f.exposures.Interrupt(attachments.VolumeID(claim.Name))
	}
}

// clearUp takes away what this DPU may still show of a volume that was taken
// from it while it was silent, perhaps for an attachment that is gone, and says
// so by retiring that epoch. The storage stays closed to it until then.
func (f fence) clearUp(ctx context.Context, p *pass) error {
	epoch := writer.Uncleared(p.writerClaim, f.attachments.Node, p.dpu.RetiredEpoch)
	if epoch == 0 {
		return nil
	}
	if err := f.clearAll(ctx, p, epoch); err != nil {
		return err
	}
	return f.retire(ctx, p, epoch)
}

// overtaken retires all epochs that the journal tells of, if the one that is granted now is
// among them: the cluster of the DPUs was restored from a backup. snap-host-controller, which
// may know of none of them, reads that and grants anew, above. What is on record of the
// devices may be lost as well, so all that is shown is looked at.
func (f fence) overtaken(ctx context.Context, p *pass) error {
	uid := volumeUID(p.writerClaim)
	if uid == "" || writer.Refusal(f.attachments.Node, p.attachment, p.writerClaim) != "" {
		return nil
	}
	refused := f.journal.Refusal(uid, p.attachment.Spec.Epoch)
	if refused == "" {
		return nil
	}
	epoch := f.journal.Highest(uid)
	if err := f.endAll(ctx, p, epoch); err != nil {
		return err
	}
	f.note(ctx, p, epoch)
	return p.wait(0, "%s", refused)
}

// spent retires the epoch that is granted if the storage says that it is over: it was fenced, and the
// cluster of the DPUs was restored from a backup of before. No other word of that may come, since the
// claim stands; the next grant is above. Any other failure stays one.
func (f fence) spent(ctx context.Context, p *pass, failure error) error {
	if !errors.Is(failure, provisioner.ErrPrecondition) {
		return failure
	}
	epoch := p.attachment.Spec.Epoch
	if err := f.endAll(ctx, p, epoch); err != nil {
		return err
	}
	f.note(ctx, p, epoch)
	return p.wait(0, "epoch %d of volume %s is given back, since the storage refuses it: %s", epoch, p.volumeName(), failure)
}

// endAll is end where what is on record of the volume's devices may be lost.
func (f fence) endAll(ctx context.Context, p *pass, epoch int64) error {
	p.unrecorded()
	if err := f.clearAll(ctx, p, epoch); err != nil {
		return err
	}
	return f.end(ctx, p, epoch)
}

// clearUnrecorded takes away all that is shown where what is on record of the volume's devices
// may be lost, and waits until nothing of it is on its way.
func (f fence) clearUnrecorded(ctx context.Context, p *pass, epoch int64) error {
	p.unrecorded()
	if err := f.clearAll(ctx, p, epoch); err != nil {
		return err
	}
	return p.drained(f.exposures)
}

// clearLost is obey for an attachment that goes, if its claim was lost: what the attachment
// has on record, and was taken away, is not enough then.
func (f fence) clearLost(ctx context.Context, p *pass) error {
	if !writer.SingleWriter(p.attachment, nil) {
		return nil
	}
	if err := f.readClaim(ctx, p); err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("whether a fence waits is not known", "reason", err.Error())
		return nil
	}
	epoch := writer.LostEpoch(f.attachments.Node, p.attachment, p.writerClaim)
	if epoch <= p.dpu.ClearedEpoch {
		return nil
	}
	if err := f.clearUnrecorded(ctx, p, epoch); err != nil {
		return err
	}
	p.dpu.ClearedEpoch = epoch
	return nil
}

// forgotten returns the epoch under which the volume was shown here, as the journal tells, and
// of which an attachment has no device on record, or none of that epoch; 0 if there
// is none. The cluster of the DPUs was restored from a backup of before.
func (f fence) forgotten(a *storagev1alpha1.VolumeAttachment, device string) int64 {
	epoch := f.journal.Standing()[a.VolumeName()]
	if a.Spec.Epoch == 0 || device != "" && epoch <= a.Spec.Epoch {
		return 0
	}
	return epoch
}

// clearForgotten is clearLost for an epoch that was forgotten, unless another attachment of
// the volume has it: then the device is that one's.
func (f fence) clearForgotten(ctx context.Context, p *pass, epoch int64) error {
	if epoch == 0 {
		return nil
	}
	all, err := f.attachments.Live(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		if a := &all[i]; a.Name != p.attachment.Name && a.VolumeName() == p.volumeName() && a.Spec.Epoch >= epoch {
			return nil
		}
	}
	if err := f.clearUnrecorded(ctx, p, epoch); err != nil {
		return err
	}
	f.note(ctx, p, epoch)
	return nil
}

// awaited reports whether a claim that was lost waits for the word of this DPU about an
// attachment that goes, as far as the cache knows. No other DPU can give it, also if this DPU
// has never touched the attachment.
func (f fence) awaited(ctx context.Context, a *storagev1alpha1.VolumeAttachment) bool {
	claim := &moorv1alpha1.WriterClaim{}
	key := types.NamespacedName{Namespace: a.Namespace, Name: a.VolumeName()}
	found, err := kube.Find(ctx, f.attachments.DPU.Client, key, claim)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("whether a claim that was lost waits is not known", "reason", err.Error())
	}
	return found && writer.LostEpoch(f.attachments.Node, a, claim) > a.Status.DPU.ClearedEpoch
}

// clearAll takes away all that this DPU shows and that is not known to be another volume's.
func (f fence) clearAll(ctx context.Context, p *pass, epoch int64) error {
	shown, err := f.exposures.List(ctx)
	if err == nil && !shown.Complete {
		err = provisioner.ErrUnavailable
	}
	if err != nil {
		return fmt.Errorf("volume %s was taken from DPU %s under epoch %d, and whether it still shows it cannot be told: %w", p.volumeName(), f.attachments.Node, epoch, err)
	}
	others, err := f.ofOthers(ctx, p)
	if err != nil {
		return err
	}
	for device := range shown.Exposures {
		if !others[snap.NQN(device)] {
			if err := f.withdraw(ctx, p, device); err != nil {
				return err
			}
		}
	}
	return nil
}

// ofOthers returns the devices which are known to be other volumes': by the
// attachments, as the API server has them, or by the plugins that can list.
// Those that do not answer only leave fewer to be spared.
func (f fence) ofOthers(ctx context.Context, p *pass) (map[string]bool, error) {
	all, err := f.attachments.Live(ctx)
	if err != nil {
		return nil, err
	}
	made, err := f.devices.List(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("not every plugin lists its devices", "reason", err.Error())
	}
	out := map[string]bool{}
	for _, d := range made {
		if d.VolumeID != p.volumeID {
			out[snap.NQN(d.Device)] = true
		}
	}
	for i := range all {
		if device := all[i].Status.DPU.DeviceName; device != "" {
			out[snap.NQN(device)] = all[i].VolumeName() != p.volumeName()
		}
	}
	return out, nil
}

// retire ends the volume's devices and notes that the epoch is over; so is one that was
// forgotten, for whose device it is not enough to end what is on record.
func (f fence) retire(ctx context.Context, p *pass, epoch int64) error {
	if err := f.end(ctx, p, epoch); err != nil {
		return err
	}
	return f.ended(ctx, p, max(epoch, p.forgotten))
}

// ended notes that the epoch is over, and ends the pass.
func (f fence) ended(ctx context.Context, p *pass, epoch int64) error {
	f.note(ctx, p, epoch)
	return p.wait(0, "volume %s was fenced from DPU %s: its host cannot reach it any more, epoch %d is over", p.volumeName(), f.attachments.Node, epoch)
}

// note notes that the epoch is over, for the status and in the journal.
func (f fence) note(ctx context.Context, p *pass, epoch int64) {
	p.dpu.RetiredEpoch = max(p.dpu.RetiredEpoch, epoch)
	noteRetired(ctx, f.journal, p, volumeUID(p.writerClaim))
}

// end withdraws the volume's devices, also those of other attachments of it.
func (f fence) end(ctx context.Context, p *pass, epoch int64) error {
	f.exposures.Finish(p.volumeID)
	ctrl.LoggerFrom(ctx).Info("the volume is being taken from this DPU, withdrawing", daemon.KeyEpoch, epoch)
	recorded, err := f.recorded(ctx, p)
	if err != nil {
		return err
	}
	for i := range recorded {
		if err := f.withdrawRecorded(ctx, p, &recorded[i]); err != nil {
			return err
		}
	}
	// A cache that was filled a moment ago may be behind what this DPU wrote
	// before it restarted: for a receipt the API server itself has to say which
	// device that was, and of which service.
	now, err := f.attachments.Again(ctx, p.attachment)
	if err != nil || now == nil {
		return fmt.Errorf("volume %s is fenced from DPU %s, and its attachment cannot be read to confirm that: %w", p.volumeName(), f.attachments.Node, errors.Join(provisioner.ErrUnavailable, err))
	}
	if on := &now.Status.DPU; on.DeviceName != "" && (on.DeviceName != p.dpu.DeviceName || on.Provider != p.dpu.Provider || on.Incarnation != p.dpu.Incarnation || on.Undrained != p.dpu.Undrained || !ptr.Equal(on.KeptEpoch, p.dpu.KeptEpoch)) {
		if err := f.withdrawRecorded(ctx, p, on); err != nil {
			return err
		}
	}
	if p.forgotten = f.forgotten(now, now.Status.DPU.DeviceName); p.forgotten != 0 {
		p.unrecorded()
		if err := f.clearAll(ctx, p, p.forgotten); err != nil {
			return err
		}
	}
	p.withdrawn()
	p.dpu.Incarnation, p.dpu.KeptEpoch = "", nil
	return p.drained(f.exposures)
}

// withdrawRecorded takes a device on record away from the host; the service by which
// it was shown has to confirm that, too.
func (f fence) withdrawRecorded(ctx context.Context, p *pass, on *storagev1alpha1.VolumeAttachmentDPU) error {
	undrained, err := f.exposures.During(ctx, on, func() error { return f.withdraw(ctx, p, on.DeviceName) })
	if err == nil {
		p.ended(on, undrained)
	}
	return err
}

// volumeUID is the UID of the volume that the claim is of, which owns it; "" if it is not
// known.
func volumeUID(claim *moorv1alpha1.WriterClaim) types.UID {
	if claim != nil {
		for _, owner := range claim.OwnerReferences {
			if owner.Kind == "Volume" && owner.Name == claim.Name {
				return owner.UID
			}
		}
	}
	return ""
}

// noteRetired puts the epoch that is over into the journal. The receipt does not wait for
// that: it is true without it.
func noteRetired(ctx context.Context, j *journal.Journal, p *pass, uid types.UID) {
	if err := j.Retire(uid, p.volumeName(), p.dpu.RetiredEpoch); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "note that an epoch is over", daemon.KeyEpoch, p.dpu.RetiredEpoch)
	}
}

func (f fence) withdraw(ctx context.Context, p *pass, device string) error {
	if err := f.exposures.Withdraw(ctx, device); err != nil {
		return fmt.Errorf("volume %s is being fenced from DPU %s, and device %s could not be taken away from the host: %w", p.volumeName(), f.attachments.Node, device, err)
	}
	return nil
}

// recorded returns what is on record of the devices of the attachment's volume.
func (f fence) recorded(ctx context.Context, p *pass) ([]storagev1alpha1.VolumeAttachmentDPU, error) {
	all, err := f.attachments.Cached(ctx)
	if err != nil {
		return nil, err
	}
	var out []storagev1alpha1.VolumeAttachmentDPU
	if p.dpu.DeviceName != "" {
		out = append(out, p.dpu)
	}
	for i := range all {
		if on := all[i].Status.DPU; on.DeviceName != "" && all[i].Name != p.attachment.Name && all[i].VolumeName() == p.volumeName() {
			out = append(out, on)
		}
	}
	return out, nil
}
