package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/served"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/controller/replica"
)

// replicaOptions are the flags of the replica reconciler (controller).
type replicaOptions struct {
	reserve      int
	releaseAfter time.Duration
	patience     time.Duration
	topologyKey  string
}

func (o *replicaOptions) bind(fs *pflag.FlagSet) {
	fs.IntVar(&o.reserve, "replica-reserve", 1, "how many functions of each DPU replicas leave free for primaries (controller)")
	fs.DurationVar(&o.releaseAfter, "replica-release-after", 5*time.Minute, "how long replicas outlive the last primary of their volume (controller)")
	fs.DurationVar(&o.patience, "replica-patience", 5*time.Minute, "how long a node may be in trouble before its replicas are made elsewhere (controller)")
	fs.StringVar(&o.topologyKey, "replica-topology-key", corev1.LabelTopologyZone, "node label over whose values replicas are spread, unless the pod names another (controller)")
}

// lease is the name of the one for which --leader-elect waits. Drivers of other names make
// their replicas by themselves, and may be in the same namespace.
func (o *options) lease() string { return kube.ObjectName("snap-csi-plugin-" + o.name) }

// manager connects to the host cluster; it runs the replica reconciler, with
// --leader-elect while it has the lease, and its client and cache, with these
// informers, serve the CSI controller all the while.
func (o *options) manager(ctx context.Context, informers *kube.Informers) (ctrl.Manager, error) {
	cfg, err := o.api.Config(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme, err := kube.NewScheme(storagev1alpha1.AddHostToScheme, moorv1alpha1.AddHostToScheme, corev1.AddToScheme)
	if err != nil {
		return nil, err
	}
	kinds := podvolume.CachePods()
	kinds[&corev1.Node{}] = cache.ByObject{Transform: kube.SlimNode}
	kinds[&corev1.PersistentVolume{}] = cache.ByObject{Transform: podvolume.SlimPersistentVolume}
	guard, err := served.NewGuard("host cluster", cfg, scheme)
	if err != nil {
		return nil, err
	}
	whole := cache.ByObject{Transform: guard.Transform(cache.TransformStripManagedFields())}
	kinds[&storagev1alpha1.DPUVolumeAttachment{}], kinds[&storagev1alpha1.DPUVolume{}] = whole, whole
	mgr, err := ctrl.NewManager(cfg, o.election.Of(o.lease(), ctrl.Options{
		Scheme: scheme, MapperProvider: kube.NewMapper,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(), ByObject: kinds,
			DefaultNamespaces: map[string]cache.Config{o.namespace: {}},
		},
		NewCache:   informers.New,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{MaxConcurrentReconciles: 1, CacheSyncTimeout: kube.CacheSyncTimeout},
	}))
	if err != nil {
		return nil, fmt.Errorf("connect to the host cluster: %w", err)
	}
	if mgr, err = kube.Ending(mgr); err != nil {
		return nil, err
	}
	if err := served.Require(ctx, mgr, served.Cluster{Name: "host cluster", Of: mgr}); err != nil {
		return nil, err
	}
	if err := kube.AddIndexes(ctx, mgr.GetFieldIndexer(), index.Replicas()...); err != nil {
		return nil, err
	}
	if err := kube.Hold(ctx, mgr.GetCache(), &corev1.Node{}); err != nil {
		return nil, err
	}
	reconciler := &replica.Reconciler{Options: replica.Options{
		Host: kube.ClusterOf(mgr), Clock: clock.RealClock{}, Namespace: o.namespace, Driver: o.name,
		Reserve: o.replica.reserve, ReleaseAfter: o.replica.releaseAfter, Patience: o.replica.patience, TopologyKey: o.replica.topologyKey,
	}}
	if err := reconciler.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("set up the replica reconciler: %w", err)
	}
	return mgr, nil
}
