package exposures

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Incarnation tells one run of the service from every other: a SNAP service makes
// its socket when it starts, so the socket's inode and the time when it was made
// belong to one process, whatever that can tell of itself. With the boot of the
// machine before it, as no process outlives that. "" if there is no socket now,
// which proves nothing.
func (e *Exposures) Incarnation(service string) string { return e.services.incarnation(service) }

// Remember has the service asked by which the device is on record as shown, even if
// it has no socket now: it may show the device nevertheless. One of an earlier boot
// of the machine has ended. It reports whether the service was unknown until now.
func (e *Exposures) Remember(shown *storagev1alpha1.VolumeAttachmentDPU) bool {
	return e.mayShow(shown) && e.services.add(shown.Provider)
}

// mayShow reports whether the service on record may show the device still.
func (e *Exposures) mayShow(shown *storagev1alpha1.VolumeAttachmentDPU) bool {
	return shown.Provider != "" && shown.Incarnation != "" && !e.services.endedByBoot(shown.Incarnation)
}

func (e *Exposures) rememberAll(all []storagev1alpha1.VolumeAttachment) bool {
	found := false
	for i := range all {
		found = e.Remember(&all[i].Status.DPU) || found
	}
	return found
}

// During runs act, which takes a device away, and names what had been sent for the device
// and may be on its way yet, for Undrained; "" if nothing is: the incarnation of the service
// by which it is on record as shown was there from begin to end, and so was its way to the
// storage. If it was not, what its function may have kept of the host's requests is discarded.
func (e *Exposures) During(ctx context.Context, shown *storagev1alpha1.VolumeAttachmentDPU, act func() error) (undrained string, err error) {
	e.Remember(shown)
	before, loss := e.Incarnation(shown.Provider), e.lossNow(ctx, shown)
	if err := act(); err != nil {
		return "", err
	}
	ended := before != shown.Incarnation || before != e.Incarnation(shown.Provider)
	if shown.KeptEpoch != nil || ended && (shown.Attached || shown.PreEmulated) {
		if err := e.discard(ctx, shown); err != nil {
			return "", err
		}
	}
	if ended {
		return shown.Incarnation, nil
	}
	if loss = cmp.Or(loss, e.lossNow(ctx, shown)); loss == "" {
		return "", nil
	}
	return shown.Incarnation + " " + loss, nil
}

// lossNow is Loss, after SNAP was asked once more: a way can be lost since it was looked at, and
// with it what SNAP had sent. While SNAP does not answer, that may have happened. A service that
// refuses to tell of ways never has told of one, and they are as what else watches them knows.
func (e *Exposures) lossNow(ctx context.Context, shown *storagev1alpha1.VolumeAttachmentDPU) string {
	if e.mayShow(shown) {
		if err := e.Look(ctx, shown); errors.Is(err, provisioner.ErrSilent) {
			return cmp.Or(e.ways.Loss(shown.DeviceName), "untold "+e.drain.clock.Now().UTC().Format(time.RFC3339Nano))
		}
	}
	return e.ways.Loss(shown.DeviceName)
}

// Look looks at the way of a device by the service on record, between the times at which ways are
// looked at: before it is shown, so that another connection is noticed, and when it is taken away.
// ErrSilent if the service does not answer; one that refuses to tell of ways is no error.
func (e *Exposures) Look(ctx context.Context, shown *storagev1alpha1.VolumeAttachmentDPU) error {
	if e.ways == (unwatched{}) {
		return nil
	}
	told, err := e.services.get(shown.Provider).Paths(ctx, []string{shown.DeviceName})
	for _, path := range told {
		e.ways.Seen(path)
	}
	switch {
	case errors.Is(err, provisioner.ErrSilent):
		return fmt.Errorf("look at the way of device %s: SNAP service %s: %w", shown.DeviceName, shown.Provider, err)
	case err != nil:
		ctrl.LoggerFrom(ctx).V(1).Info("the way of a device is not told", "device", shown.DeviceName, "reason", err.Error())
	}
	return nil
}

// Anew is told that what was sent for a device before now does not reach the storage any more.
func (e *Exposures) Anew(device string) { e.ways.Anew(device) }

// discard ends what the function on record may have kept for the host. No boot of the machine is
// outlived by it, and what is shown by virtio-fs is not kept.
func (e *Exposures) discard(ctx context.Context, shown *storagev1alpha1.VolumeAttachmentDPU) error {
	if shown.Provider == "" || shown.PCIDeviceAddress == "" || shown.BdevAttrs == nil || e.services.endedByBoot(shown.Incarnation) {
		return nil
	}
	if err := e.services.get(shown.Provider).Discard(ctx, shown.DeviceName, shown.PCIDeviceAddress); err != nil {
		return fmt.Errorf("SNAP service %s: %w", shown.Provider, err)
	}
	return nil
}

func (s *services) incarnation(name string) string {
	info, err := os.Stat(filepath.Join(s.root, name, socketName))
	if err != nil {
		return ""
	}
	inode := uint64(0)
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		inode = stat.Ino
	}
	// A chmod of the socket does not change the time of modification.
	return fmt.Sprintf("%s/%d-%d", s.boot, inode, info.ModTime().UnixNano())
}

// endedByBoot reports whether the machine has booted since.
func (s *services) endedByBoot(incarnation string) bool {
	boot, _, known := strings.Cut(incarnation, "/")
	return known && boot != "" && s.boot != "" && boot != s.boot
}

// add remembers the service, and reports whether it was unknown.
func (s *services) add(name string) bool {
	s.mu.Lock()
	known := s.used[name] != nil
	s.mu.Unlock()
	s.get(name)
	return !known
}
