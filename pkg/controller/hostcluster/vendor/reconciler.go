// Package vendor mirrors DPUStorageVendors to the DPU cluster and says whether
// the vendor is really there: its StorageClass and that class's CSIDriver; and
// whether it is set up as is recommended.
package vendor

import (
	"context"
	"fmt"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// Reconciler keeps one DPUStorageVendor and its mirror in step.
type Reconciler struct {
	Clusters hostcluster.Clusters
}

// SetupWithManager watches vendors here, and mirrors, classes and drivers
// there.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	remote := r.Clusters.DPU.Cache
	return ctrl.NewControllerManagedBy(mgr).
		Named("dpustoragevendor").
		For(&storagev1alpha1.DPUStorageVendor{}).
		Watches(&storagev1alpha1.DPUStorageVendor{}, handler.EnqueueRequestsFromMapFunc(r.others), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&storagev1alpha1.DPUStoragePolicy{}, handler.EnqueueRequestsFromMapFunc(r.ofPolicy)).
		WatchesRawSource(source.Kind(remote, &storagev1alpha1.StorageVendor{}, r.byName())).
		WatchesRawSource(source.Kind(remote, &storagev1.StorageClass{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofClass))).
		WatchesRawSource(source.Kind(remote, &storagev1.CSIDriver{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofDriver))).
		Complete(kube.Retrying(r))
}

// Reconcile brings the mirror and the status up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	vendor := &storagev1alpha1.DPUStorageVendor{}
	found, err := kube.Find(ctx, r.Clusters.Host.Client, req.NamespacedName, vendor)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	if !vendor.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.remove(ctx, vendor)
	}
	if _, err := kube.AddFinalizer(ctx, r.Clusters.Host.Client, vendor, r.Clusters.Finalizer(storagev1alpha1.FinalizerDPUStorageVendor)); err != nil {
		return ctrl.Result{}, err
	}
	mirrorErr := r.mirror(ctx, vendor)
	class, err := r.class(ctx, vendor)
	if err != nil {
		return ctrl.Result{}, err
	}
	missing, err := r.missing(ctx, vendor, class)
	if err != nil {
		return ctrl.Result{}, err
	}
	warnings, err := r.warnings(ctx, vendor, class)
	if err != nil {
		return ctrl.Result{}, err
	}
	err = hostcluster.PatchShared(ctx, r.Clusters, vendor, func(v *storagev1alpha1.DPUStorageVendor) {
		r.status(v, missing, warnings, mirrorErr)
	})
	if mirrorErr != nil {
		return ctrl.Result{}, mirrorErr
	}
	return ctrl.Result{}, err
}

func (r *Reconciler) mirror(ctx context.Context, vendor *storagev1alpha1.DPUStorageVendor) error {
	want := storagev1alpha1.StorageVendorSpec{
		StorageClassName: vendor.Spec.StorageClassName, PluginName: vendor.Spec.PluginName, MaxShares: vendor.Spec.MaxShares,
	}
	mirror := &storagev1alpha1.StorageVendor{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Client, r.Clusters.Target(vendor.Name), mirror)
	if err != nil {
		return err
	}
	if !found {
		mirror = &storagev1alpha1.StorageVendor{
			ObjectMeta: metav1.ObjectMeta{
				Name: vendor.Name, Namespace: r.Clusters.TargetNamespace,
				Labels: map[string]string{storagev1alpha1.LabelOwnerUID: string(vendor.UID)},
			},
			Spec: want,
		}
		if made, err := kube.Create(ctx, r.Clusters.DPU.Client, mirror); err != nil || made {
			return err
		}
	}
	_, err = kube.Patch(ctx, r.Clusters.DPU.Client, mirror, func(m *storagev1alpha1.StorageVendor) {
		m.Spec = want
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		m.Labels[storagev1alpha1.LabelOwnerUID] = string(vendor.UID)
	})
	return err
}

// class is the vendor's StorageClass in the DPU cluster; nil if there is none.
func (r *Reconciler) class(ctx context.Context, vendor *storagev1alpha1.DPUStorageVendor) (*storagev1.StorageClass, error) {
	class := &storagev1.StorageClass{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Client, client.ObjectKey{Name: vendor.Spec.StorageClassName}, class)
	if err != nil || !found {
		return nil, err
	}
	return class, nil
}

// missing says what the vendor lacks in the DPU cluster; "" if
// nothing.
func (r *Reconciler) missing(ctx context.Context, vendor *storagev1alpha1.DPUStorageVendor, class *storagev1.StorageClass) (string, error) {
	if class == nil {
		return fmt.Sprintf("StorageClass %s does not exist in DPU cluster %s: install the vendor's CSI controller there, or correct spec.storageClassName",
			vendor.Spec.StorageClassName, r.Clusters.DPUClusterName), nil
	}
	found, err := kube.Find(ctx, r.Clusters.DPU.Client, client.ObjectKey{Name: class.Provisioner}, &storagev1.CSIDriver{})
	if err != nil {
		return "", err
	}
	if !found {
		return fmt.Sprintf("CSIDriver %s, the provisioner of StorageClass %s, does not exist in DPU cluster %s: install the vendor's CSI driver there",
			class.Provisioner, class.Name, r.Clusters.DPUClusterName), nil
	}
	return "", nil
}

func (r *Reconciler) status(v *storagev1alpha1.DPUStorageVendor, missing string, warnings []string, mirrorErr error) {
	c, conditions := r.Clusters, kube.Conditions{List: &v.Status.Conditions, Generation: v.Generation}
	v.Status.ObservedGeneration = v.Generation
	v.Status.DPUClusters = c.Listed(v.Status.DPUClusters, missing == "")
	if missing == "" {
		conditions.True(c.In(storagev1alpha1.ConditionValid))
	} else {
		conditions.False(c.In(storagev1alpha1.ConditionValid), storagev1alpha1.ReasonError, missing)
	}
	if len(warnings) == 0 {
		conditions.True(c.In(storagev1alpha1.ConditionAsRecommended))
	} else {
		conditions.False(c.In(storagev1alpha1.ConditionAsRecommended), storagev1alpha1.ReasonWarning, strings.Join(warnings, "; "))
	}
	if mirrorErr == nil {
		conditions.True(c.In(storagev1alpha1.ConditionDPUStorageVendorReconciled))
	} else {
		conditions.False(c.In(storagev1alpha1.ConditionDPUStorageVendorReconciled), storagev1alpha1.ReasonError, mirrorErr.Error())
	}
	c.SumUp(conditions, storagev1alpha1.ConditionValid, true)
	c.SumUp(conditions, storagev1alpha1.ConditionAsRecommended, false)
	c.SumUp(conditions, storagev1alpha1.ConditionDPUStorageVendorReconciled, false)
	conditions.Summarize(storagev1alpha1.ConditionReady, storagev1alpha1.ConditionValid, storagev1alpha1.ConditionDPUStorageVendorReconciled)
}

// remove deletes the mirror, unless a policy still names the vendor.
func (r *Reconciler) remove(ctx context.Context, vendor *storagev1alpha1.DPUStorageVendor) error {
	users, err := r.users(ctx, vendor)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		_, err := kube.PatchStatus(ctx, r.Clusters.Host.Client, vendor, func(v *storagev1alpha1.DPUStorageVendor) {
			conditions := kube.Conditions{List: &v.Status.Conditions, Generation: v.Generation}
			conditions.False(storagev1alpha1.ConditionDPUStorageVendorReconciled, storagev1alpha1.ReasonAwaitingDeletion,
				"still named by DPUStoragePolicy "+strings.Join(users, ", "))
			conditions.Summarize(storagev1alpha1.ConditionReady, storagev1alpha1.ConditionDPUStorageVendorReconciled)
		})
		return err
	}
	mirror := &storagev1alpha1.StorageVendor{}
	found, err := r.Clusters.OwnMirror(ctx, vendor, mirror)
	if err != nil {
		return err
	}
	if found {
		if err := kube.Delete(ctx, r.Clusters.DPU.Client, mirror); err != nil {
			return err
		}
	}
	return kube.RemoveFinalizers(ctx, r.Clusters.Host.Client, vendor, storagev1alpha1.FinalizerDPUStorageVendor, r.Clusters.Finalizer(storagev1alpha1.FinalizerDPUStorageVendor))
}

func (r *Reconciler) users(ctx context.Context, vendor *storagev1alpha1.DPUStorageVendor) ([]string, error) {
	var policies storagev1alpha1.DPUStoragePolicyList
	err := r.Clusters.Host.Client.List(ctx, &policies, client.InNamespace(vendor.Namespace), client.MatchingFields{index.DPUStoragePolicyByVendor: vendor.Name})
	if err != nil {
		return nil, fmt.Errorf("list the policies that name vendor %s: %w", vendor.Name, err)
	}
	var names []string
	for i := range policies.Items {
		names = append(names, policies.Items[i].Name)
	}
	return names, nil
}

func (r *Reconciler) byName() handler.TypedEventHandler[*storagev1alpha1.StorageVendor, reconcile.Request] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o *storagev1alpha1.StorageVendor) []reconcile.Request {
		return []reconcile.Request{kube.RequestFor(r.Clusters.Namespace, o.Name)}
	})
}

func (r *Reconciler) ofClass(ctx context.Context, o *storagev1.StorageClass) []reconcile.Request {
	return kube.RequestsOf(ctx, r.Clusters.Host.Client, &storagev1alpha1.DPUStorageVendorList{},
		client.InNamespace(r.Clusters.Namespace), client.MatchingFields{index.DPUStorageVendorByClass: o.Name})
}

// ofDriver wakes every vendor: CSIDrivers come and go rarely.
func (r *Reconciler) ofDriver(ctx context.Context, _ *storagev1.CSIDriver) []reconcile.Request {
	return kube.RequestsOf(ctx, r.Clusters.Host.Client, &storagev1alpha1.DPUStorageVendorList{}, client.InNamespace(r.Clusters.Namespace))
}

// ofPolicy wakes the vendors that a policy names: one of them may be waiting
// for the policy to let go.
func (r *Reconciler) ofPolicy(_ context.Context, o client.Object) []reconcile.Request {
	var out []reconcile.Request
	for _, name := range o.(*storagev1alpha1.DPUStoragePolicy).Spec.DPUStorageVendors {
		out = append(out, kube.RequestFor(o.GetNamespace(), name))
	}
	return out
}
