// Command snap-emulator stands in for the SNAP service of one DPU: the same
// JSON-RPC on a unix socket, over files in place of network storage, with a
// data path that ends the host's I/O the moment a namespace is detached.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/functions"
	"github.com/moor-storage/moor/reference/snapemulator/fusepath"
)

// options are the flags.
type options struct {
	snapemulator.Options
	fuseDir, metrics string
	// functions is the socket of the functions that outlive the service; empty: none do.
	functions string
	// keeps: this process is these functions, and no service.
	keeps        bool
	recoveryTime time.Duration
}

func main() {
	var o options
	daemon.Main("snap-emulator", o.bind, o.run)
}

func (o *options) bind(fs *pflag.FlagSet) {
	fs.StringVar(&o.Socket, "socket", "/run/moor/snap-emulator/snap.sock", "unix socket of the service; at most 107 bytes")
	fs.StringVar(&o.Name, "name", "dpu-1", "name of this DPU; lower-case letters, digits and dashes")
	fs.IntVar(&o.VFs, "vfs", snapemulator.DefaultVFs, "virtual functions of the physical function, 0 to 127")
	fs.IntVar(&o.PFs, "pfs", 1, "static physical functions, 1 or 2; the first has the virtual ones and, with them, the admin controller")
	fs.IntVar(&o.Hotplug.Slots, "hotplug-slots", snapemulator.DefaultHotplugSlots, "functions that can be plugged in at a time, 0 to 31")
	fs.StringVar(&o.Hotplug.Family, "hotplug-family", snapemulator.FamilyBoth, "methods for hot-plug that are offered: snap, legacy or both")
	fs.DurationVar(&o.Hotplug.Delay, "hotplug-delay", 200*time.Millisecond, "how long the host takes to enumerate a function that is plugged in, or to let go of one")
	fs.StringVar(&o.Hotplug.StateFile, "hotplug-state", "", "file that keeps hot-plugged functions over a restart; must not outlive a power failure of the DPU; empty keeps none")
	fs.StringVar(&o.SysfsRoot, "sysfs-root", "", "directory for the host's sysfs tree; empty makes none")
	fs.StringVar(&o.DevRoot, "dev-root", "", "directory for the host's device files; empty makes none")
	fs.StringVar(&o.MediumLogDir, "medium-log-dir", "", "directory for the logs of accepted writes, of reads, and of what is shown to the host; empty records none")
	fs.StringVar(&o.FabricDir, "fabric-dir", "", "directory of the subsystems that bdev_nvme_attach_controller reaches, at any address: <nqn>.img is the namespace of one; empty: none can be reached")
	fs.DurationVar(&o.IOTimeout, "io-timeout", blocktarget.DefaultIOTimeout, "how long I/O of a bdev over a block target waits while the target is out of reach, before it fails")
	fs.StringVar(&o.fuseDir, "fuse-dir", "/run/moor/snap-emulator/fuse", "mount point of the data path; empty shows the files themselves, needs no root and cannot fence")
	fs.StringVar(&o.functions, "functions", "", "unix socket of a process with --keep-functions that holds the host's devices, so that they outlive this service, with what the host asks of them; empty: they end with it")
	fs.BoolVar(&o.keeps, "keep-functions", false, "be the functions of a DPU, at --functions, and no service")
	fs.DurationVar(&o.recoveryTime, "recovery-time", 30*time.Second, "with --keep-functions: how long the host's I/O waits for a service, before it fails and the device goes")
	fs.StringVar(&o.metrics, "metrics-bind-address", "0", "address of /metrics, /healthz and /readyz; 0 serves none")
}

func (o *options) run(ctx context.Context) error {
	registry := prometheus.NewRegistry()
	o.Metrics, o.Log = registry, log.Log
	if o.keeps {
		return o.keepFunctions(ctx)
	}
	if err := os.MkdirAll(filepath.Dir(o.Socket), 0o755); err != nil {
		return fmt.Errorf("make the directory of the socket: %w", err)
	}
	if err := o.openDataPath(ctx); err != nil {
		return err
	}
	e, err := snapemulator.New(o.Options)
	if err != nil {
		if o.DataPath != nil {
			err = errors.Join(err, o.DataPath.Close())
		}
		return err
	}
	return daemon.Beside(ctx, o.metrics, registry, nil, func(ctx context.Context) error {
		o.Log.Info("serving", "dpu", o.Name, "path", o.Socket)
		return e.Run(ctx)
	})
}

// openDataPath opens what the host's devices are made by: nothing, functions that outlive this
// service, or a file system of its own.
func (o *options) openDataPath(ctx context.Context) error {
	switch {
	case o.functions != "":
		path, err := functions.Open(ctx, o.functions)
		if err != nil {
			return err
		}
		o.DataPath = path
	case o.fuseDir != "":
		path, err := fusepath.Open(o.Name, o.fuseDir, o.Log)
		if err != nil {
			return err
		}
		o.DataPath = path
	}
	return nil
}

// keepFunctions holds the devices of the host until ctx ends.
func (o *options) keepFunctions(ctx context.Context) error {
	if o.functions == "" || o.fuseDir == "" {
		return errors.New("--keep-functions needs --functions and --fuse-dir")
	}
	if err := os.MkdirAll(filepath.Dir(o.functions), 0o755); err != nil {
		return fmt.Errorf("make the directory of the functions' socket: %w", err)
	}
	path, err := fusepath.Open(o.Name, o.fuseDir, o.Log)
	if err != nil {
		return err
	}
	server, err := functions.New(functions.Options{Socket: o.functions, DataPath: path, RecoveryTime: o.recoveryTime, Log: o.Log})
	if err != nil {
		return errors.Join(err, path.Close())
	}
	o.Log.Info("holding functions", "dpu", o.Name, "path", o.functions)
	return server.Run(ctx)
}
