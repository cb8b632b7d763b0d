package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/moor-storage/moor/pkg/controller/hostcluster"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/nodehealth/listener"
)

// listen hears hosts, DPUs and kubelets, and itself in both clusters.
func listen(mgr ctrl.Manager, c hostcluster.Clusters, observer *nodehealth.Observer) error {
	for _, l := range []manager.Runnable{
		&listener.Objects{Host: c.Host, DPU: c.DPU, Observer: observer, Clock: clock.RealClock{}},
		&listener.Leases{Source: nodehealth.HostCluster, Cluster: c.Host, Namespace: c.Namespace, Observer: observer, Clock: clock.RealClock{}},
		&listener.Leases{Source: nodehealth.DPUCluster, Cluster: c.DPU, Namespace: c.TargetNamespace, Observer: observer, Clock: clock.RealClock{}},
	} {
		if err := mgr.Add(l); err != nil {
			return fmt.Errorf("listen for heartbeats: %w", err)
		}
	}
	return nil
}

// selfHeartbeats watches this process's own Lease in a namespace, and all Leases of
// the others.
func selfHeartbeats(namespace string, all ...string) cache.ByObject {
	own := cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", listener.SelfHeartbeatName)}
	out := cache.ByObject{Namespaces: map[string]cache.Config{namespace: own}}
	for _, n := range all {
		out.Namespaces[n] = cache.Config{}
	}
	return out
}
