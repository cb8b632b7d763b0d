package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"

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
	fs.DurationVar(&h.period, "period", 10*time.Second, "how often to look at the devices without a sign from the kernel")
}

func (h *host) finder() *hostdev.Finder { return &hostdev.Finder{Roots: h.roots} }

// guest runs act with a Guest that listens to the kernel meanwhile.
func (h *host) guest(ctx context.Context, act func(context.Context, *zerotrust.Guest) error) error {
	if h.period < 100*time.Millisecond {
		return fmt.Errorf("--period is %s: at least 100ms is needed", h.period)
	}
	listening, stop := context.WithCancel(ctx)
	signs, err := zerotrust.NewKernelSigns(listening, h.roots)
	if err != nil {
		stop()
		return err
	}
	defer signs.Wait()
	defer stop()
	mounter := csi.NewMounter()
	return act(ctx, zerotrust.New(zerotrust.Options{
		Finder: h.finder(), Signs: signs, Mounts: mounter.List, Period: h.period, SharedType: h.shared,
		Node: csi.New(csi.Options{
			NodeID: "host", Host: zerotrust.NewHost(h.finder()), Mounter: mounter, Devices: csi.HostDevices{},
			Formatter: &hostdev.Formatter{Runner: hostdev.Commands{}}, SharedType: h.shared,
		}),
	}))
}
