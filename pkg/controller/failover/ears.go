package failover

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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// Ear listens to the Leases of one cluster, and to its own echo in it: an API
// server that takes no writes, or a watch that is stuck, makes everybody
// silent, and the echo too.
type Ear struct {
	Cluster nodehealth.Cluster
	// Cache watches the Leases of the kubelets and the echo, and no others.
	Cache cache.Cache
	// Client writes the echo into Namespace.
	Client    client.Client
	Namespace string
	Observer  *nodehealth.Observer
	Clock     clock.WithTicker
}

// Start listens and calls until ctx ends. It is a manager.Runnable of the
// leader alone.
func (e *Ear) Start(ctx context.Context) error {
	informer, err := e.Cache.GetInformer(ctx, &coordinationv1.Lease{})
	if err != nil {
		return fmt.Errorf("watch leases: %w", err)
	}
	heed := func(o any) {
		if l, ok := o.(*coordinationv1.Lease); ok {
			e.heed(l)
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: heed, UpdateFunc: func(_, o any) { heed(o) },
	})
	if err != nil {
		return fmt.Errorf("watch leases: %w", err)
	}
	defer func() { _ = informer.RemoveEventHandler(registration) }()
	ticker := e.Clock.NewTicker(echoPeriod)
	defer ticker.Stop()
	for {
		if err := e.call(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).WithName("echo").Error(err, "silence will not be judged")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// heed takes notice of a Lease. What it holds is the clock of another machine;
// that it changed is all that counts.
func (e *Ear) heed(l *coordinationv1.Lease) {
	switch {
	case l.Spec.RenewTime == nil:
	case l.Namespace == corev1.NamespaceNodeLease:
		e.Observer.Kubelet(l.Name, l.Spec.RenewTime.Time)
	case l.Namespace == e.Namespace && l.Name == EchoName:
		e.Observer.Echo(e.Cluster)
	}
}

// call writes the echo.
func (e *Ear) call(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, echoPeriod)
	defer cancel()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: EchoName}}
	renewed := metav1.NewMicroTime(e.Clock.Now())
	patch, err := json.Marshal(coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}})
	if err != nil {
		return fmt.Errorf("encode lease %s: %w", EchoName, err)
	}
	err = e.Client.Patch(ctx, lease, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		lease.Spec.RenewTime = &renewed
		err = e.Client.Create(ctx, lease)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("write lease %s/%s to hear oneself: %w", e.Namespace, EchoName, err)
	}
	return nil
}
