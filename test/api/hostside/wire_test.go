//go:build api

package hostside

import (
	"context"
	"os"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/controller/failover/detach"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/attachment"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/events"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/node"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/policy"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/vendor"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/volume"
	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/kit"
)

var clusters apiserver.Clusters

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m, &clusters)) }

// deadline of a wait that takes well under a second.
const deadline = 30 * time.Second

var flags = kube.Flags{MetricsBindAddress: "0", HealthProbeBindAddress: "0", Concurrency: 4, SyncPeriod: time.Hour, Rate: kube.Rate{QPS: 200, Burst: 400}}

func manager(t *testing.T, config *rest.Config, add ...func(*runtime.Scheme) error) ctrl.Manager {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, f := range append(add, clientgoscheme.AddToScheme) {
		must(t, f(scheme))
	}
	mgr, err := kube.NewManager(config, scheme, flags, "test", namespaced())
	must(t, err)
	return mgr
}

func namespaced() cache.Options {
	return cache.Options{DefaultNamespaces: map[string]cache.Config{kit.Namespace: {}}}
}

// startHostController runs what snap-host-controller runs.
func startHostController(t *testing.T) {
	t.Helper()
	mgr := manager(t, clusters.HostConfig, storagev1alpha1.AddHostToScheme, moorv1alpha1.AddHostToScheme)
	scheme := runtime.NewScheme()
	for _, f := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, storagev1alpha1.AddDPUToScheme, moorv1alpha1.AddDPUToScheme} {
		must(t, f(scheme))
	}
	dpu, err := cluster.New(clusters.DPUConfig, func(o *cluster.Options) { o.Scheme, o.Cache = scheme, namespaced() })
	must(t, err)
	must(t, mgr.Add(dpu))
	c := hostcluster.Clusters{
		Host: kube.ClusterOf(mgr), DPU: kube.ClusterOf(dpu),
		DPUClusterName: "dpu", Namespace: kit.Namespace, TargetNamespace: kit.Namespace,
	}
	must(t, kube.AddIndexes(t.Context(), mgr.GetFieldIndexer(), index.Host()...))
	must(t, kube.AddIndexes(t.Context(), c.DPU.Cache, index.Mirrors()...))
	users := &attachment.Users{Users: podvolume.Users{Host: c.Host, Drivers: []string{kubetest.Driver}}}
	//lint:ignore SA1019 as in snap-host-controller
	recorder := mgr.GetEventRecorderFor("test")
	for _, r := range []interface{ SetupWithManager(ctrl.Manager) error }{
		&vendor.Reconciler{Clusters: c}, &policy.Reconciler{Clusters: c}, &volume.Reconciler{Clusters: c},
		&attachment.Reconciler{Clusters: c, Users: users, Recorder: recorder}, &node.Reconciler{Clusters: c}, &events.ProvisioningReconciler{Clusters: c},
		&detach.Reconciler{DPU: c.DPU, Clock: clock.RealClock{}},
	} {
		must(t, r.SetupWithManager(mgr))
	}
	kubetest.Run(t, mgr)
}

// startDPUCluster plays the processes of the DPU cluster.
func startDPUCluster(t *testing.T) {
	t.Helper()
	mgr := manager(t, clusters.DPUConfig, storagev1alpha1.AddDPUToScheme, moorv1alpha1.AddDPUToScheme)
	live := mgr.GetAPIReader()
	play(t, mgr, "play-policy", func() *storagev1alpha1.StoragePolicy { return &storagev1alpha1.StoragePolicy{} },
		func(_ context.Context, o *storagev1alpha1.StoragePolicy) error {
			hostclustertest.PlayPolicy(o)
			return nil
		},
		func(to, from *storagev1alpha1.StoragePolicy) { to.Status = from.Status })
	play(t, mgr, "play-volume", func() *storagev1alpha1.Volume { return &storagev1alpha1.Volume{} },
		func(_ context.Context, o *storagev1alpha1.Volume) error { hostclustertest.PlayVolume(o); return nil },
		func(to, from *storagev1alpha1.Volume) { to.Status = from.Status })
	play(t, mgr, "play-attachment", func() *storagev1alpha1.VolumeAttachment { return &storagev1alpha1.VolumeAttachment{} },
		func(ctx context.Context, o *storagev1alpha1.VolumeAttachment) error {
			claim := &moorv1alpha1.WriterClaim{}
			found, err := kube.Find(ctx, live, client.ObjectKey{Namespace: o.Namespace, Name: o.Spec.Source.VolumeRef.Name}, claim)
			if err != nil {
				return err
			}
			if !found {
				claim = nil
			}
			hostclustertest.PlayAttachment(o, claim)
			return nil
		},
		func(to, from *storagev1alpha1.VolumeAttachment) { to.Status = from.Status })
	kubetest.Run(t, mgr)
}

// play is a reconciler of one kind: it changes the object as act does and
// writes the difference.
func play[T client.Object](t *testing.T, mgr ctrl.Manager, name string, empty func() T, act func(context.Context, T) error, status func(to, from T)) {
	t.Helper()
	c := mgr.GetClient()
	must(t, ctrl.NewControllerManagedBy(mgr).Named(name).For(empty()).Complete(reconcile.Func(
		func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			have := empty()
			found, err := kube.Find(ctx, c, req.NamespacedName, have)
			if err != nil || !found {
				return reconcile.Result{}, err
			}
			want := have.DeepCopyObject().(T)
			if err := act(ctx, want); err != nil {
				return reconcile.Result{}, err
			}
			next := want.DeepCopyObject().(T)
			status(next, have)
			if _, err := kube.PatchExact(ctx, c, have, func(o T) { reflect.ValueOf(o).Elem().Set(reflect.ValueOf(next).Elem()) }); err != nil {
				return reconcile.Result{}, client.IgnoreNotFound(err)
			}
			_, err = kube.PatchStatus(ctx, c, have, func(o T) { status(o, want) })
			return reconcile.Result{}, client.IgnoreNotFound(err)
		})))
}
