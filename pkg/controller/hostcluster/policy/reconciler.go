// Package policy mirrors DPUStoragePolicies to the DPU cluster and says
// whether they can serve volumes.
package policy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// Reconciler keeps one DPUStoragePolicy and its mirror in step.
type Reconciler struct {
	Clusters hostcluster.Clusters
}

// SetupWithManager watches policies and vendors here, and mirrors there.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	mirrors := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, o *storagev1alpha1.StoragePolicy) []reconcile.Request {
		return []reconcile.Request{kube.RequestFor(r.Clusters.Namespace, o.Name)}
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("dpustoragepolicy").
		For(&storagev1alpha1.DPUStoragePolicy{}).
		Watches(&storagev1alpha1.DPUStorageVendor{}, handler.EnqueueRequestsFromMapFunc(r.ofVendor)).
		WatchesRawSource(source.Kind(r.Clusters.DPU.Cache, &storagev1alpha1.StoragePolicy{}, mirrors)).
		Complete(kube.Retrying(r))
}

// Reconcile brings the mirror and the status up to date.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	policy := &storagev1alpha1.DPUStoragePolicy{}
	found, err := kube.Find(ctx, r.Clusters.Host.Client, req.NamespacedName, policy)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	if !policy.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.remove(ctx, policy)
	}
	if _, err := kube.AddFinalizer(ctx, r.Clusters.Host.Client, policy, r.Clusters.Finalizer(storagev1alpha1.FinalizerDPUStoragePolicy)); err != nil {
		return ctrl.Result{}, err
	}
	mirror, mirrorErr := r.mirror(ctx, policy)
	invalid, err := r.invalid(ctx, policy)
	if err != nil {
		return ctrl.Result{}, err
	}
	err = hostcluster.PatchShared(ctx, r.Clusters, policy, func(p *storagev1alpha1.DPUStoragePolicy) {
		r.status(p, mirror, invalid, mirrorErr)
	})
	if mirrorErr != nil {
		return ctrl.Result{}, mirrorErr
	}
	return ctrl.Result{}, err
}

// algorithm translates the host cluster's word into the DPU cluster's.
func algorithm(a storagev1alpha1.SelectionAlgorithm) storagev1alpha1.StorageSelectionAlg {
	if a == storagev1alpha1.SelectRandom {
		return storagev1alpha1.AlgRandom
	}
	return storagev1alpha1.AlgLocalNVolumes
}

func (r *Reconciler) mirror(ctx context.Context, policy *storagev1alpha1.DPUStoragePolicy) (*storagev1alpha1.StoragePolicy, error) {
	want := storagev1alpha1.StoragePolicySpec{
		StorageVendors:      slices.Clone(policy.Spec.DPUStorageVendors),
		StorageParameters:   maps.Clone(policy.Spec.Parameters),
		StorageSelectionAlg: algorithm(policy.Spec.SelectionAlgorithm),
	}
	mirror := &storagev1alpha1.StoragePolicy{}
	found, err := kube.Find(ctx, r.Clusters.DPU.Client, r.Clusters.Target(policy.Name), mirror)
	if err != nil {
		return nil, err
	}
	if !found {
		mirror = &storagev1alpha1.StoragePolicy{
			ObjectMeta: metav1.ObjectMeta{
				Name: policy.Name, Namespace: r.Clusters.TargetNamespace,
				Labels: map[string]string{storagev1alpha1.LabelOwnerUID: string(policy.UID)},
			},
			Spec: want,
		}
		if made, err := kube.Create(ctx, r.Clusters.DPU.Client, mirror); err != nil || made {
			return mirror, err
		}
	}
	_, err = kube.Patch(ctx, r.Clusters.DPU.Client, mirror, func(m *storagev1alpha1.StoragePolicy) {
		m.Spec = want
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		m.Labels[storagev1alpha1.LabelOwnerUID] = string(policy.UID)
	})
	return mirror, err
}

// invalid says which of the policy's vendors cannot serve; "" if all
// can.
func (r *Reconciler) invalid(ctx context.Context, policy *storagev1alpha1.DPUStoragePolicy) (string, error) {
	var words []string
	for _, name := range policy.Spec.DPUStorageVendors {
		vendor := &storagev1alpha1.DPUStorageVendor{}
		found, err := kube.Find(ctx, r.Clusters.Host.Client, client.ObjectKey{Namespace: policy.Namespace, Name: name}, vendor)
		if err != nil {
			return "", err
		}
		if !found {
			words = append(words, fmt.Sprintf("DPUStorageVendor %s does not exist in namespace %s", name, policy.Namespace))
			continue
		}
		valid := meta.FindStatusCondition(vendor.Status.Conditions, r.Clusters.In(storagev1alpha1.ConditionValid))
		switch {
		case valid == nil:
			words = append(words, fmt.Sprintf("DPUStorageVendor %s has not been checked yet", name))
		case valid.Status != metav1.ConditionTrue:
			words = append(words, fmt.Sprintf("DPUStorageVendor %s: %s", name, valid.Message))
		}
	}
	return strings.Join(words, "; "), nil
}

// status rebuilds the status.
func (r *Reconciler) status(p *storagev1alpha1.DPUStoragePolicy, mirror *storagev1alpha1.StoragePolicy, invalid string, mirrorErr error) {
	c, conditions := r.Clusters, kube.Conditions{List: &p.Status.Conditions, Generation: p.Generation}
	valid, reconciled := c.In(storagev1alpha1.ConditionValid), c.In(storagev1alpha1.ConditionDPUStoragePolicyReconciled)
	p.Status.ObservedGeneration = p.Generation
	var here *storagev1alpha1.PolicyCapacity
	if mirror != nil {
		here = mirror.Status.Capacity
	}
	p.Status.Capacity = c.Capacity(p.Status.Capacity, here)
	switch {
	case invalid != "":
		conditions.False(valid, storagev1alpha1.ReasonError, invalid)
	case mirror == nil || mirror.Status.State == "":
		conditions.False(valid, storagev1alpha1.ReasonPending, "waiting for snap-controller in the DPU cluster to check the policy")
	case mirror.Status.State != storagev1alpha1.StoragePolicyValid:
		conditions.False(valid, storagev1alpha1.ReasonError, mirror.Status.Message)
	default:
		conditions.True(valid)
	}
	conditions.Reconciled(reconciled, kube.Settle(mirrorErr, time.Time{}))
	c.SumUp(conditions, storagev1alpha1.ConditionValid, true)
	c.SumUp(conditions, storagev1alpha1.ConditionDPUStoragePolicyReconciled, false)
	conditions.Summarize(storagev1alpha1.ConditionReady, storagev1alpha1.ConditionValid, storagev1alpha1.ConditionDPUStoragePolicyReconciled)
}

func (r *Reconciler) remove(ctx context.Context, policy *storagev1alpha1.DPUStoragePolicy) error {
	mirror := &storagev1alpha1.StoragePolicy{}
	found, err := r.Clusters.OwnMirror(ctx, policy, mirror)
	if err != nil {
		return err
	}
	if found {
		if err := kube.Delete(ctx, r.Clusters.DPU.Client, mirror); err != nil {
			return err
		}
	}
	return kube.RemoveFinalizers(ctx, r.Clusters.Host.Client, policy, storagev1alpha1.FinalizerDPUStoragePolicy, r.Clusters.Finalizer(storagev1alpha1.FinalizerDPUStoragePolicy))
}

func (r *Reconciler) ofVendor(ctx context.Context, o client.Object) []reconcile.Request {
	return kube.RequestsOf(ctx, r.Clusters.Host.Client, &storagev1alpha1.DPUStoragePolicyList{},
		client.InNamespace(o.GetNamespace()), client.MatchingFields{index.DPUStoragePolicyByVendor: o.GetName()})
}
