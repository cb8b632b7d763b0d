package hostdev

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// deadState is what the kernel shows of a controller that it has given up
// (drivers/nvme/host/sysfs.c, nvme_sysfs_show_state).
const deadState = "dead"

// probeGrace is how long a driver may have a function and show no controller of
// it: the kernel links them before the driver has looked at the function.
const probeGrace = 2 * time.Second

// keeper gives a function to the nvme driver while its namespace is waited for,
// and once more, if the driver has given the function up: it looks at one by
// itself only when it gets it, which may have been before the DPU had put
// anything behind it.
type keeper struct {
	f *Finder
	// bare is since when the driver has the function without a controller.
	bare    time.Time
	rebound bool
}

// bind does nothing about a function that is not there, is not known for sure, or
// has a controller that lives.
func (k *keeper) bind(ctx context.Context, id Identity) error {
	addr, err := k.f.locate(id.Address, id.VUID)
	if errors.Is(err, ErrAbsent) || errors.Is(err, ErrAmbiguous) {
		return nil
	}
	if err != nil {
		return err
	}
	have, err := k.f.Driver(addr)
	switch {
	case errors.Is(err, ErrAbsent):
		return nil
	case err != nil:
		return err
	case have != nvmeDriver:
		return k.f.bind(ctx, addr, have, nvmeDriver)
	case k.rebound || !k.givenUp(addr):
		return nil
	}
	k.rebound = true
	return k.f.bind(ctx, addr, have, nvmeDriver)
}

// givenUp reports whether the driver has the function and does nothing with it.
func (k *keeper) givenUp(addr string) bool {
	controllers, err := os.ReadDir(k.f.device(addr, "nvme"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if len(controllers) == 0 {
		now := k.f.clock().Now()
		if k.bare.IsZero() {
			k.bare = now
		}
		return now.Sub(k.bare) >= probeGrace
	}
	k.bare = time.Time{}
	for _, c := range controllers {
		state, err := readTrimmed(filepath.Join(k.f.device(addr, "nvme"), c.Name(), "state"))
		if err != nil || state != deadState {
			return false
		}
	}
	return true
}
