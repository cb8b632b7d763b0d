// Package policy says of every StoragePolicy of the DPU cluster whether it
// can serve volumes, and if not, what is missing. It writes nothing but
// StoragePolicy.status.
package policy

import (
	"context"
	"fmt"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

// Reconciler keeps StoragePolicy.status true.
type Reconciler struct {
	// DPU has the indexes of index.DPU.
	DPU kube.Cluster
}

// SetupWithManager registers the reconciler and its watches.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("storagepolicy").
		For(&storagev1alpha1.StoragePolicy{}).
		Watches(&storagev1alpha1.StorageVendor{}, handler.EnqueueRequestsFromMapFunc(r.ofVendor)).
		Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(r.ofStorageClass)).
		Watches(&storagev1.CSIStorageCapacity{}, handler.EnqueueRequestsFromMapFunc(r.ofCapacity)).
		Complete(kube.Retrying(r))
}

// Reconcile looks up every vendor and StorageClass that the policy names, and
// writes the finding if it differs.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	policy := &storagev1alpha1.StoragePolicy{}
	found, err := kube.Find(ctx, r.DPU.Client, req.NamespacedName, policy)
	if err != nil || !found || !policy.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, err
	}
	vendors, err := r.vendors(ctx, policy)
	if err != nil {
		return ctrl.Result{}, err
	}
	status := Judge(vendors)
	if status.Capacity, err = r.capacity(ctx, vendors); err != nil {
		return ctrl.Result{}, err
	}
	_, err = kube.PatchStatus(ctx, r.DPU.Client, policy, func(p *storagev1alpha1.StoragePolicy) { p.Status = status })
	return ctrl.Result{}, kube.IgnoreNotFound(err)
}

func (r *Reconciler) vendors(ctx context.Context, policy *storagev1alpha1.StoragePolicy) ([]Vendor, error) {
	out := make([]Vendor, 0, len(policy.Spec.StorageVendors))
	for _, name := range policy.Spec.StorageVendors {
		vendor := &storagev1alpha1.StorageVendor{}
		found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Namespace: policy.Namespace, Name: name}, vendor)
		if err != nil {
			return nil, err
		}
		v := Vendor{Name: name, Exists: found, StorageClass: vendor.Spec.StorageClassName}
		if found {
			class := types.NamespacedName{Name: v.StorageClass}
			if v.StorageClassExists, err = kube.Find(ctx, r.DPU.Client, class, &storagev1.StorageClass{}); err != nil {
				return nil, err
			}
		}
		out = append(out, v)
	}
	return out, nil
}

// Vendor is what was seen of one vendor that a policy names.
type Vendor struct {
	Name               string
	Exists             bool
	StorageClass       string
	StorageClassExists bool
}

// Judge decides whether a policy with these vendors is valid: it names at
// least one, and each exists together with its StorageClass. The message
// names everything that is missing.
func Judge(vendors []Vendor) storagev1alpha1.StoragePolicyStatus {
	var missing []string
	for _, v := range vendors {
		switch {
		case !v.Exists:
			missing = append(missing, fmt.Sprintf("StorageVendor %s does not exist", v.Name))
		case !v.StorageClassExists:
			missing = append(missing, fmt.Sprintf("StorageClass %s of StorageVendor %s does not exist", v.StorageClass, v.Name))
		}
	}
	if len(vendors) == 0 {
		missing = append(missing, "the policy names no StorageVendor")
	}
	if len(missing) == 0 {
		return storagev1alpha1.StoragePolicyStatus{State: storagev1alpha1.StoragePolicyValid}
	}
	return storagev1alpha1.StoragePolicyStatus{
		State:   storagev1alpha1.StoragePolicyInvalid,
		Message: strings.Join(missing, "; "),
	}
}

func (r *Reconciler) ofVendor(ctx context.Context, vendor client.Object) []reconcile.Request {
	return kube.RequestsOf(ctx, r.DPU.Client, &storagev1alpha1.StoragePolicyList{},
		client.InNamespace(vendor.GetNamespace()), client.MatchingFields{index.StoragePolicyByVendor: vendor.GetName()})
}

func (r *Reconciler) ofCapacity(ctx context.Context, o client.Object) []reconcile.Request {
	return r.ofClassName(ctx, o.(*storagev1.CSIStorageCapacity).StorageClassName)
}

func (r *Reconciler) ofStorageClass(ctx context.Context, class client.Object) []reconcile.Request {
	return r.ofClassName(ctx, class.GetName())
}

func (r *Reconciler) ofClassName(ctx context.Context, class string) []reconcile.Request {
	vendors := &storagev1alpha1.StorageVendorList{}
	if err := r.DPU.Client.List(ctx, vendors, client.MatchingFields{index.StorageVendorByClass: class}); err != nil {
		log.FromContext(ctx).Error(err, "find the vendors of a StorageClass", "storageClass", class)
		return nil
	}
	var out []reconcile.Request
	for i := range vendors.Items {
		out = append(out, r.ofVendor(ctx, &vendors.Items[i])...)
	}
	return out
}
