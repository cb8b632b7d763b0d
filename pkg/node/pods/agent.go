// Package pods is the node's part of pods as volumes: it tells what helper pods of this node have left in
// /pav, clears that when no pod needs it any more, and has volumes staged for the pods that use them, by one
// CSI endpoint for each PavProvisioner.
//
// It writes the reports in the status of PodVolumes and PodStagings, and makes and deletes the PodStagings of
// its own node. It runs no pod, and what a staging comes to is decided by the controller. A decision that
// would lose something, such as to clear, rests on what the API server itself says, never on a cache.
package pods

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/node/pods/endpoint"
	"github.com/moor-storage/moor/pkg/node/pods/pavdir"
	"github.com/moor-storage/moor/pkg/node/pods/show"
	"github.com/moor-storage/moor/pkg/node/pods/vendor"
)

// Registrar tells the kubelet of CSI drivers, as registrar.Kubelet does.
type Registrar interface {
	// Run has the kubelet know a driver until ctx ends, which is no error.
	Run(ctx context.Context, driver, endpoint string) error
	// Forget removes what a process that died has left of a driver.
	Forget(driver string) error
}

// Options is what an agent works on.
type Options struct {
	// Node is the name of this node; required.
	Node string
	// Boot is what this boot of the node is called, such as its boot_id; required.
	Boot string
	// Version that drivers tell.
	Version string
	// Root is where the directories of helper pods are, as the controller has it; required.
	Root string
	// Kubelet is the directory of the kubelet, such as /var/lib/kubelet; required.
	Kubelet string
	// Registrar tells the kubelet of the drivers; required.
	Registrar Registrar
	// DPU has the agent serve the DPU that it is on; nil: it is on none.
	DPU *DPU
	// Metrics gets the metrics of the agent and of the CSI calls; required.
	Metrics prometheus.Registerer
	// Look is how often what events should have told is looked at; 0: 30 seconds.
	Look time.Duration
	// Patience is how long a mount may be in use before it is unmounted lazily; 0: 30 seconds.
	Patience time.Duration
}

const (
	defaultLook     = 30 * time.Second
	defaultPatience = 30 * time.Second
)

// Agent is the agent of one node.
type Agent struct {
	o       Options
	cluster kube.Cluster
	root    *pavdir.Root
	targets targets
	clock   clock.WithTicker
	events  record.EventRecorder
	counts  *counts
	ready   *watcher
	drivers *drivers
	// vendor is nil where there is no DPU.
	vendor *vendor.Host
	log    logr.Logger

	mu sync.Mutex
	// busy is since when a directory has mounts in use.
	busy map[string]time.Time
}

// targets shows volumes; *show.Targets is the real one.
type targets interface {
	endpoint.Targets
	Renew(w show.Want) (bool, error)
	Shown(target string) (bool, error)
}

// New makes the agent.
func New(o Options) (*Agent, error) {
	for what, is := range map[string]string{"name of the node": o.Node, "boot of the node": o.Boot, "directory of helper pods": o.Root, "directory of the kubelet": o.Kubelet} {
		if is == "" {
			return nil, fmt.Errorf("make the agent of pods as volumes: the %s is not given", what)
		}
	}
	o.Look, o.Patience = cmp.Or(o.Look, defaultLook), cmp.Or(o.Patience, defaultPatience)
	counts, err := newCounts(o.Metrics)
	if err != nil {
		return nil, err
	}
	root := pavdir.NewRoot(o.Root)
	a := &Agent{
		o: o, root: root, targets: show.New(root), clock: clock.RealClock{}, events: &record.FakeRecorder{}, counts: counts, log: logr.Discard(),
		busy: map[string]time.Time{},
	}
	a.drivers = newDrivers(a)
	return a, nil
}

// ByObject is how the cache of a manager has to hold what an agent watches: what concerns the node alone,
// and no more of it than is read. To be set as cache.Options.ByObject; PavProvisioners are held as they are,
// PodVolumes and PersistentVolumes in no cache.
func ByObject(node string) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}:              {Field: fields.OneTermEqualSelector(podvolume.PodByNode, node), Transform: slimPod},
		&corev1.Node{}:             {Field: fields.OneTermEqualSelector("metadata.name", node), Transform: kube.SlimNode},
		&moorv1alpha1.PodStaging{}: {Field: fields.OneTermEqualSelector(endpoint.FieldNode, node)},
	}
}

// SetupWithManager adds all parts of the agent to a manager, which needs the kinds of core/v1,
// moorv1alpha1.AddPodsToScheme and pavv1alpha1.AddToScheme, no leader election, and a cache whose
// options are ByObject(node), in which all namespaces are (DefaultNamespaces unset).
//
// When the manager ends, the endpoints finish the calls under way and take their drivers from the kubelet;
// what is mounted stays, and the next agent goes on with it. ctx is that of the manager.
func (a *Agent) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	a.drivers.within(ctx)
	if err := kube.AddIndexes(ctx, mgr.GetFieldIndexer(), endpoint.IndexByNode()); err != nil {
		return err
	}
	a.cluster, a.log, a.events = kube.ClusterOf(mgr), mgr.GetLogger(), mgr.GetEventRecorderFor("pod-provisioner")
	stagings, err := kube.NewAwaiter(ctx, mgr.GetCache(), func() *moorv1alpha1.PodStaging { return &moorv1alpha1.PodStaging{} })
	if err != nil {
		return err
	}
	a.drivers.stagings = stagings
	if a.ready, err = newWatcher(a.root); err != nil {
		return err
	}
	for _, part := range []interface{ Start(context.Context) error }{a.ready, a.drivers, sweeper{a}} {
		if err := mgr.Add(everywhere{part}); err != nil {
			return fmt.Errorf("add the agent of pods as volumes: %w", err)
		}
	}
	for _, add := range []func(ctrl.Manager) error{a.setupReports, a.setupStagings, a.drivers.setup, a.setupDPU} {
		if err := add(mgr); err != nil {
			return fmt.Errorf("add the agent of pods as volumes: %w", err)
		}
	}
	return nil
}

// everywhere runs on each node, without a lease.
type everywhere struct {
	part interface{ Start(context.Context) error }
}

// Start runs the part.
func (e everywhere) Start(ctx context.Context) error { return e.part.Start(ctx) }

// NeedLeaderElection is false.
func (everywhere) NeedLeaderElection() bool { return false }
