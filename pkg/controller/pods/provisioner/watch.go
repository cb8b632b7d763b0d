package provisioner

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// SetupWithManager watches provisioners and what there is of them, and has their controllers run in the
// manager, over its informers.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	s, err := r.over(ctx, mgr)
	if err != nil {
		return err
	}
	r.serves = s
	if err := mgr.Add(s); err != nil {
		return fmt.Errorf("have the controllers of provisioners run: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("pavprovisioner").
		For(&pavv1alpha1.PavProvisioner{}).
		Owns(&storagev1.CSIDriver{}).
		Watches(&moorv1alpha1.PodVolume{}, handler.EnqueueRequestsFromMapFunc(ofVolume), builder.WithPredicates(counted)).
		Watches(&moorv1alpha1.PodStaging{}, handler.EnqueueRequestsFromMapFunc(ofStaging), builder.WithPredicates(counted)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.ofPersistentVolume), builder.WithPredicates(counted)).
		Complete(kube.Retrying(r))
}

// over are the controllers of provisioners over the informers of a manager.
func (r *Reconciler) over(ctx context.Context, mgr ctrl.Manager) (*servers, error) {
	clients, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client for the controllers of provisioners: %w", err)
	}
	s := &servers{client: clients, started: make(chan struct{})}
	for _, i := range []struct {
		kind client.Object
		into *toolscache.SharedIndexInformer
	}{{&corev1.PersistentVolumeClaim{}, &s.claims}, {&corev1.PersistentVolume{}, &s.volumes}, {&storagev1.StorageClass{}, &s.classes}} {
		informer, err := mgr.GetCache().GetInformer(ctx, i.kind)
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", i.kind, err)
		}
		shared, is := informer.(toolscache.SharedIndexInformer)
		if !is {
			return nil, fmt.Errorf("the cache watches %T in some namespaces alone, and claims are in all: have it watch all", i.kind)
		}
		*i.into = shared
	}
	volumes, err := kube.NewAwaiter(ctx, mgr.GetCache(), func() *moorv1alpha1.PodVolume { return &moorv1alpha1.PodVolume{} })
	if err != nil {
		return nil, err
	}
	informer, err := mgr.GetCache().GetInformer(ctx, &moorv1alpha1.PodVolume{})
	if err == nil {
		_, err = informer.AddEventHandler(s.onVolumes())
	}
	if err != nil {
		return nil, fmt.Errorf("watch PodVolumes: %w", err)
	}
	s.driver = func(name string) controller.Provisioner {
		return &driver{name: name, Cluster: r.Cluster, provisioners: r.Provisioners, clock: clock.RealClock{}, await: awaits(volumes)}
	}
	return s, nil
}

func awaits(volumes *kube.Awaiter[*moorv1alpha1.PodVolume]) func(context.Context, string, func(*moorv1alpha1.PodVolume) bool) error {
	return func(ctx context.Context, name string, done func(*moorv1alpha1.PodVolume) bool) error {
		_, err := volumes.Await(ctx, types.NamespacedName{Name: name}, func(v *moorv1alpha1.PodVolume, found bool) (bool, error) {
			if !found {
				v = nil
			}
			return done(v), nil
		})
		return err
	}
}

// counted lets pass what changes what a status counts.
var counted = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return phaseOf(e.ObjectOld) != phaseOf(e.ObjectNew) }}

func phaseOf(o client.Object) string {
	switch o := o.(type) {
	case *moorv1alpha1.PodVolume:
		return string(o.Status.Phase)
	case *moorv1alpha1.PodStaging:
		return string(o.Status.Phase)
	}
	return ""
}

func ofVolume(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{kube.RequestFor("", o.(*moorv1alpha1.PodVolume).Spec.ProvisionerName)}
}

func ofStaging(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{kube.RequestFor("", o.(*moorv1alpha1.PodStaging).Spec.ProvisionerName)}
}

// ofPersistentVolume is the provisioner of a PersistentVolume, if the driver is one.
func (r *Reconciler) ofPersistentVolume(ctx context.Context, o client.Object) []reconcile.Request {
	source := o.(*corev1.PersistentVolume).Spec.CSI
	if source == nil {
		return nil
	}
	found, err := kube.Find(ctx, r.Client, types.NamespacedName{Name: source.Driver}, &pavv1alpha1.PavProvisioner{}, client.UnsafeDisableDeepCopy)
	if err != nil || !found {
		return nil
	}
	return []reconcile.Request{kube.RequestFor("", source.Driver)}
}
