// Command storage-vendor-dpu-plugin is the vendor plugin, on each DPU, of
// storage that the DPU reaches over the network by itself. With --kind block it
// does what NVIDIA's nvidia-block does, for volumes of SPDK-CSI: it connects SNAP
// to a subsystem of NVMe over Fabrics; with --kind fs what nvidia-fs does, for
// volumes of NFS-CSI: it mounts the share and makes an fsdev over it.
package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/metered"
	"github.com/moor-storage/moor/pkg/provisioner/remote"
	"github.com/moor-storage/moor/pkg/vendorplugin"
	"github.com/moor-storage/moor/pkg/vendorplugin/pluginflags"
)

// options are the flags.
type options struct {
	pluginflags.Flags
	kind    string
	metrics string
	// environment is what is wrong with what DPF's chart gives.
	environment error
	// mounts is replaced in tests.
	mounts remote.Mounts
}

func main() {
	o := options{mounts: remote.KernelMounts{Runner: hostdev.Commands{}}}
	daemon.Main("storage-vendor-dpu-plugin", o.bind, o.run)
}

func (o *options) bind(fs *pflag.FlagSet) {
	fs.StringVar(&o.kind, "kind", "", "block (NVMe over Fabrics, as nvidia-block) or fs (NFS, as nvidia-fs); required")
	fs.StringVar(&o.metrics, "metrics-bind-address", ":8080", "address of /metrics, /healthz and /readyz; 0 turns them off")
	o.Bind(fs, "; empty: nvidia-<kind>", "")
	o.BindVolumes(fs, " (fs)")
	o.environment = fromDPF(fs, filepath.Base(os.Args[0]), os.Getenv)
}

func (o *options) run(ctx context.Context) error {
	if o.environment != nil {
		return o.environment
	}
	o.Name = cmp.Or(o.Name, "nvidia-"+o.kind)
	site, err := o.Site("storage.dpu." + o.Name + ".com")
	if err != nil {
		return err
	}
	host, can, err := o.host(site)
	if err != nil {
		return err
	}
	recorder, err := metered.New(metrics.Registry, clock.RealClock{})
	if err != nil {
		return err
	}
	plugin := site.Options
	plugin.Capabilities, plugin.Logger = can, ctrl.Log
	plugin.Host = recorder.Platform(o.kind, provisioner.Platform{Host: host}).Host
	server := vendorplugin.NewServer(plugin)
	ready := func() error { return site.Reaches(ctx) }
	return daemon.Beside(ctx, o.metrics, metrics.Registry, ready, func(ctx context.Context) error { return server.Serve(ctx, site.Socket) })
}

// host returns what makes the devices, and what it can do.
func (o *options) host(site pluginflags.Site) (provisioner.Host, vendorplugin.Capabilities, error) {
	can := vendorplugin.Capabilities{Get: true, List: true}
	switch o.kind {
	case "block":
		can.Block = true
		return remote.NewNVMe(site.SNAP, site.State), can, nil
	case "fs":
		can.Filesystem = true
		return remote.NewNFS(site.SNAP, o.mounts, site.Volumes, site.State), can, nil
	}
	return nil, can, fmt.Errorf("--kind is %q: block or fs is wanted", o.kind)
}
