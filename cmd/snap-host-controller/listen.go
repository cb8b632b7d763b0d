package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/nodehealth/listener"
)

// listen hears hosts, DPUs and kubelets, and itself in both clusters.
func listen(mgr ctrl.Manager, c hostcluster.Clusters, observer *nodehealth.Observer) error {
	for _, l := range []manager.Runnable{
		&listener.Nodes{
			Host: c.Host, DPU: c.DPU, HostNamespace: c.Namespace, DPUNamespace: c.TargetNamespace, Observer: observer, Clock: clock.RealClock{},
		},
		&listener.Leases{Source: nodehealth.HostCluster, Cluster: c.Host, Namespace: c.Namespace, Observer: observer, Clock: clock.RealClock{}},
		&listener.Leases{Source: nodehealth.DPUCluster, Cluster: c.DPU, Namespace: c.TargetNamespace, Observer: observer, Clock: clock.RealClock{}},
	} {
		if err := mgr.Add(l); err != nil {
			return fmt.Errorf("listen for heartbeats: %w", err)
		}
	}
	return nil
}

// heartbeats keeps of the Leases in a namespace those that carry heartbeats, and all of
// the others'; of each what is read of it.
func heartbeats(namespace string, all ...string) cache.ByObject {
	marked := labels.SelectorFromSet(labels.Set{moorv1alpha1.LabelHeartbeat: ""})
	out := cache.ByObject{Namespaces: map[string]cache.Config{namespace: {LabelSelector: marked}}, Transform: kube.SlimLease}
	for _, n := range all {
		out.Namespaces[n] = cache.Config{}
	}
	return out
}
