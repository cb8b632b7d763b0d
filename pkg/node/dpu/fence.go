package dpu

import (
	"context"
	"errors"
	"fmt"
	"sync"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap"
	"github.com/moor-storage/moor/pkg/writer"
)

// underWay holds what ends each pass that may be ended early. A pass that takes
// a device away is not in it.
type underWay struct {
	mu  sync.Mutex
	end map[string]context.CancelFunc
}

func (u *underWay) begin(volumeID string, end context.CancelFunc) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.end[volumeID] = end
}

// finish takes the pass out: from here on nothing ends it early.
func (u *underWay) finish(volumeID string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.end, volumeID)
}

// interrupt ends a pass over the volume, if one is under way.
func (u *underWay) interrupt(volumeID string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if end := u.end[volumeID]; end != nil {
		end()
	}
}

// interruptAll ends every pass that may be ended early.
func (u *underWay) interruptAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, end := range u.end {
		end()
	}
}

// obeyFence takes a volume that is being fenced from this DPU away from the
// host, before anything else and whatever the vendor does, and retires the
// epoch. The status that is written then is the receipt: it says that the epoch
// is over here, so it is written only when every SNAP service has confirmed
// that it shows none of it.
func (r *Reconciler) obeyFence(ctx context.Context, p *pass) error {
	if !writer.SingleWriter(p.attachment, nil) {
		return nil // nothing was ever granted to it
	}
	if err := r.readClaim(ctx, p); err != nil {
		return err
	}
	if err := r.clearUp(ctx, p); err != nil || p.stop {
		return err
	}
	epoch := writer.FencedEpoch(r.o.Node, p.attachment, p.claim)
	if epoch == 0 || (epoch <= p.dpu.RetiredEpoch && !p.dpu.Attached) {
		return nil
	}
	return r.retire(ctx, p, epoch)
}

// clearUp takes away what this DPU may still show of a volume that was taken
// from it while it was silent, perhaps for an attachment that is gone, and says
// so by retiring that epoch. The storage stays closed to it until then.
func (r *Reconciler) clearUp(ctx context.Context, p *pass) error {
	epoch := writer.Uncleared(p.claim, r.o.Node, p.dpu.RetiredEpoch)
	if epoch == 0 {
		return nil
	}
	seen, err := r.o.Providers.list(ctx)
	if err == nil && !seen.complete {
		err = provisioner.ErrUnavailable
	}
	if err != nil {
		return fmt.Errorf("volume %s was taken from DPU %s under epoch %d while it was silent, and whether it still shows it cannot be told: %w", volumeName(p.attachment), r.o.Node, epoch, err)
	}
	others, err := r.ofOthers(ctx, p)
	if err != nil {
		return err
	}
	for device := range seen.exposures {
		if !others[snap.NQN(device)] {
			if err := r.hideFenced(ctx, p, device); err != nil {
				return err
			}
		}
	}
	return r.retire(ctx, p, epoch)
}

// ofOthers returns the devices which are known to be other volumes': by the
// attachments, as the API server has them, or by the plugins that can list.
// Those that do not answer only leave fewer to be spared.
func (r *Reconciler) ofOthers(ctx context.Context, p *pass) (map[string]bool, error) {
	all, err := r.liveAttachments(ctx)
	if err != nil {
		return nil, err
	}
	made, err := r.devices(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("not every plugin lists its devices", "reason", err.Error())
	}
	out := map[string]bool{}
	for _, d := range made {
		if d.volumeID != p.volumeID {
			out[snap.NQN(d.device)] = true
		}
	}
	for i := range all {
		if device := all[i].Status.DPU.DeviceName; device != "" {
			out[snap.NQN(device)] = volumeName(&all[i]) != volumeName(p.attachment)
		}
	}
	return out, nil
}

// retire withdraws the volume's devices, also those of other attachments of it,
// and notes that the epoch is over.
func (r *Reconciler) retire(ctx context.Context, p *pass, epoch int64) error {
	r.passes.finish(p.volumeID)
	ctrl.LoggerFrom(ctx).Info("the volume is being fenced from this DPU, withdrawing", daemon.KeyEpoch, epoch)
	devices, err := r.devicesOf(ctx, p)
	if err != nil {
		return err
	}
	for _, device := range devices {
		if err := r.hideFenced(ctx, p, device); err != nil {
			return err
		}
	}
	// A cache that was filled a moment ago may be behind what this DPU wrote
	// before it restarted: a receipt needs the API server's own word on which
	// device that was.
	now := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, r.o.Live, client.ObjectKeyFromObject(p.attachment), now)
	if err != nil || !found || now.UID != p.attachment.UID {
		return fmt.Errorf("volume %s is fenced from DPU %s, and its attachment cannot be read to confirm that (found: %v): %w", volumeName(p.attachment), r.o.Node, found, errors.Join(provisioner.ErrUnavailable, err))
	}
	if device := now.Status.DPU.DeviceName; device != p.dpu.DeviceName && device != "" {
		if err := r.hideFenced(ctx, p, device); err != nil {
			return err
		}
	}
	p.withdrawn()
	p.dpu.RetiredEpoch = max(p.dpu.RetiredEpoch, epoch)
	p.wait(fmt.Sprintf("volume %s was fenced from DPU %s: its host cannot reach it any more, epoch %d is over", volumeName(p.attachment), r.o.Node, epoch))
	return nil
}

func (r *Reconciler) hideFenced(ctx context.Context, p *pass, device string) error {
	if err := r.o.Providers.hide(ctx, device, ""); err != nil {
		return fmt.Errorf("volume %s is being fenced from DPU %s, and device %s could not be taken away from the host: %w", volumeName(p.attachment), r.o.Node, device, err)
	}
	return nil
}

// devicesOf returns the devices on record of the attachment's volume.
func (r *Reconciler) devicesOf(ctx context.Context, p *pass) ([]string, error) {
	all, err := r.attachments(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	if p.dpu.DeviceName != "" {
		out = append(out, p.dpu.DeviceName)
	}
	for i := range all {
		if d := all[i].Status.DPU.DeviceName; d != "" && d != p.dpu.DeviceName && volumeName(&all[i]) == volumeName(p.attachment) {
			out = append(out, d)
		}
	}
	return out, nil
}

// heed ends a pass that is under way over a volume which is being fenced from
// this DPU: the next one, which is queued already, withdraws it.
func (r *Reconciler) heed(claim *moorv1alpha1.WriterClaim) {
	if writer.FencedFrom(claim, r.o.Node) {
		r.passes.interrupt(volumeID(claim.Name))
	}
}
