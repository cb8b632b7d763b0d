// Package leases hears the kubelets, by their Leases, and snap-host-controller
// itself, by a Lease that it writes in each cluster. What is heard goes to the
// observer of heartbeats.
package leases

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

// Watcher watches the Leases of one cluster, and writes and watches a heartbeat of
// this process in it: if the API server takes no writes, or a watch is stuck, all
// are silent, and so is this process.
type Watcher struct {
	// Source is what the observer calls the cluster.
	Source nodehealth.Cluster
	// Cluster is the cluster. Its cache holds the Leases of the kubelets and
	// of this process, and no others; the latter is in Namespace.
	Cluster   kube.Cluster
	Namespace string
	Observer  *nodehealth.Observer
	Clock     clock.WithTicker
}

// Start watches Leases and writes its own until ctx ends. It is a manager.Runnable of the
// leader alone.
func (w *Watcher) Start(ctx context.Context) error {
	informer, err := w.Cluster.Cache.GetInformer(ctx, &coordinationv1.Lease{})
	if err != nil {
		return fmt.Errorf("watch leases: %w", err)
	}
	record := func(o any) {
		if l, ok := o.(*coordinationv1.Lease); ok {
			w.record(l)
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: record, UpdateFunc: func(_, o any) { record(o) },
	})
	if err != nil {
		return fmt.Errorf("watch leases: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }()
	ticker := w.Clock.NewTicker(selfHeartbeatPeriod)
	defer ticker.Stop()
	for {
		if err := w.writeSelfHeartbeat(ctx); err != nil && ctx.Err() == nil {
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
func (w *Watcher) record(l *coordinationv1.Lease) {
	switch {
	case l.Spec.RenewTime == nil:
	case l.Namespace == corev1.NamespaceNodeLease:
		w.Observer.Kubelet(l.Name, l.Spec.RenewTime.Time)
	case l.Namespace == w.Namespace && l.Name == SelfHeartbeatName:
		w.Observer.SelfHeartbeat(w.Source)
	}
}

// writeSelfHeartbeat writes the Lease of this process, without reading it.
func (w *Watcher) writeSelfHeartbeat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, selfHeartbeatPeriod)
	defer cancel()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: SelfHeartbeatName}}
	renewed := metav1.NewMicroTime(w.Clock.Now())
	patch, err := json.Marshal(coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}})
	if err != nil {
		return fmt.Errorf("encode lease %s: %w", SelfHeartbeatName, err)
	}
	err = w.Cluster.Client.Patch(ctx, lease, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		lease.Spec.RenewTime = &renewed
		err = w.Cluster.Client.Create(ctx, lease)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("write lease %s/%s to hear oneself: %w", w.Namespace, SelfHeartbeatName, err)
	}
	return nil
}
