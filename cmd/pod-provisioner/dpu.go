package main

import (
	"cmp"
	"errors"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/moor-storage/moor/internal/daemon/version"
	"github.com/moor-storage/moor/internal/snaprpc"
	nodepods "github.com/moor-storage/moor/pkg/node/pods"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// dpuOptions are the flags of --mode node on a DPU.
type dpuOptions struct {
	plugin, pluginRoot string
	provider, snap     string
	namespace          string
	volumes            string
	timeout            time.Duration
}

func (d *dpuOptions) bind(fs *pflag.FlagSet) {
	fs.StringVar(&d.plugin, "dpu-plugin-name", "", "name of the plugin by which snap-node-driver uses PavProvisioners on this DPU; empty: this node is none (node)")
	fs.StringVar(&d.pluginRoot, "dpu-plugin-root", vendorplugin.DefaultRoot, "directory of the plugins' sockets on the DPU (node)")
	fs.StringVar(&d.provider, "snap-provider", "", "SNAP process that the plugin names; empty: the default one (node)")
	fs.StringVar(&d.snap, "snap-socket", "/var/lib/nvidia/storage/snap/providers/nvidia/snap.sock", "JSON-RPC socket of SNAP (node)")
	fs.StringVar(&d.namespace, "dpu-namespace", "", "namespace of the claims and VolumeAttachments that snap-controller makes; required on a DPU (node)")
	fs.StringVar(&d.volumes, "volume-directory", "", "where volumes are shown to SNAP, which must see it at the same path; empty: volumes/<dpu-plugin-name> beside --snap-socket (node)")
	fs.DurationVar(&d.timeout, "dpu-timeout", time.Minute, "how long a call of snap-node-driver may take (node)")
}

// open is the DPU that the flags describe; nil if there is none.
func (d *dpuOptions) open() (*nodepods.DPU, error) {
	if d.plugin == "" {
		return nil, nil //nolint:nilnil // no DPU is no failure
	}
	if d.namespace == "" {
		return nil, errors.New("--dpu-namespace is required with --dpu-plugin-name: the namespace where snap-controller makes claims in this cluster")
	}
	socket, err := vendorplugin.SocketPath(d.pluginRoot, d.plugin)
	if err != nil {
		return nil, err
	}
	built, state := version.Built(), filepath.Dir(socket)
	return &nodepods.DPU{
		Socket: socket, Info: vendorplugin.Info{Name: d.plugin + ".plugin.moor.dev", Version: built.Version, Manifest: built.Manifest()},
		Provider: d.provider, SNAP: snaprpc.New(d.snap, d.timeout), Namespace: d.namespace,
		Volumes: cmp.Or(d.volumes, filepath.Join(filepath.Dir(d.snap), "volumes", d.plugin)),
		Records: filepath.Join(state, "devices"), Requests: filepath.Join(state, "requests"), Timeout: d.timeout,
	}, nil
}
