package dpu

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/node/dpu/journal"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/writer"
)

// leaseRetry is how soon an attachment is looked at again that waits for the
// lease: the next heartbeat renews it, if anything does.
const leaseRetry = time.Second

// Lease says whether this DPU may show single-writer volumes now.
type Lease interface {
	// Permit is asked before the claim is read. What it allows is allowed
	// within one term.
	Permit() (term int64, ok bool)
	// Enter is asked last before SNAP is told to show; leave is called when
	// that call has ended.
	Enter(term int64) (leave func(), ok bool)
}

// right finds out whether this DPU may show a volume (pkg/writer), and takes away
// what it may not.
type right struct {
	attachments *attachments.Store
	exposures   *exposures.Exposures
	journal     *journal.Journal
	// lease is nil if this DPU gives none.
	lease Lease
}

// readClaim reads the volume's WriterClaim for this pass.
func (r right) readClaim(ctx context.Context, p *pass) error {
	claim, err := r.attachments.WriterClaim(ctx, p.volumeName())
	p.writerClaim, p.claimRead = claim, err == nil
	return err
}

// checkClaim finds out whether the volume may be shown here, by the claim as this
// pass has read it, and takes it away from the host if not.
func (r right) checkClaim(ctx context.Context, p *pass) error {
	single := writer.SingleWriter(p.attachment, p.volume)
	if p.replica() && (single || !p.attachment.ShownAsReplica()) {
		p.refused = writer.Refusal(r.attachments.Node, p.attachment, nil)
		return r.giveUp(ctx, p)
	}
	if !single {
		return nil
	}
	if !p.claimRead {
		if err := r.readClaim(ctx, p); err != nil {
			return err
		}
	}
	p.refused = writer.Refusal(r.attachments.Node, p.attachment, p.writerClaim)
	if p.refused == "" && p.volume != nil {
		p.refused = r.journal.Refusal(p.volume.UID, p.attachment.Spec.Epoch)
	}
	if p.refused == "" {
		return nil
	}
	return r.giveUp(ctx, p)
}

// giveUp takes away from the host what this DPU has no right to show. What is
// hidden already stays ready: it is what a replica is, and what a replica that is
// being promoted waits with.
func (r right) giveUp(ctx context.Context, p *pass) error {
	if p.dpu.DeviceName == "" {
		return nil
	}
	shown, err := r.exposures.List(ctx)
	if e := shown.Exposures[p.dpu.DeviceName]; err == nil && shown.Complete && e.Hidden {
		p.observe(e)
		return nil
	}
	if p.dpu.Attached {
		ctrl.LoggerFrom(ctx).Info("right to write lost, withdrawing", daemon.KeyEpoch, p.dpu.Epoch, "reason", p.refused)
	}
	// What was sent is asked for when the epoch is retired: the incarnation stays on record.
	if _, err := r.exposures.During(ctx, &p.dpu, func() error { return r.exposures.Withdraw(ctx, p.dpu.DeviceName) }); err != nil {
		return fmt.Errorf("%s; and it could not be taken away from the host: %w", p.refused, err)
	}
	p.withdrawn()
	p.dpu.KeptEpoch = nil
	return nil
}

// permit finds out whether the lease allows to show, before the claim is read:
// so what the claim says is newer than the renewal. What needs no claim needs no
// lease.
func (r right) permit(ctx context.Context, p *pass) error {
	if r.lease == nil || p.replica() || !writer.SingleWriter(p.attachment, p.volume) {
		return nil
	}
	var ok bool
	if p.term, ok = r.lease.Permit(); ok {
		return nil
	}
	p.correct(ctx, r.exposures) // it may have been withdrawn at the end of the lease
	if p.dpu.Attached {
		return p.wait(leaseRetry, "%s", p.attachment.Status.Message)
	}
	return p.wait(leaseRetry, "DPU %s has not renewed its lease: waits until its heartbeat is answered", r.attachments.Node)
}

// confirm reads attachment and claim from the API server, last before the
// exposure: what the cache shows may be over. If it is, the pass ends.
func (r right) confirm(ctx context.Context, p *pass) error {
	if err := r.permit(ctx, p); err != nil {
		return err
	}
	var now *storagev1alpha1.VolumeAttachment
	var both errgroup.Group
	both.Go(func() (err error) {
		if now, err = r.attachments.Again(ctx, p.attachment); err != nil {
			return fmt.Errorf("confirm that the attachment still stands: %w: %w", provisioner.ErrUnavailable, err)
		}
		return nil
	})
	if writer.SingleWriter(p.attachment, p.volume) && !p.replica() {
		both.Go(func() error { return r.readClaim(ctx, p) })
	}
	if err := both.Wait(); err != nil {
		return err
	}
	if !p.stands(now) {
		return p.outdated()
	}
	if err := r.checkClaim(ctx, p); err != nil || p.refused != "" {
		return err
	}
	if p.dpu.OpenEpoch != nil && !p.replica() && !p.shown() {
		p.refused = writer.Unfenced(now)
	}
	return nil
}

// stands reports whether the pass rests on what the API server says of the attachment now.
func (p *pass) stands(now *storagev1alpha1.VolumeAttachment) bool {
	return now != nil && now.Status.DPU.Provider == p.dpu.Provider && ptr.Equal(now.Status.DPU.KeptEpoch, p.dpu.KeptEpoch) &&
		writer.Stands(p.attachment, now, p.dpu.DeviceName)
}

// recovers reports whether the host may go on where an earlier incarnation of SNAP has left it:
// what the function on record may have kept is of the epoch of the attachment, and of no other,
// as the record says; and the journal says that the volume was shown here under this epoch last.
func (r right) recovers(p *pass) bool {
	if p.dpu.KeptEpoch == nil || *p.dpu.KeptEpoch != p.attachment.Spec.Epoch || p.dpu.PCIDeviceAddress == "" {
		return false
	}
	return p.keepsReady() || !writer.SingleWriter(p.attachment, p.volume) || r.journal.Stands(p.volume.UID, p.attachment.Spec.Epoch)
}

// stillHeld is asked when the controller is made anew, and is about to be resumed, which lets what
// the host had sent before reach the storage: it reads attachment and claim from the API server once
// more, as making it took its time. A right that is over is not resumed, and what was made is removed.
func (r right) stillHeld(ctx context.Context, p *pass) error {
	now, err := r.attachments.Again(ctx, p.attachment)
	if err != nil {
		return fmt.Errorf("confirm that the attachment still stands: %w: %w", provisioner.ErrUnavailable, err)
	}
	if !p.stands(now) {
		return fmt.Errorf("attachment %s has changed meanwhile: %w", p.attachment.Name, provisioner.ErrPrecondition)
	}
	if p.keepsReady() || !writer.SingleWriter(p.attachment, p.volume) {
		return nil
	}
	claim, err := r.attachments.WriterClaim(ctx, p.volumeName())
	if err != nil {
		return err
	}
	refused := writer.Refusal(r.attachments.Node, now, claim)
	if refused == "" {
		refused = r.journal.Refusal(p.volume.UID, p.attachment.Spec.Epoch)
	}
	if refused != "" {
		return fmt.Errorf("%s: %w", refused, provisioner.ErrPrecondition)
	}
	return nil
}

// expose has SNAP show the device, if the journal and the lease still allow it.
func (r right) expose(ctx context.Context, p *pass, service provisioner.DPU) (provisioner.Exposure, error) {
	granted := !p.keepsReady() && writer.SingleWriter(p.attachment, p.volume)
	spec := exposeSpec(p)
	if !p.dpu.Attached && granted { // from its first I/O on it shows if its way is made anew
		if err := r.exposures.Look(ctx, &p.dpu); err != nil {
			return provisioner.Exposure{}, err
		}
	}
	if r.recovers(p) { // before the journal notes anything
		spec.Recover = func(ctx context.Context) error { return r.stillHeld(ctx, p) }
	}
	if granted {
		if err := r.journal.Show(p.volume.UID, p.volumeName(), p.attachment.Spec.Epoch); err != nil {
			return provisioner.Exposure{}, err
		}
	}
	if r.lease != nil && granted {
		leave, ok := r.lease.Enter(p.term)
		if !ok {
			return provisioner.Exposure{}, fmt.Errorf("the lease of DPU %s ended just now: %w", r.attachments.Node, provisioner.ErrUnavailable)
		}
		defer leave()
	}
	return service.Expose(ctx, spec)
}
