package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/node/hostprobe"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/spf13/pflag"
)

// hostLink is how the DPU probes its host.
type hostLink struct {
	address string
	limits  hostprobe.Limits
}

func (l *hostLink) bind(fs *pflag.FlagSet) {
	fs.StringVar(&l.address, "host-link", "", "address:port of the host's node plugin on the link between DPU and host, to find out whether the host is alive; empty: do not probe it")
	fs.DurationVar(&l.limits.Timeout, "host-timeout", hostprobe.DefaultTimeout, "silence after which the host counts as dead")
	fs.IntVar(&l.limits.Misses, "host-misses", hostprobe.DefaultMisses, "probes in a row without an answer that it takes besides")
}

func (l *hostLink) validate() error {
	if l.address == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(l.address); err != nil {
		return fmt.Errorf("--host-link is %q: give address:port: %w", l.address, err)
	}
	if l.limits.Timeout < 2*hostprobe.Interval || l.limits.Timeout > time.Hour || l.limits.Misses < 1 {
		return fmt.Errorf("--host-timeout is %s and --host-misses %d: at least %s and 1 are needed", l.limits.Timeout, l.limits.Misses, 2*hostprobe.Interval)
	}
	return nil
}

// watcher probes the host over the link; nil if there is none. What the host's devices do
// tells that it lives, too.
func (l *hostLink) watcher(store *attachments.Store, shown *exposures.Exposures, changed func()) *hostprobe.Watcher {
	if l.address == "" {
		return nil
	}
	return hostprobe.NewWatcher(hostprobe.Options{
		Prober: hostprobe.NewTCP(l.address), Limits: l.limits, OnChange: changed, Paths: func(ctx context.Context) []provisioner.Path {
			devices, err := store.Devices(ctx)
			if err != nil {
				return nil
			}
			paths, _, _ := shown.Paths(ctx, slices.Sorted(maps.Keys(devices))) //nolint:dogsled // a service that does not answer tells of no I/O
			return paths
		},
	})
}
