// Command local-vendor is the reference storage vendor: volumes are sparse
// files in one directory. With --mode controller it is the CSI controller in
// the DPU cluster, with --mode plugin the vendor plugin on each DPU, with --mode
// target the storage that DPUs reach over TCP and that can turn them away; with
// --mode driver it is all of a CSI driver for one machine without a DPU.
package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/pkg/vendorplugin/pluginflags"
)

// options are the flags.
type options struct {
	mode       string
	name       string
	targetDir  string
	metrics    string
	endpoint   string
	maxBytes   int64
	maxPerNode int
	manyNodes  bool
	places     places
	plugin     pluginflags.Flags
	targetOptions
	driverOptions
}

func main() {
	var o options
	daemon.Main("local-vendor", o.bind, o.run)
}

func (o *options) bind(fs *pflag.FlagSet) {
	fs.StringVar(&o.mode, "mode", "", "controller, plugin, target or driver; required")
	fs.StringVar(&o.name, "name", "local.csi.moor.dev", "name of the CSI driver, and of the plugin in its own words")
	fs.StringVar(&o.targetDir, "target-dir", "/var/lib/moor/local", "directory of the volumes; the controller and the target, or without one every DPU, must see the same one at the same path")
	fs.StringVar(&o.metrics, "metrics-bind-address", ":8080", "address of /metrics, /healthz and /readyz; 0 turns them off")
	fs.StringVar(&o.endpoint, "endpoint", "unix:///csi/csi.sock", "where to serve CSI: unix:///absolute/path or tcp://host:port (controller, driver)")
	fs.Int64Var(&o.maxBytes, "max-volume-bytes", 1<<40, "size of the largest volume in bytes (controller, driver)")
	fs.IntVar(&o.maxPerNode, "max-volumes-per-node", 0, "how many volumes a node may have; 0: no limit (controller, driver)")
	fs.BoolVar(&o.manyNodes, "many-nodes", false, "let several DPUs have a single-node volume at once, for warm replicas: writer claims keep it to one writer (controller)")
	fs.Var(&o.places, "topology", "labels (key=value,...) of the nodes from which the volumes are reached; given several times, storage is at several places; empty: from all (controller)")
	o.plugin.Name = "local"
	o.plugin.Bind(fs, "", " (plugin)")
	o.targetOptions.bind(fs)
	o.driverOptions.bind(fs)
}

func (o *options) run(ctx context.Context) error {
	switch o.mode {
	case "controller":
		return o.runController(ctx)
	case "plugin":
		return o.runPlugin(ctx)
	case "target":
		return o.runTarget(ctx)
	case "driver":
		return o.runDriver(ctx)
	}
	return fmt.Errorf("--mode is %q: controller, plugin, target or driver is wanted", o.mode)
}
