//go:build api

package heartbeats

import (
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/failover"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
	"github.com/moor-storage/moor/pkg/controller/hostcluster/node"
	"github.com/moor-storage/moor/pkg/controller/nodelifecycle"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/nodehealth/listener"
	"github.com/moor-storage/moor/test/kit"
)

// skewed is a clock that is wrong by hours, and runs right.
type skewed struct {
	clock.RealClock
	by time.Duration
}

func (s skewed) Now() time.Time                  { return s.RealClock.Now().Add(s.by) }
func (s skewed) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// wrong is the clock of some machine: up to twelve hours off.
func wrong() clock.WithTicker {
	return skewed{by: time.Duration((rand.Float64() - 0.5) * float64(24*time.Hour))}
}

func scheme(t *testing.T, add ...func(*runtime.Scheme) error) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, f := range append(add, clientgoscheme.AddToScheme) {
		must(t, f(s))
	}
	return s
}

// startController runs what snap-host-controller does with heartbeats.
func startController(t *testing.T) {
	t.Helper()
	flags := kube.Flags{MetricsBindAddress: "0", HealthProbeBindAddress: "0", Concurrency: 15, SyncPeriod: 10 * time.Hour, Rate: kube.Rate{QPS: 100, Burst: 200}}
	mgr, err := kube.NewManager(clusters.HostConfig, scheme(t, storagev1alpha1.AddHostToScheme, moorv1alpha1.AddHostToScheme), flags, "test", cache.Options{DefaultNamespaces: map[string]cache.Config{kit.Namespace: {}}})
	must(t, err)
	there := scheme(t, storagev1alpha1.AddDPUToScheme, moorv1alpha1.AddDPUToScheme)
	dpu, err := cluster.New(clusters.DPUConfig, func(o *cluster.Options) {
		o.Scheme, o.Cache = there, cache.Options{DefaultNamespaces: map[string]cache.Config{kit.Namespace: {}}}
	})
	must(t, err)
	must(t, mgr.Add(dpu))
	must(t, kube.AddIndexes(t.Context(), mgr.GetFieldIndexer(), index.Host()...))
	c := hostcluster.Clusters{
		Host: kube.ClusterOf(mgr), DPU: kube.ClusterOf(dpu),
		DPUClusterName: "dpu", Namespace: kit.Namespace, TargetNamespace: kit.Namespace,
	}
	observer, recorder := nodehealth.New(wrong(), 0, 0), record.NewFakeRecorder(100)
	for _, r := range []interface{ SetupWithManager(ctrl.Manager) error }{
		&node.Reconciler{Clusters: c},
		&nodelifecycle.Reconciler{Host: c.Host, DPU: c.DPU, Namespace: c.Namespace, Observer: observer, Recorder: recorder},
		failover.New(failover.Options{
			Host: c.Host, DPU: c.DPU, Namespace: c.Namespace,
			TargetNamespace: c.TargetNamespace, Drivers: []string{"test"}, Observer: observer, Clock: wrong(), Recorder: recorder, Budget: failover.DefaultBudget,
		}),
	} {
		must(t, r.SetupWithManager(mgr))
	}
	must(t, mgr.Add(&listener.Leases{Source: nodehealth.HostCluster, Cluster: c.Host, Namespace: c.Namespace, Observer: observer, Clock: wrong()}))
	must(t, mgr.Add(&listener.Leases{Source: nodehealth.DPUCluster, Cluster: c.DPU, Namespace: c.TargetNamespace, Observer: observer, Clock: wrong()}))
	must(t, mgr.Add(&listener.Nodes{Host: c.Host, DPU: c.DPU, HostNamespace: c.Namespace, DPUNamespace: c.TargetNamespace, Observer: observer, Clock: wrong()}))
	kubetest.Run(t, mgr)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
