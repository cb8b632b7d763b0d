package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/daemon/version"
	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/csiserver"
	nodecsi "github.com/moor-storage/moor/pkg/node/csi"
	"github.com/moor-storage/moor/pkg/node/csi/deadmounts"
	"github.com/moor-storage/moor/pkg/node/heartbeat"
	"github.com/moor-storage/moor/pkg/node/hostprobe"
	"github.com/moor-storage/moor/pkg/node/registrar"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/devices"
	"github.com/moor-storage/moor/pkg/provisioner/metered"
)

// nodeOptions are the flags of --mode node.
type nodeOptions struct {
	id           string
	maxVolumes   int64
	limitedBy    []string
	deviceID     string
	loadDriver   bool
	loadVirtio   bool
	sharedType   string
	createVFs    bool
	roots        hostdev.Roots
	registry     string
	kubeletCSI   string
	heartbeat    bool
	beatEvery    time.Duration
	deviceWindow time.Duration
	linkAddress  string
	hostTimeout  time.Duration
	records      string
}

func (n *nodeOptions) bind(fs *pflag.FlagSet) {
	roots := hostdev.DefaultRoots()
	fs.StringVar(&n.id, "node-id", "", "name of this node (node; required)")
	fs.Int64Var(&n.maxVolumes, "max-volumes-per-node", 0, "how many volumes this node takes; 0: as many as there are functions of the kinds in --volumes-limited-by (node)")
	fs.StringSliceVar(&n.limitedBy, "volumes-limited-by", []string{string(provisioner.VF)}, "kinds of functions that the StorageClasses use: vf, hotplug (virtio-fs too), or both (node)")
	fs.StringVar(&n.deviceID, "node-snap-controller-device-id", "6001", "PCI device id of the emulated physical functions (node)")
	fs.BoolVar(&n.loadDriver, "node-nvme-load-driver", true, "bind the nvme driver to functions that have none (node)")
	fs.BoolVar(&n.loadVirtio, "node-virtiofs-load-driver", true, "bind the virtio-pci driver to virtio-fs functions that have none (node)")
	fs.StringVar(&n.sharedType, "node-virtiofs-filesystem-type", nodecsi.DefaultSharedType, "type that file systems shown by virtio-fs are mounted as (node)")
	fs.BoolVar(&n.createVFs, "node-nvme-create-vfs", true, "make the virtual functions at start (node)")
	fs.StringVar(&n.roots.Sysfs, "sysfs-root", roots.Sysfs, "where sysfs is (node)")
	fs.StringVar(&n.roots.Dev, "dev-root", roots.Dev, "where device files are (node)")
	fs.StringVar(&n.registry, "plugin-registry", "/var/lib/kubelet/plugins_registry", "the kubelet's plugin registry; empty: do not register (node)")
	fs.StringVar(&n.kubeletCSI, "kubelet-registration-path", "", "the CSI socket as the kubelet sees it; empty: as in --bind-address (node)")
	fs.BoolVar(&n.heartbeat, "heartbeat", true, "write this host's half of its DPUStorageNode; false on hosts without credentials (node)")
	fs.DurationVar(&n.beatEvery, "heartbeat-period", 10*time.Second, "time between two heartbeats (node)")
	fs.DurationVar(&n.hostTimeout, "host-timeout", hostprobe.DefaultTimeout, "that of snap-node-driver: while the DPU does not probe this host over the link, heartbeats and reads of its devices follow one another for so long and a second, so that a link that is cut does not pass for a host that is dead (node)")
	fs.StringVar(&n.linkAddress, "link-address", "", "address:port, on the link to the DPU, where this host shows that it is alive; empty: it does not (node)")
	fs.DurationVar(&n.deviceWindow, "device-timeout", devices.DefaultHostWait, "how long one call waits for a device to appear; the kubelet repeats it (node)")
	fs.StringVar(&n.records, "device-records", "", "directory that has, for a restart, which device each volume has; empty: devices, beside the unix socket of --bind-address (node)")
}

func (o *options) runNode(ctx context.Context) error {
	if o.node.id == "" {
		return fmt.Errorf("--node-id is required: the name of this node in Kubernetes")
	}
	if o.topology && !o.node.heartbeat {
		return fmt.Errorf("--topology needs --heartbeat: a host without credentials does not learn where its DPU is")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start := newNodeStart(o.attach)
	go func() { cancel(o.nodeSide(ctx, start)) }()
	finder := &hostdev.Finder{Roots: o.node.roots, Bind: o.node.loadDriver, BindShared: o.node.loadVirtio, Load: hostdev.Loader(o.node.roots)}
	if err := o.prepare(ctx, finder); err != nil {
		return cmp.Or(ended(ctx, nil), err)
	}
	start.prepared.Store(true)
	limit, err := nodecsi.NewLimit(o.node.limitedBy, func() (int64, error) { return finder.VirtualFunctions(o.node.deviceID) })
	if err != nil {
		return fmt.Errorf("--volumes-limited-by: %w", err)
	}
	dpu := newDPUView(limit)
	server, err := o.nodeServer(ctx, cancel, finder, dpu, start)
	if err != nil {
		return err
	}
	unprobed := hostprobe.NewUnprobed(o.node.hostTimeout, nil)
	var heart *heartbeat.Heart
	watcher := deadmounts.New(deadmounts.Options{Driver: o.name, Mounts: nodecsi.NewMounter().List, Broken: server.Broken, Ready: server.Ready})
	if o.node.heartbeat {
		if heart, err = o.connectBeat(dpu, watcher, unprobed.Asks()); err != nil {
			return err
		}
		go watcher.Run(ctrl.LoggerInto(ctx, ctrl.Log.WithName("deadmounts")))
	}
	if o.node.linkAddress != "" {
		go func() { cancel(o.node.answerDPU(ctx, unprobed, watcher)) }()
	}
	if o.node.registry != "" {
		go func() { cancel(o.register(ctx, dpu)) }()
	}
	if heart != nil {
		go func() { cancel(heart.Start(ctx)) }()
	}
	// The sum of what all instances can do (CSI spec, GetPluginCapabilities).
	services := []csispec.PluginCapability_Service_Type{csispec.PluginCapability_Service_CONTROLLER_SERVICE, csispec.PluginCapability_Service_GROUP_CONTROLLER_SERVICE}
	if o.topology {
		services = append(services, csispec.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS, csispec.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS)
	}
	err = csiserver.Serve(ctx, o.bindAddress, func(s *grpc.Server) {
		csispec.RegisterIdentityServer(s, csiserver.NewIdentity(o.name, version.Built().Version, nil, services...))
		csispec.RegisterNodeServer(s, server)
	}, csiserver.Options{Logger: ctrl.Log, Metrics: metrics.Registry})
	return ended(ctx, err)
}

// nodeSide is serveSide of a node, which may have no credentials.
func (o *options) nodeSide(ctx context.Context, start *nodeStart) error {
	var cfg *rest.Config
	if o.node.heartbeat || o.attach == dpf.AttachNode {
		var err error
		if cfg, err = o.api.Config(o.kubeconfig); err != nil {
			return err
		}
	}
	return o.serveSide(ctx, cfg, start.ready)
}

// nodeStart is how far the node plugin has come. It is alive all the while.
type nodeStart struct {
	prepared atomic.Bool
	// own are the informers of this host's attachments; nil if it does not watch them.
	own *kube.Informers
}

func newNodeStart(mode dpf.AttachMode) *nodeStart {
	s := &nodeStart{}
	if mode == dpf.AttachNode {
		s.own = &kube.Informers{}
	}
	return s
}

// ready says what is still waited for. The CSI calls wait by themselves: a volume
// can be taken off a host that cannot reach the API server.
func (s *nodeStart) ready() error {
	switch {
	case !s.prepared.Load():
		return errors.New("the emulated functions of this host are not prepared yet")
	case s.own != nil:
		return s.own.Ready()
	}
	return nil
}

// prepare gets the emulated functions ready. A host may boot before its DPU
// does: then the functions are incomplete or absent for a while, so it tries
// again, and only then are volumes taken.
func (o *options) prepare(ctx context.Context, finder *hostdev.Finder) error {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Cap: 10 * time.Second, Steps: math.MaxInt32}
	err := backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		if err := finder.Prepare(ctx, o.node.deviceID, o.node.createVFs); err != nil {
			ctrl.Log.Error(err, "prepare the emulated functions of this host; trying again")
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("prepare the emulated functions of this host: %w", err)
	}
	return nil
}

func (o *options) nodeServer(ctx context.Context, cancel context.CancelCauseFunc, finder *hostdev.Finder, dpu *dpuView, start *nodeStart) (*nodecsi.Server, error) {
	recorder, err := metered.New(metrics.Registry, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	devices, err := o.hostDevices(finder)
	if err != nil {
		return nil, err
	}
	platform := provisioner.Platform{Host: devices, Rescan: devices}
	if o.attach == dpf.AttachNode {
		if platform.Attachments, err = o.nodeAttachments(ctx, cancel, start.own); err != nil {
			return nil, err
		}
	}
	platform = recorder.Platform("dpf", platform)
	options := nodecsi.Options{
		NodeID: o.node.id, Host: platform.Host, Attachments: platform.Attachments, Rescan: platform.Rescan,
		Mounter: nodecsi.NewMounter(), Devices: nodecsi.NewHostDevices(),
		Formatter: &hostdev.Formatter{Runner: hostdev.Commands{}},
		Shares:    o.driver.SharesFilesystem, SharedType: o.node.sharedType,
		MaxVolumes: o.node.maxVolumes, Functions: func() (int64, error) { return dpu.functions(ctx) },
	}
	if o.node.heartbeat {
		options.Storage = dpu.storage
	}
	if o.topology {
		options.Topology = dpu.topology
	}
	return nodecsi.New(options), nil
}

// hostDevices are the devices of the volumes of this host, with those that were open before a restart.
func (o *options) hostDevices(finder *hostdev.Finder) (*devices.Host, error) {
	out := devices.New(finder, o.node.deviceWindow)
	dir, err := o.deviceRecords()
	if err != nil || dir == "" {
		return out, err
	}
	boot, err := daemon.BootID()
	if err != nil {
		return nil, err
	}
	if err := out.Remember(dir, boot, ctrl.Log.WithName("devices")); err != nil {
		return nil, fmt.Errorf("--device-records: %w", err)
	}
	return out, nil
}

// deviceRecords is the directory of records: by default beside the socket, in a directory of the
// host's that is the plugin's own. Empty where there is no such socket.
func (o *options) deviceRecords() (string, error) {
	network, address, err := csiserver.ParseEndpoint(o.bindAddress)
	switch {
	case err != nil || o.node.records != "":
		return o.node.records, err
	case network != "unix":
		return "", nil
	}
	return filepath.Join(filepath.Dir(address), "devices"), nil
}

// register tells the kubelet of the driver; with topology not before it is known
// where the DPU is: the kubelet asks for that once.
func (o *options) register(ctx context.Context, dpu *dpuView) error {
	if o.topology && !dpu.awaitPlace(ctx) {
		return nil
	}
	endpoint := o.node.kubeletCSI
	if endpoint == "" {
		endpoint = strings.TrimPrefix(o.bindAddress, "unix://")
	}
	return registrar.Run(ctx, registrar.Options{Driver: o.name, Endpoint: endpoint, Directory: o.node.registry, Logger: ctrl.Log})
}
