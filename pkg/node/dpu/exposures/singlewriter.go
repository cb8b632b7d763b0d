package exposures

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap"
	"github.com/moor-storage/moor/pkg/writer"
)

// ShowsSingleWriter reports whether the host may see anything of a single-writer
// volume. It asks SNAP; the attachments in the cache only tell which volumes have
// many writers.
func (e *Exposures) ShowsSingleWriter(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	devices, err := e.singleWriter(ctx)
	return len(devices) > 0 || err != nil, err
}

// WithdrawSingleWriter takes every single-writer volume away from the host, by
// SNAP alone, and ends the passes that may be showing one. All devices are taken
// away at once: one that hangs must not hold up the others.
func (e *Exposures) WithdrawSingleWriter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	e.InterruptAll()
	devices, err := e.singleWriter(ctx)
	failures := make([]error, len(devices), len(devices)+1)
	var work sync.WaitGroup
	for i, device := range devices {
		work.Go(func() {
			if err := e.Withdraw(ctx, device); err != nil {
				failures[i] = fmt.Errorf("take device %s away from the host: %w", device, err)
			}
		})
	}
	work.Wait()
	return errors.Join(append(failures, err)...)
}

// singleWriter lists the devices that the host may see and that are not known to
// be those of volumes with many writers. A device whose function the host has not
// enumerated yet counts too. If a service does not answer, the error says so.
func (e *Exposures) singleWriter(ctx context.Context) ([]string, error) {
	shown, err := e.List(ctx)
	if err == nil && !shown.Complete {
		err = fmt.Errorf("find out what is shown on DPU %s: no SNAP service has a socket: %w", e.attachments.Node, provisioner.ErrUnavailable)
	}
	many := map[string]bool{}
	all, unread := e.attachments.Cached(ctx)
	if e.rememberAll(all) { // it may have no socket, and show a device nevertheless
		shown, err = e.List(ctx)
	}
	for i := range all {
		if device := all[i].Status.DPU.DeviceName; unread == nil && device != "" && !writer.SingleWriter(&all[i], nil) {
			many[snap.NQN(device)] = true
		}
	}
	var out []string
	for device, x := range shown.Exposures {
		ready := x.Hidden && x.Tag == "" // the host may be about to see a hidden virtio-fs device
		if !ready && !many[snap.NQN(device)] {
			out = append(out, device)
		}
	}
	return out, err
}
