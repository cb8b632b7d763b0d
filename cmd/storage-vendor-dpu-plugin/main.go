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
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/daemon/version"
	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/metered"
	"github.com/moor-storage/moor/pkg/provisioner/remote"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// options are the flags.
type options struct {
	kind, pluginName, pluginRoot, provider string
	snapSocket, stateDir, volumeDir        string
	metrics                                string
	timeout                                time.Duration
	// mounts is replaced in tests.
	mounts remote.Mounts
}

func main() {
	o := options{mounts: remote.KernelMounts{Runner: hostdev.Commands{}}}
	daemon.Main("storage-vendor-dpu-plugin", o.bind, o.run)
}

func (o *options) bind(fs *pflag.FlagSet) {
	fs.StringVar(&o.kind, "kind", "", "block (NVMe over Fabrics, as nvidia-block) or fs (NFS, as nvidia-fs); required")
	fs.StringVar(&o.pluginName, "plugin-name", "", "name of the plugin: it serves on <plugin-root>/<plugin-name>/dpu.sock; empty: nvidia-<kind>")
	fs.StringVar(&o.pluginRoot, "plugin-root", vendorplugin.DefaultRoot, "directory of the vendor plugins' directories")
	fs.StringVar(&o.provider, "provider", vendorplugin.DefaultProvider, "name of the SNAP process that --snap-socket belongs to")
	fs.StringVar(&o.snapSocket, "snap-socket", "/var/lib/nvidia/storage/snap/providers/nvidia/snap.sock", "JSON-RPC socket of SNAP")
	fs.StringVar(&o.stateDir, "state-dir", "", "directory for what the plugin remembers of its devices; empty: devices beside its socket")
	fs.StringVar(&o.volumeDir, "volume-directory", "", "where shares are mounted, which SNAP must see at the same path; empty: volumes/<plugin-name> beside --snap-socket (fs)")
	fs.StringVar(&o.metrics, "metrics-bind-address", ":8080", "address of /metrics, /healthz and /readyz; 0 turns them off")
	fs.DurationVar(&o.timeout, "timeout", time.Minute, "how long one call may take")
}

func (o *options) run(ctx context.Context) error {
	o.pluginName = cmp.Or(o.pluginName, "nvidia-"+o.kind)
	socket, err := vendorplugin.SocketPath(o.pluginRoot, o.pluginName)
	if err != nil {
		return err
	}
	o.stateDir = cmp.Or(o.stateDir, filepath.Join(filepath.Dir(socket), "devices"))
	snap := snaprpc.New(o.snapSocket, o.timeout)
	host, can, err := o.host(snap)
	if err != nil {
		return err
	}
	recorder, err := metered.New(metrics.Registry, clock.RealClock{})
	if err != nil {
		return err
	}
	ready := func() error { _, err := snap.BdevGetBdevs(ctx, ""); return err }
	built := version.Built()
	server := vendorplugin.NewServer(vendorplugin.Options{
		Info:     vendorplugin.Info{Name: "storage.dpu." + o.pluginName + ".com", Version: built.Version, Manifest: built.Manifest()},
		Provider: o.provider, Capabilities: can, Records: filepath.Join(o.stateDir, "requests"),
		Host: recorder.Platform(o.kind, provisioner.Platform{Host: host}).Host,
		// SNAP may start after the plugin: until then the plugin is starting.
		Ready:   func(context.Context) (bool, error) { return ready() == nil, nil },
		Timeout: o.timeout, Logger: ctrl.Log,
	})
	return daemon.Beside(ctx, o.metrics, metrics.Registry, ready, func(ctx context.Context) error { return server.Serve(ctx, socket) })
}

// host returns what makes the devices, and what it can do.
func (o *options) host(snap *snaprpc.Client) (provisioner.Host, vendorplugin.Capabilities, error) {
	can := vendorplugin.Capabilities{Get: true, List: true}
	switch o.kind {
	case "block":
		can.Block = true
		return remote.NewNVMe(snap, o.stateDir), can, nil
	case "fs":
		can.Filesystem = true
		dir := cmp.Or(o.volumeDir, filepath.Join(filepath.Dir(o.snapSocket), "volumes", o.pluginName))
		return remote.NewNFS(snap, o.mounts, dir, o.stateDir), can, nil
	}
	return nil, can, fmt.Errorf("--kind is %q: block or fs is wanted", o.kind)
}
