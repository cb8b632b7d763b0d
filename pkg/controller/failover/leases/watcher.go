// Package leases hears the kubelets, by their Leases, and snap-host-controller
// itself, by one that it writes in each cluster. What is heard goes to the observer
// of heartbeats.
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

// EchoName is the Lease that snap-host-controller writes to hear itself.
const EchoName = "snap-host-controller-echo"

// echoPeriod is the time between two echoes. Silence is measured up to what was
// heard last, so this much is lost of it where few beat.
const echoPeriod = time.Second

// LeastSilence is the least that may be asked for before silence counts: the
// observer takes itself for deaf after half of it, so several echoes have to fall
// into that.
const LeastSilence = 4 * echoPeriod

// Watcher watches the Leases of one cluster, and its own heartbeat in it, the echo:
// an API server that takes no writes, or a watch that is stuck, makes all silent,
// and the echo too.
type Watcher struct {
	// Source is what the observer calls the cluster.
	Source nodehealth.Cluster
	// Cluster is the cluster. Its cache holds the Leases of the kubelets and the
	// echo, and no others; the echo is written into Namespace.
	Cluster   kube.Cluster
	Namespace string
	Observer  *nodehealth.Observer
	Clock     clock.WithTicker
}

// Start watches and writes the echo until ctx ends. It is a manager.Runnable of the
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
	ticker := w.Clock.NewTicker(echoPeriod)
	defer ticker.Stop()
	for {
		if err := w.writeEcho(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).WithName("echo").Error(err, "silence will not be judged")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// record takes notice of a Lease. What it holds is the clock of another machine;
// that it changed is all that counts.
func (w *Watcher) record(l *coordinationv1.Lease) {
	switch {
	case l.Spec.RenewTime == nil:
	case l.Namespace == corev1.NamespaceNodeLease:
		w.Observer.Kubelet(l.Name, l.Spec.RenewTime.Time)
	case l.Namespace == w.Namespace && l.Name == EchoName:
		w.Observer.Echo(w.Source)
	}
}

// writeEcho writes the echo.
func (w *Watcher) writeEcho(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, echoPeriod)
	defer cancel()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: EchoName}}
	renewed := metav1.NewMicroTime(w.Clock.Now())
	patch, err := json.Marshal(coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}})
	if err != nil {
		return fmt.Errorf("encode lease %s: %w", EchoName, err)
	}
	err = w.Cluster.Client.Patch(ctx, lease, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		lease.Spec.RenewTime = &renewed
		err = w.Cluster.Client.Create(ctx, lease)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("write lease %s/%s to hear oneself: %w", w.Namespace, EchoName, err)
	}
	return nil
}
