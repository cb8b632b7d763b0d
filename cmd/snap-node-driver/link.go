package main

import (
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/node/hostprobe"
)

// hostLink is how the DPU looks at its host.
type hostLink struct {
	address string
	limits  hostprobe.Limits
	watcher *hostprobe.Watcher
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

// add has the manager look at the host, if there is a link.
func (l *hostLink) add(mgr ctrl.Manager, changed func()) error {
	if l.address == "" {
		return nil
	}
	l.watcher = hostprobe.NewWatcher(hostprobe.Options{Prober: hostprobe.NewTCP(l.address), Limits: l.limits, OnChange: changed})
	if err := mgr.Add(l.watcher); err != nil {
		return fmt.Errorf("add the watch over the host: %w", err)
	}
	return nil
}

// sight is what is seen of the host; nil if nothing is known.
func (l *hostLink) sight() *moorv1alpha1.HostSight {
	if l.watcher == nil {
		return nil
	}
	return l.watcher.Observed()
}
