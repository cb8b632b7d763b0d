package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/moor-storage/moor/pkg/controller/failover/leases"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// listen hears the kubelets, and itself in both clusters.
func listen(mgr ctrl.Manager, c hostcluster.Clusters, observer *nodehealth.Observer) error {
	for _, w := range []*leases.Watcher{
		{Source: nodehealth.HostCluster, Cluster: c.Host, Namespace: c.Namespace},
		{Source: nodehealth.DPUCluster, Cluster: c.DPU, Namespace: c.TargetNamespace},
	} {
		w.Observer, w.Clock = observer, clock.RealClock{}
		if err := mgr.Add(w); err != nil {
			return fmt.Errorf("watch leases: %w", err)
		}
	}
	return nil
}

// selfHeartbeats watches this process's own Lease in a namespace, and all Leases of
// the others.
func selfHeartbeats(namespace string, all ...string) cache.ByObject {
	own := cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", leases.SelfHeartbeatName)}
	out := cache.ByObject{Namespaces: map[string]cache.Config{namespace: own}}
	for _, n := range all {
		out.Namespaces[n] = cache.Config{}
	}
	return out
}
