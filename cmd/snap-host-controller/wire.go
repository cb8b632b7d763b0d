package main

import (
	"context"
	"errors"
	"fmt"
	"maps"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/served"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/controller/deadmount"
	"github.com/moor-storage/moor/pkg/controller/dpudrain"
	"github.com/moor-storage/moor/pkg/controller/dpupairing"
	"github.com/moor-storage/moor/pkg/controller/failover"
	"github.com/moor-storage/moor/pkg/controller/failover/detach"
	"github.com/moor-storage/moor/pkg/controller/failover/powerproof"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/attachment"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/events"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/node"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/policy"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/snapshot"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/vendor"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/volume"
	"github.com/moor-storage/moor/pkg/controller/nodelifecycle"
	"github.com/moor-storage/moor/pkg/controller/podresync"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/provisioner/dpf"
)

// dpuCluster is which of several DPU clusters is served; "" if there is one.
func (o *options) dpuCluster() string {
	if !o.several {
		return ""
	}
	return o.dpuClusterSpace + "/" + o.dpuClusterName
}

// connect builds the manager over the host cluster and, in it, the DPU cluster.
func (o *options) connect(ctx context.Context) (ctrl.Manager, hostcluster.Clusters, error) {
	none := hostcluster.Clusters{}
	hostConfig, err := o.flags.Config(o.kubeconfig)
	if err != nil {
		return nil, none, fmt.Errorf("host cluster: %w", err)
	}
	dpuConfig, err := o.flags.Config(o.dpuKubeconfig)
	if err != nil {
		return nil, none, fmt.Errorf("DPU cluster: %w", err)
	}
	hostScheme, err := kube.NewScheme(corev1.AddToScheme, storagev1.AddToScheme, coordinationv1.AddToScheme, policyv1.AddToScheme, storagev1alpha1.AddHostToScheme, moorv1alpha1.AddHostToScheme)
	if err != nil {
		return nil, none, err
	}
	dpuScheme, err := kube.NewScheme(corev1.AddToScheme, storagev1.AddToScheme, coordinationv1.AddToScheme, storagev1alpha1.AddDPUToScheme, moorv1alpha1.AddDPUToScheme)
	if err != nil {
		return nil, none, err
	}
	guard, err := served.NewGuard("host cluster", hostConfig, hostScheme)
	if err != nil {
		return nil, none, err
	}
	mgr, err := kube.NewManager(hostConfig, hostScheme, o.flags, hostcluster.Clusters{DPUCluster: o.dpuCluster()}.Lease(), o.hostCache(guard))
	if err != nil {
		return nil, none, err
	}
	dpuCache := namespaced(o.targetNamespace)
	dpuCache.SyncPeriod = &o.flags.SyncPeriod
	dpuCache.ByObject = map[client.Object]cache.ByObject{
		&corev1.Event{}:                       {Field: about("PersistentVolumeClaim")},
		&coordinationv1.Lease{}:               heartbeats(o.targetNamespace),
		&corev1.Node{}:                        {Transform: kube.SlimNode},
		&storagev1alpha1.SVVolumeAttachment{}: {Transform: failover.SlimRevoked},
	}
	dpu, err := kube.AddCluster(mgr, "DPU cluster", dpuConfig, dpuScheme, dpuCache)
	if err != nil {
		return nil, none, err
	}
	if err := served.Require(ctx, mgr, served.Cluster{Name: "host cluster", Of: mgr}, served.Cluster{Name: "DPU cluster", Of: dpu}); err != nil {
		return nil, none, err
	}
	return mgr, hostcluster.Clusters{
		Host: kube.ClusterOf(mgr), DPU: kube.ClusterOf(dpu),
		DPUClusterName: o.dpuClusterName, Namespace: o.namespace, TargetNamespace: o.targetNamespace,
		DPUCluster: o.dpuCluster(),
	}, nil
}

// hostCache holds of the host cluster what is watched, no more of each object than is read.
func (o *options) hostCache(guard *served.Guard) cache.Options {
	out := namespaced(o.namespace)
	whole := cache.ByObject{Transform: guard.Transform(out.DefaultTransform)}
	events := map[string]cache.Config{o.namespace: {FieldSelector: about("DPUVolume")}}
	if o.attach != dpf.AttachNode {
		events[cache.AllNamespaces] = cache.Config{FieldSelector: podresync.BackOffEvents()}
	}
	out.ByObject = map[client.Object]cache.ByObject{
		&corev1.Event{}:                        {Namespaces: events},
		&coordinationv1.Lease{}:                heartbeats(o.namespace, corev1.NamespaceNodeLease),
		&corev1.Node{}:                         {Transform: kube.SlimNode},
		&corev1.PersistentVolume{}:             {Transform: podvolume.SlimPersistentVolume},
		&storagev1alpha1.DPUVolumeAttachment{}: whole,
		&storagev1alpha1.DPUVolume{}:           whole,
	}
	if o.several {
		// A host is in one DPU cluster for ever, so what is hidden here never was.
		out.ByObject[&moorv1alpha1.DPUStorageNode{}] = cache.ByObject{Field: fields.OneTermEqualSelector("spec.dpuCluster", o.dpuCluster())}
	}
	maps.Copy(out.ByObject, podvolume.CacheUsers())
	maps.Copy(out.ByObject, podvolume.CacheClaims())
	return out
}

func namespaced(namespace string) cache.Options {
	return cache.Options{
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		DefaultTransform:  cache.TransformStripManagedFields(),
	}
}

// about selects the events about one kind.
func about(kind string) fields.Selector {
	return fields.OneTermEqualSelector("involvedObject.kind", kind)
}

// setUp registers what the caches hold, and reconcilers.
func (o *options) setUp(ctx context.Context, mgr ctrl.Manager, c hostcluster.Clusters) error {
	if err := hold(ctx, mgr, c); err != nil {
		return err
	}
	//lint:ignore SA1019 the events are about objects that come and go, which the new API does not count
	recorder := mgr.GetEventRecorderFor("snap-host-controller")
	users := &attachment.Users{Users: podvolume.Users{Host: c.Host, Drivers: o.drivers}}
	nodesAsk := o.attach == dpf.AttachNode
	observer := nodehealth.New(clock.RealClock{}, o.heartbeatTimeout, o.silenceTimeout)
	silent := func(dpu string) bool { return observer.DPU(dpu) == nodehealth.Stale }
	power := powerproof.New(powerproof.Options{
		Host: c.Host, Namespace: c.Namespace, Clock: clock.RealClock{}, After: o.powerAfter, Drain: o.powerDrain, Silent: observer.DPUSilentSince,
	})
	reconcilers := []interface{ SetupWithManager(ctrl.Manager) error }{
		&vendor.Reconciler{Clusters: c},
		&policy.Reconciler{Clusters: c},
		&volume.Reconciler{Clusters: c, Silent: silent},
		&snapshot.Reconciler{Clusters: c},
		&attachment.Reconciler{Clusters: c, Users: users, NodesAsk: nodesAsk, Recorder: recorder, Silent: silent},
		&node.Reconciler{Clusters: c},
		&events.ProvisioningReconciler{Clusters: c},
		&events.FailoverReconciler{Clusters: c, Drivers: o.drivers},
		&nodelifecycle.Reconciler{
			Host: c.Host, DPU: c.DPU,
			Namespace: c.Namespace, Observer: observer, Recorder: recorder,
		},
		&detach.Reconciler{
			Host: c.Host, DPU: c.DPU, Clock: clock.RealClock{}, TargetNamespace: c.TargetNamespace, Recorder: recorder, Heartbeats: observer,
		},
		failover.New(failover.Options{
			Host: c.Host, DPU: c.DPU,
			Namespace: c.Namespace, TargetNamespace: c.TargetNamespace, Drivers: o.drivers,
			Observer: observer, Clock: clock.RealClock{}, Recorder: recorder, Budget: o.budget, Doubts: o.doubts, Power: power,
		}),
		power,
		&deadmount.Reconciler{Host: c.Host, Namespace: c.Namespace, Drivers: o.drivers, Clock: clock.RealClock{}, Recorder: recorder},
		&dpudrain.Reconciler{
			Host: c.Host, DPU: c.DPU,
			Namespace: c.Namespace, TargetNamespace: c.TargetNamespace, Drivers: o.drivers, Clock: clock.RealClock{}, Recorder: recorder,
		},
		&podresync.Reconciler{
			Host: c.Host, NodesAsk: nodesAsk, Namespace: c.Namespace, Drivers: o.drivers, Clock: clock.RealClock{}, Recorder: recorder, Serves: servesHost(c),
		},
	}
	for _, r := range reconcilers {
		if err := r.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("set up %T: %w", r, err)
		}
	}
	return errors.Join(o.pair(ctx, mgr, c, recorder), listen(mgr, c, observer))
}

// hold makes the indexes, and has the caches hold what controllers watch and no index does.
func hold(ctx context.Context, mgr ctrl.Manager, c hostcluster.Clusters) error {
	return errors.Join(
		kube.AddIndexes(ctx, mgr.GetFieldIndexer(), index.Host()...),
		kube.AddIndexes(ctx, c.DPU.Cache, index.Mirrors()...),
		kube.Hold(ctx, c.Host.Cache, &coordinationv1.Lease{}, &corev1.Node{}, &corev1.PersistentVolumeClaim{},
			&moorv1alpha1.DPUVolumeSnapshot{}, &moorv1alpha1.PowerControl{}),
		kube.Hold(ctx, c.DPU.Cache, &coordinationv1.Lease{}, &moorv1alpha1.WriterClaim{}, &storagev1alpha1.SVVolumeAttachment{}, &storagev1alpha1.Volume{},
			&moorv1alpha1.DPUStorageNode{}, &moorv1alpha1.StorageSnapshot{}, &storagev1alpha1.StoragePolicy{}, &storagev1alpha1.StorageVendor{},
			&corev1.Event{}, &corev1.Node{}, &storagev1.CSINode{}, &storagev1.CSIDriver{}, &storagev1.StorageClass{}),
	)
}

// servesHost tells whether a host is in the DPU cluster that is served here, of several; nil if there is one.
func servesHost(c hostcluster.Clusters) func(context.Context, string) (bool, error) {
	if !c.Several() {
		return nil
	}
	return func(ctx context.Context, host string) (bool, error) {
		return kube.Find(ctx, c.Host.Client, client.ObjectKey{Name: host}, &moorv1alpha1.DPUStorageNode{}, client.UnsafeDisableDeepCopy)
	}
}

// pair has the DPUs of hosts read from DPF, where it is installed. Where there are several DPU
// clusters it needs to see the hosts too that are in none yet.
func (o *options) pair(ctx context.Context, mgr ctrl.Manager, c hostcluster.Clusters, recorder record.EventRecorder) error {
	r := &dpupairing.Reconciler{Host: c.Host, Namespace: c.Namespace, Recorder: recorder, Several: c.Several()}
	if o.dpuClusterSpace != "" {
		r.Cluster = o.dpuClusterSpace + "/" + o.dpuClusterName
	}
	if c.Several() {
		all, err := kube.AddCluster(mgr, "hosts of all DPU clusters", mgr.GetConfig(), mgr.GetScheme(), namespaced(o.namespace))
		if err != nil {
			return err
		}
		r.Host = kube.ClusterOf(all)
	}
	if err := r.Setup(ctx, mgr); err != nil {
		return fmt.Errorf("set up %T: %w", r, err)
	}
	return nil
}
