package dpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap"
	"github.com/moor-storage/moor/pkg/writer"
)

// leaseRetry is how soon an attachment is looked at again that waits for the
// lease: the next beat renews it, if anything does.
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

// permit finds out whether the lease allows to show, before the claim is read:
// so what the claim says is newer than the renewal. What needs no claim needs no
// lease.
func (r *Reconciler) permit(ctx context.Context, p *pass) bool {
	if r.o.Lease == nil || replica(p.attachment) || !writer.SingleWriter(p.attachment, p.volume) {
		return true
	}
	var ok bool
	if p.term, ok = r.o.Lease.Permit(); ok {
		return true
	}
	r.look(ctx, p) // it may have been withdrawn at the end of the lease
	words := p.attachment.Status.Message
	if !p.dpu.Attached {
		words = fmt.Sprintf("DPU %s has not renewed its lease: waits until its heartbeat is answered", r.o.Node)
	}
	p.wait(words)
	p.again = leaseRetry
	return false
}

// expose has SNAP show the device, if the lease still allows it.
func (r *Reconciler) expose(ctx context.Context, p *pass, provider provisioner.DPU) (provisioner.Exposure, error) {
	if r.o.Lease != nil && !p.keepsReady() && writer.SingleWriter(p.attachment, p.volume) {
		leave, ok := r.o.Lease.Enter(p.term)
		if !ok {
			return provisioner.Exposure{}, fmt.Errorf("the lease of DPU %s ended just now: %w", r.o.Node, provisioner.ErrUnavailable)
		}
		defer leave()
	}
	return provider.Expose(ctx, exposeSpec(p))
}

// Shown reports whether the host may see anything of a single-writer volume. It
// asks SNAP; of what SNAP shows the cache only says what is harmless.
func (r *Reconciler) Shown(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	devices, err := r.leased(ctx)
	return len(devices) > 0 || err != nil, err
}

// leased lists the devices that the host may see and that are not known to be
// those of volumes with many writers. What waits for the host to enumerate its
// function counts too. If a service does not answer, the error says so.
func (r *Reconciler) leased(ctx context.Context) ([]string, error) {
	seen, err := r.o.Providers.list(ctx)
	if err == nil && !seen.complete {
		err = fmt.Errorf("find out what is shown on DPU %s: no SNAP service has a socket: %w", r.o.Node, provisioner.ErrUnavailable)
	}
	many := map[string]bool{}
	all, unread := r.attachments(ctx)
	for i := range all {
		if device := all[i].Status.DPU.DeviceName; unread == nil && device != "" && !writer.SingleWriter(&all[i], nil) {
			many[snap.NQN(device)] = true
		}
	}
	var out []string
	for device, e := range seen.exposures {
		ready := e.Hidden && e.Tag == "" // of virtio-fs the host may be about to see it
		if !ready && !many[snap.NQN(device)] {
			out = append(out, device)
		}
	}
	return out, err
}

// WithdrawAll takes every single-writer volume away from the host, by SNAP alone,
// and ends what is at work on showing one. All at once: one that hangs shall not
// keep the others.
func (r *Reconciler) WithdrawAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	r.passes.interruptAll()
	devices, err := r.leased(ctx)
	failures := make([]error, len(devices), len(devices)+1)
	var work sync.WaitGroup
	for i, device := range devices {
		work.Go(func() {
			if err := r.o.Providers.hide(ctx, device, ""); err != nil {
				failures[i] = fmt.Errorf("take device %s away from the host: %w", device, err)
			}
		})
	}
	work.Wait()
	return errors.Join(append(failures, err)...)
}

// LeaseChanged asks for a beat at once, which carries the lease.
func (r *Reconciler) LeaseChanged() { r.tellChange() }
