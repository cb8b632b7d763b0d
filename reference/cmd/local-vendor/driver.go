package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"path/filepath"
	"strings"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/hostdev"
	controllercsi "github.com/moor-storage/moor/pkg/controller/csi"
	"github.com/moor-storage/moor/pkg/csiserver"
	nodecsi "github.com/moor-storage/moor/pkg/node/csi"
	"github.com/moor-storage/moor/pkg/node/registrar"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/localvendor"
	"github.com/moor-storage/moor/reference/localvendor/devices"
	"github.com/moor-storage/moor/reference/localvendor/ephemeral"
	"github.com/moor-storage/moor/reference/localvendor/filesystems"
	"github.com/moor-storage/moor/reference/localvendor/records"
	"github.com/moor-storage/moor/reference/snapemulator/datapath"
	"github.com/moor-storage/moor/reference/snapemulator/fusepath"
)

// topologyKey names the machine whose volumes these are.
const topologyKey = "topology.local.csi.moor.dev/node"

// driverOptions are the flags of --mode driver.
type driverOptions struct {
	nodeID, deviceDir, registry string
}

func (o *driverOptions) bind(fs *pflag.FlagSet) {
	fs.StringVar(&o.nodeID, "node-id", "", "name of this node; required (driver)")
	fs.StringVar(&o.deviceDir, "device-dir", "/run/moor/local-vendor", "directory for the data path and the device files (driver)")
	fs.StringVar(&o.registry, "plugin-registry", "", "the kubelet's plugin registry; empty: do not register (driver)")
}

// runDriver serves all of CSI on one machine: the controller, the target and
// the node service in one process, with no DPU and no cluster.
func (o *options) runDriver(ctx context.Context) (err error) {
	if o.nodeID == "" {
		return errors.New("--node-id is missing: the name of this node in Kubernetes")
	}
	held, err := localvendor.HoldTarget(o.targetDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	volumes, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("serve volumes to this machine: %w", err)
	}
	target := blocktarget.NewServer(blocktarget.Options{Grants: localvendor.Grants{Dir: o.targetDir}, Record: o.recorder(), Log: ctrl.Log.WithName("target")})
	inside := inProcess{target}
	path, machine, err := o.devices()
	if err != nil {
		return errors.Join(err, volumes.Close())
	}
	defer func() { err = errors.Join(err, machine.CloseAll(), path.Close()) }()
	local := devices.Local{Devices: machine, Target: inside}
	if local.Filesystems, err = filesystems.New(filesystems.Options{
		TargetDir: o.targetDir, Dir: filepath.Join(o.deviceDir, "directories"), Node: o.nodeID, Log: ctrl.Log,
	}); err != nil {
		return errors.Join(err, volumes.Close())
	}
	storage, err := localvendor.Open(localvendor.Options{
		TargetDir: o.targetDir, MaxBytes: o.maxBytes, MaxPerNode: o.maxPerNode, FSType: filesystems.Type,
		NodeExists: func(node string) bool { return node == o.nodeID },
		Target:     &localvendor.Target{Address: volumes.Addr().String(), Revoker: inside, Data: local},
	})
	if err != nil {
		return errors.Join(err, volumes.Close())
	}
	defer func() { err = errors.Join(err, storage.Close()) }()
	return o.serveDriver(ctx, storage, local, func(ctx context.Context) error { return target.Serve(ctx, volumes) })
}

// dataPath is the name of this driver's data path: it clears what an earlier process of its name has left, and
// nothing of another driver on the node. Labels of loop devices are short, so it is a hash.
func (o *options) dataPath() string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q", []string{o.name, o.nodeID})
	return fmt.Sprintf("local-%016x", h.Sum64())
}

// devices opens the data path by which this machine sees the volumes that are devices.
func (o *options) devices() (*fusepath.Path, *devices.Machine, error) {
	path, err := fusepath.Open(o.dataPath(), filepath.Join(o.deviceDir, "fuse"), ctrl.Log)
	if err != nil {
		return nil, nil, err
	}
	show := func(ctx context.Context, id string, v *blocktarget.Device) (devices.Shown, error) {
		return path.Attach(ctx, datapath.Target{Name: id, Size: v.Size(), ReadOnly: v.ReadOnly(), Backing: v})
	}
	machine, err := devices.NewMachine(show, filepath.Join(o.deviceDir, "dev"), ctrl.Log)
	if err != nil {
		return nil, nil, errors.Join(err, path.Close())
	}
	return path, machine, nil
}

// serveDriver serves CSI until ctx ends, and the target a little longer: what
// the devices still hold has to reach it.
func (o *options) serveDriver(ctx context.Context, storage *localvendor.Storage, local devices.Local, target func(context.Context) error) error {
	platform, err := measured(storage.Platform())
	if err != nil {
		return err
	}
	place := map[string]string{topologyKey: o.nodeID}
	controller := o.controllerServices(storage, controllercsi.Options{Platform: platform, BlockOnly: true, Shares: isDirectory, Topology: place, NodeExpands: true})
	node := nodecsi.New(nodecsi.Options{
		NodeID: o.nodeID, Host: local, Rescan: local, MaxVolumes: int64(o.maxPerNode),
		Topology: func() (provisioner.Place, error) { return place, nil },
		Mounter:  nodecsi.NewMounter(), Devices: nodecsi.NewHostDevices(), Formatter: &hostdev.Formatter{Runner: hostdev.Commands{}},
		Storage:   func(context.Context) error { return storage.Ready() },
		Ephemeral: ephemeral.Volumes{Storage: storage, Host: local, TargetDir: o.targetDir, Node: o.nodeID},
	})
	register := func(s *grpc.Server) {
		controller(s)
		csispec.RegisterNodeServer(s, node)
	}
	below, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- target(below) }()
	err = daemon.Beside(ctx, o.metrics, metrics.Registry, storage.Ready, func(ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		if o.registry != "" {
			go func() { cancel(o.register(ctx)) }()
		}
		return csiserver.Serve(ctx, o.endpoint, register, csiserver.Options{Logger: ctrl.Log, Timeout: o.plugin.Timeout, Metrics: metrics.Registry})
	})
	err = errors.Join(err, local.Devices.CloseAll())
	stop()
	return errors.Join(err, <-served)
}

// isDirectory says by its parameters, or by its context, whether a volume is a
// directory with a file system of its own.
func isDirectory(keys map[string]string) bool {
	return keys[records.ParameterKind] == records.KindDirectory || keys[records.ContextFilesystem] != ""
}

func (o *options) register(ctx context.Context) error {
	return registrar.Run(ctx, registrar.Options{
		Driver: o.name, Endpoint: strings.TrimPrefix(o.endpoint, "unix://"), Directory: o.registry, Logger: ctrl.Log,
	})
}

// inProcess is a target in this process, for its own storage.
type inProcess struct{ *blocktarget.Server }

// Revoke implements localvendor.Revoker.
func (p inProcess) Revoke(_ context.Context, volume, node string) error {
	p.Server.Revoke(volume, node)
	return nil
}

// Adjust implements localvendor.DataPath.
func (p inProcess) Adjust(_ context.Context, volume string) error { return p.Server.Adjust(volume) }
