// Package listener hears the hosts and DPUs, by their Leases and DPUStorageNodes, the
// kubelets, by their Leases, and snap-host-controller itself, by a Lease that it writes
// in each cluster. What is heard goes to the observer of heartbeats; no reconciler runs
// for it.
package listener

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// SelfHeartbeatName is the Lease that snap-host-controller writes to hear itself.
const SelfHeartbeatName = "snap-host-controller-echo"

// selfHeartbeatPeriod is the time between two heartbeats of this process. Silence is
// measured up to what was heard last, so where few heartbeats come this bounds the error.
const selfHeartbeatPeriod = time.Second

// LeastSilence is the shortest time that may be configured before silence counts:
// after half of it without anything heard the observer counts as unable to hear, so
// several heartbeats of its own have to fall into that.
const LeastSilence = 4 * selfHeartbeatPeriod

// Leases watches the Leases of one cluster, and writes and watches a heartbeat of
// this process in it: if the API server takes no writes, or a watch is stuck, all
// are silent, and so is this process.
type Leases struct {
	// Source is what the observer calls the cluster.
	Source nodehealth.Cluster
	// Cluster is the cluster. Its cache holds the Leases of the kubelets and, in
	// Namespace, those with the label of heartbeats.
	Cluster   kube.Cluster
	Namespace string
	Observer  *nodehealth.Observer
	Clock     clock.WithTicker
}

var _, _ manager.LeaderElectionRunnable = (*Leases)(nil), (*Nodes)(nil)

// NeedLeaderElection is false: a replica that takes over has to know who is silent, and has
// to have heard a DPU before it believes what that says of its host.
func (*Leases) NeedLeaderElection() bool { return false }

// Start watches Leases and writes its own until ctx ends. Replicas write the same one: each
// hears from any of them that the API server takes writes, and that its own watch is not stuck.
func (l *Leases) Start(ctx context.Context) error {
	informer, err := l.Cluster.Cache.GetInformer(ctx, &coordinationv1.Lease{})
	if err != nil {
		return fmt.Errorf("watch leases: %w", err)
	}
	record := func(o any) {
		if lease, ok := o.(*coordinationv1.Lease); ok {
			l.record(lease)
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: record, UpdateFunc: func(_, o any) { record(o) },
	})
	if err != nil {
		return fmt.Errorf("watch leases: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }()
	ticker := l.Clock.NewTicker(selfHeartbeatPeriod)
	defer ticker.Stop()
	for {
		if err := l.writeSelfHeartbeat(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).WithName("echo").Error(err, "silence will not be judged")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// record passes a Lease to the observer. Its time is by the clock of another
// machine; only that it changed counts.
func (l *Leases) record(lease *coordinationv1.Lease) {
	switch {
	case lease.Spec.RenewTime == nil:
	case lease.Namespace == corev1.NamespaceNodeLease:
		l.Observer.Kubelet(lease.Name, lease.Spec.RenewTime.Time)
	case lease.Namespace == l.Namespace && lease.Name == SelfHeartbeatName:
		l.Observer.SelfHeartbeat(l.Source)
	}
}

// writeSelfHeartbeat writes the Lease of this process, without reading it.
func (l *Leases) writeSelfHeartbeat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, selfHeartbeatPeriod)
	defer cancel()
	marks := map[string]string{moorv1alpha1.LabelHeartbeat: ""}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: SelfHeartbeatName, Labels: marks}}
	renewed := metav1.NewMicroTime(l.Clock.Now())
	patch, err := json.Marshal(coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Labels: marks}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}})
	if err != nil {
		return fmt.Errorf("encode lease %s: %w", SelfHeartbeatName, err)
	}
	err = l.Cluster.Client.Patch(ctx, lease, client.RawPatch(types.MergePatchType, patch))
	if kube.IsNotFound(err) {
		lease.Spec.RenewTime = &renewed
		err = l.Cluster.Client.Create(ctx, lease)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("write lease %s/%s to hear oneself: %w", l.Namespace, SelfHeartbeatName, err)
	}
	return nil
}
