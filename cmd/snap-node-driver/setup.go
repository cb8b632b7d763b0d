package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/fields"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/daemon/version"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/node/dpu"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/node/dpu/devices"
	"github.com/moor-storage/moor/pkg/node/dpu/exposures"
	"github.com/moor-storage/moor/pkg/node/dpu/paths"
	"github.com/moor-storage/moor/pkg/node/dpu/patrol"
	"github.com/moor-storage/moor/pkg/node/dpu/report"
	"github.com/moor-storage/moor/pkg/node/heartbeat"
	"github.com/moor-storage/moor/pkg/node/plugins"
	"github.com/moor-storage/moor/pkg/node/selffence"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

const (
	// nodeEnv is DPF's environment variable of the node's name.
	nodeEnv = "SNAP_NODE_DRIVER_NODE_NAME"
	// defaultProviders is where DPF keeps the SNAP services' sockets.
	defaultProviders = "/var/lib/nvidia/storage/snap/providers"
	// callsPerPass bounds a pass over one attachment, in timeouts of single
	// calls: one that hangs is enough to end it soon after.
	callsPerPass = 3
)

// options are the flags.
type options struct {
	flags                    kube.Flags
	kubeconfig, namespace    string
	node                     string
	pluginRoot, providerRoot string
	stateDir                 string
	timeout, resync, beat    time.Duration
	pathGrace, snapAway      time.Duration
	link                     hostLink
	lease                    leaseFlags
}

func (o *options) bind(fs *pflag.FlagSet) {
	o.flags.Bind(fs)
	// SNAP works on one call at a time, and a call that waits for it spends its --timeout:
	// so many are within it at a second each. With fewer, the volumes of a dead host wait
	// for each other's vendor calls and writes.
	o.flags.Concurrency = 8
	fs.Lookup("concurrency").DefValue = "8"
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the DPU cluster; empty: the pod's own account")
	fs.StringVar(&o.namespace, "namespace", "dpf-operator-system", "namespace of the storage objects in the DPU cluster")
	fs.StringVar(&o.node, "node-name", os.Getenv(nodeEnv), "this DPU's node name in the DPU cluster; default from $"+nodeEnv)
	fs.StringVar(&o.pluginRoot, "plugin-root", vendorplugin.DefaultRoot, "directory with a <plugin>/dpu.sock for each vendor plugin")
	fs.StringVar(&o.providerRoot, "provider-root", defaultProviders, "directory with a <provider>/snap.sock for each SNAP service")
	fs.StringVar(&o.stateDir, "state-dir", "", "directory of the lock that keeps a second snap-node-driver off this DPU, and of the journal of epochs, which has to survive reboots; empty: that of --plugin-root")
	daemon.NoEffect(fs, "metrics are served by HTTP/1", "enable-http2")
	o.link.bind(fs)
	o.lease.bind(fs)
	fs.DurationVar(&o.timeout, "timeout", 10*time.Second, "deadline of each call to SNAP and to a vendor plugin")
	fs.DurationVar(&o.resync, "resync", 10*time.Second, "how often what SNAP shows is compared with what it should")
	fs.DurationVar(&o.pathGrace, "path-grace", 3*time.Second, "for how long the way of a device to its storage has to look lost before it counts as lost, and then well before it counts as found")
	fs.DurationVar(&o.snapAway, "snap-away", 20*time.Second, "for how long a SNAP service may not answer before the ways of its devices count as lost; 0: for ever")
	fs.DurationVar(&o.beat, "heartbeat-period", heartbeat.DefaultPeriod, "time between two heartbeats")
}

// validate says which flag is wrong.
func (o *options) validate() error {
	for _, root := range []struct{ flag, path string }{{"--plugin-root", o.pluginRoot}, {"--provider-root", o.providerRoot}} {
		if !filepath.IsAbs(root.path) {
			return fmt.Errorf("%s is %q: give an absolute path", root.flag, root.path)
		}
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"--timeout", o.timeout}, {"--resync", o.resync}, {"--heartbeat-period", o.beat}, {"--path-grace", o.pathGrace}} {
		if d.value < 100*time.Millisecond {
			return fmt.Errorf("%s is %s: at least 100ms is needed", d.flag, d.value)
		}
	}
	switch {
	case o.snapAway != 0 && o.snapAway < time.Second:
		return fmt.Errorf("--snap-away is %s: 0, or at least 1s is needed", o.snapAway)
	case o.node == "":
		return fmt.Errorf("give --node-name, or set %s: which DPU is this?", nodeEnv)
	case o.namespace == "":
		return fmt.Errorf("--namespace is empty: say where the VolumeAttachments are")
	}
	if err := o.link.validate(); err != nil {
		return err
	}
	if err := o.lease.validate(o.beat); err != nil {
		return err
	}
	return o.flags.Validate()
}

func (o *options) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.flags.LeaderElect {
		// DPF's chart passes it; with it only one DPU would work.
		ctrl.Log.Info("--leader-elect is ignored: every DPU works for itself")
		o.flags.LeaderElect = false
	}
	unlock, err := o.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	mgr, err := o.manager()
	if err != nil {
		return err
	}
	clients := vendorplugin.NewClients(o.pluginRoot, o.timeout)
	defer clients.Close()
	return o.drive(ctx, mgr, clients)
}

// drive builds the driver, each part from those before it, and runs it.
func (o *options) drive(ctx context.Context, mgr ctrl.Manager, clients *vendorplugin.Clients) error {
	timeout := callsPerPass * o.timeout
	changed, withdrawn, came := report.NewSignal(), report.NewSignal(), report.NewSignal()
	store := &attachments.Store{DPU: kube.ClusterOf(mgr), Node: o.node, Namespace: o.namespace}
	queue := attachments.NewQueue(store)
	ways := paths.NewWays(o.lease.drain, nil)
	shown := exposures.New(exposures.Options{
		Root: o.providerRoot, Boot: bootID(), Open: o.openSNAP(store), Attachments: store, Timeout: timeout, Drain: o.lease.drain, Withdrawn: withdrawn.Ask,
		Ways: ways,
	})
	keeper := o.lease.keeper(ctx, store, shown, changed.Ask)
	registry := o.registry(clients, pluginsChanged(ctx, changed, queue))
	made := devices.New(registry)
	probe := o.link.watcher(store, shown, changed.AskOfHost)

	memory := o.journal()
	driver := dpu.Options{
		Attachments: store, Queue: queue, Exposures: shown, Devices: made, Changed: changed.Ask, Timeout: timeout,
		Journal: memory,
	}
	if keeper != nil {
		driver.Lease = keeper
	}
	if err := dpu.New(driver).SetupWithManager(mgr); err != nil {
		return err
	}
	parts := []manager.Runnable{
		patrol.New(patrol.Options{
			Attachments: store, Queue: queue, Exposures: shown, Devices: made, Journal: memory, Changed: changed.Ask, Period: o.resync, Timeout: timeout,
			Withdrawn: withdrawn.C(), Came: came.C(),
		}),
		exposures.Arrivals{Root: o.providerRoot, Came: came.Ask},
		registry,
	}
	parts = append(parts, paths.New(paths.Options{
		Devices: store.Devices, Services: shown, Ways: ways, Grace: o.pathGrace, Away: o.snapAway, Timeout: o.timeout, Changed: changed.Ask,
	}))
	reporter := &report.Reporter{Exposures: shown, Devices: made, LostPaths: ways.Lost, Changed: changed}
	if probe != nil {
		reporter.Host = probe.Observed
		parts = append(parts, probe)
	}
	for _, part := range append(parts, o.heart(store, reporter, keeper)) {
		if err := mgr.Add(part); err != nil {
			return fmt.Errorf("add %T to the manager: %w", part, err)
		}
	}
	return keep(ctx, keeper, mgr.Start)
}

// heart beats, and renews the lease with each beat, if there is one.
func (o *options) heart(store *attachments.Store, reporter *report.Reporter, keeper *selffence.Keeper) *heartbeat.Heart {
	beat := heartbeat.Options{
		Client: store.DPU.Client, Live: store.DPU.Live, Name: o.node, Version: version.Built().Version, Period: o.beat, Changed: reporter.Changed.C(),
	}
	if keeper == nil {
		beat.Namespace = o.namespace
		return heartbeat.DPU(beat, reporter.State)
	}
	beat.Seen, beat.Exact = keeper.Answered, true
	return heartbeat.DPU(beat, keeper.State(reporter.State))
}

// manager caches the attachments and the claims of this DPU, and no others.
func (o *options) manager() (ctrl.Manager, error) {
	cfg, err := o.flags.Config(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme, err := kube.NewScheme(coordinationv1.AddToScheme, storagev1alpha1.AddDPUToScheme, moorv1alpha1.AddDPUToScheme)
	if err != nil {
		return nil, err
	}
	return kube.NewManager(cfg, scheme, o.flags, "", cache.Options{
		DefaultNamespaces: map[string]cache.Config{o.namespace: {}},
		DefaultTransform:  cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&storagev1alpha1.VolumeAttachment{}: {Field: fields.OneTermEqualSelector(attachments.NodeField, o.node)},
			&moorv1alpha1.WriterClaim{}:         {Field: fields.OneTermEqualSelector("status.holder", o.node)},
		},
	})
}

// pluginsChanged reports a change of the plugins at once, and has the attachments
// looked at again that may wait for one.
func pluginsChanged(ctx context.Context, changed *report.Signal, queue *attachments.Queue) func() {
	return func() {
		changed.Ask()
		queue.AddWaiting(ctx)
	}
}

// registry discovers the vendor plugins.
func (o *options) registry(clients *vendorplugin.Clients, changed func()) *plugins.Registry {
	return plugins.New(plugins.Options{
		Node: o.node, Root: o.pluginRoot, Period: o.resync,
		Open:     func(name string) (plugins.Client, error) { return clients.Client(name) },
		OnChange: changed,
	})
}

// bootID tells this boot of the machine from all others; "" if the kernel does not
// say, and then a SNAP service that has no socket is waited for.
func bootID() string {
	id, err := daemon.BootID()
	if err != nil {
		ctrl.Log.Info("a boot of this DPU cannot be told from the one before", "reason", err.Error())
	}
	return id
}

// openSNAP calls the SNAP service on a socket, which has to give no volume a
// function that the attachments record as another one's.
func (o *options) openSNAP(store *attachments.Store) func(socket string) provisioner.DPU {
	return func(socket string) provisioner.DPU {
		return snap.New(snaprpc.New(socket, o.timeout), snap.Options{Reserved: store.Reserved, Recorded: store.Functions})
	}
}
