package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/moor-storage/moor/internal/liveness"
	"github.com/moor-storage/moor/pkg/controller/fence"
	"github.com/moor-storage/moor/pkg/controller/hostsync"
)

// listen hears the kubelets, and itself in both clusters.
func listen(mgr ctrl.Manager, c hostsync.Clusters, observer *liveness.Observer) error {
	for _, ear := range []*fence.Ear{
		{Cluster: liveness.HostCluster, Cache: mgr.GetCache(), Client: c.Host, Namespace: c.Namespace},
		{Cluster: liveness.DPUCluster, Cache: c.DPUCluster.GetCache(), Client: c.DPU, Namespace: c.TargetNamespace},
	} {
		ear.Observer, ear.Clock = observer, clock.RealClock{}
		if err := mgr.Add(ear); err != nil {
			return fmt.Errorf("listen to leases: %w", err)
		}
	}
	return nil
}

// leases watches our own echo in a namespace, and all of the others.
func leases(namespace string, all ...string) cache.ByObject {
	echo := cache.Config{FieldSelector: fields.OneTermEqualSelector("metadata.name", fence.EchoName)}
	out := cache.ByObject{Namespaces: map[string]cache.Config{namespace: echo}}
	for _, n := range all {
		out.Namespaces[n] = cache.Config{}
	}
	return out
}
