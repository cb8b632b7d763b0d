package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/mount-utils"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/node/csi"
	"github.com/moor-storage/moor/pkg/node/zerotrust"
)

// host is the machine, as the flags say.
type host struct {
	roots  hostdev.Roots
	period time.Duration
	shared string
}

func (h *host) bind(fs *pflag.FlagSet) {
	roots := hostdev.DefaultRoots()
	fs.StringVar(&h.roots.Sysfs, "sysfs-root", roots.Sysfs, "where sysfs is")
	fs.StringVar(&h.roots.Dev, "dev-root", roots.Dev, "where the device files are")
	fs.StringVar(&h.shared, "virtiofs-filesystem-type", csi.DefaultSharedType, "type that file systems shown by virtio-fs are mounted as")
	fs.DurationVar(&h.period, "period", 10*time.Second, "how often to list the devices without an event from the kernel")
}

func (h *host) finder() *hostdev.Finder {
	return &hostdev.Finder{Roots: h.roots, Load: hostdev.Loader(h.roots)}
}

// withAgent runs act with an Agent that is told of changes by the kernel.
func (h *host) withAgent(ctx context.Context, act func(context.Context, *zerotrust.Agent) error) error {
	if h.period < 100*time.Millisecond {
		return fmt.Errorf("--period is %s: at least 100ms is needed", h.period)
	}
	listening, stop := context.WithCancel(ctx)
	watcher, err := zerotrust.NewKernelWatcher(listening, h.roots)
	if err != nil {
		stop()
		return err
	}
	defer watcher.Wait()
	defer stop()
	mounter := csi.NewMounter()
	return act(ctx, zerotrust.New(zerotrust.Options{
		Finder: h.finder(), Watcher: watcher, Mounts: mount.New("").List, Period: h.period, SharedType: h.shared,
		Node: csi.New(csi.Options{
			NodeID: "host", Host: zerotrust.NewHost(h.finder()), Mounter: mounter, Devices: csi.NewHostDevices(),
			Formatter: &hostdev.Formatter{Runner: hostdev.Commands{}}, SharedType: h.shared,
		}),
	}))
}
