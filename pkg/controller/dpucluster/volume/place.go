package volume

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

// place chooses the vendor and writes the choice down together with the
// finalizer, in one patch that fails if the Volume has changed since it was
// read. So a choice is made once, before anything outside depends on it.
func (r *Reconciler) place(ctx context.Context, v *storagev1alpha1.Volume) error {
	if placed(v) {
		r.choices.forget(client.ObjectKeyFromObject(v))
		_, err := kube.AddFinalizer(ctx, r.DPU.Client, v, storagev1alpha1.FinalizerVolume)
		return err
	}
	policy, err := r.policy(ctx, v)
	if err != nil {
		return err
	}
	vendor, class, err := r.vendor(ctx, v, policy)
	if err != nil {
		return err
	}
	_, err = kube.PatchExact(ctx, r.DPU.Client, v, func(v *storagev1alpha1.Volume) {
		controllerutil.AddFinalizer(v, storagev1alpha1.FinalizerVolume)
		record(v, policy, vendor, class)
	})
	if err != nil {
		r.choices.forget(client.ObjectKeyFromObject(v))
	}
	return err
}

func placed(v *storagev1alpha1.Volume) bool {
	return v.Spec.Volume.StorageVendorName != "" && v.Spec.Volume.CSIReference.PVCRef != nil
}

func record(v *storagev1alpha1.Volume, policy *storagev1alpha1.StoragePolicy, vendor *storagev1alpha1.StorageVendor, class *storagev1.StorageClass) {
	v.Spec.StoragePolicyRef = &storagev1alpha1.ObjectRef{
		Kind: "StoragePolicy", APIVersion: storagev1alpha1.GroupVersion.String(), Name: policy.Name, Namespace: policy.Namespace,
	}
	v.Spec.StoragePolicyParameters = policy.Spec.StorageParameters
	v.Spec.Volume.StorageVendorName = vendor.Name
	v.Spec.Volume.StorageVendorPluginName = vendor.Spec.PluginName
	v.Spec.Volume.CSIReference = storagev1alpha1.CSIReference{
		CSIDriverName:    class.Provisioner,
		StorageClassName: class.Name,
		PVCRef: &storagev1alpha1.ObjectRef{
			Kind: "PersistentVolumeClaim", APIVersion: "v1", Name: kube.ClaimName(v.Name), Namespace: v.Namespace,
		},
	}
}

// policy returns the valid policy that the volume names. A StoragePolicy that
// appears or becomes valid wakes the volume.
func (r *Reconciler) policy(ctx context.Context, v *storagev1alpha1.Volume) (*storagev1alpha1.StoragePolicy, error) {
	name := v.Spec.StorageParameters[storagev1alpha1.ParameterPolicy]
	if name == "" {
		return nil, kube.WaitFor("spec.storageParameters has no key %q: it has to name a StoragePolicy", storagev1alpha1.ParameterPolicy)
	}
	policy := &storagev1alpha1.StoragePolicy{}
	found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Namespace: v.Namespace, Name: name}, policy)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, kube.WaitFor("waiting for StoragePolicy %s, which does not exist", name)
	case policy.Status.State == "":
		return nil, kube.WaitSince(policy.CreationTimestamp.Time, "waiting for StoragePolicy %s to be checked", name)
	case policy.Status.State != storagev1alpha1.StoragePolicyValid:
		return nil, kube.WaitFor("waiting for StoragePolicy %s to become valid: %s", name, policy.Status.Message)
	case len(policy.Spec.StorageVendors) == 0:
		return nil, kube.WaitFor("waiting for StoragePolicy %s to name a StorageVendor", name)
	}
	return policy, nil
}

// vendor chooses a vendor of the policy, or takes the one already written
// down or that of the source, and reads it and its StorageClass. Either of them missing under a
// valid policy is an error: the policy's status is behind, so repeat.
func (r *Reconciler) vendor(ctx context.Context, v *storagev1alpha1.Volume, policy *storagev1alpha1.StoragePolicy) (*storagev1alpha1.StorageVendor, *storagev1.StorageClass, error) {
	name := v.Spec.Volume.StorageVendorName
	if name == "" {
		var err error
		if name, err = r.vendorOf(ctx, v, policy); err != nil {
			return nil, nil, err
		}
	}
	if name == "" {
		var err error
		if name, err = r.choose(ctx, v, policy); err != nil {
			return nil, nil, err
		}
	}
	return r.classOf(ctx, v.Namespace, name, policy)
}

// classOf reads a vendor and its StorageClass.
func (r *Reconciler) classOf(ctx context.Context, namespace, name string, policy *storagev1alpha1.StoragePolicy) (*storagev1alpha1.StorageVendor, *storagev1.StorageClass, error) {
	vendor, class := &storagev1alpha1.StorageVendor{}, &storagev1.StorageClass{}
	if err := r.DPU.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, vendor); err != nil {
		return nil, nil, fmt.Errorf("read StorageVendor %s of the valid StoragePolicy %s: %w", name, policy.Name, err)
	}
	if err := r.DPU.Client.Get(ctx, types.NamespacedName{Name: vendor.Spec.StorageClassName}, class); err != nil {
		return nil, nil, fmt.Errorf("read StorageClass %s of StorageVendor %s: %w", vendor.Spec.StorageClassName, name, err)
	}
	return vendor, class, nil
}

func (r *Reconciler) choose(ctx context.Context, v *storagev1alpha1.Volume, policy *storagev1alpha1.StoragePolicy) (string, error) {
	vendors, err := r.able(ctx, v, policy)
	if err != nil {
		return "", err
	}
	return r.choices.choose(client.ObjectKeyFromObject(v), func(made map[types.NamespacedName]string) (string, error) {
		candidates := make([]Candidate, len(vendors))
		for i, name := range vendors {
			n, err := r.countVolumes(ctx, v.Namespace, name, made)
			if err != nil {
				return "", err
			}
			candidates[i] = Candidate{Name: name, Volumes: n}
		}
		return SelectVendor(policy.Spec.StorageSelectionAlg, candidates, r.IntN), nil
	})
}

// countVolumes counts the volumes of a vendor: those which the cache shows,
// and those chosen for it which the cache does not show yet.
func (r *Reconciler) countVolumes(ctx context.Context, namespace, vendor string, made map[types.NamespacedName]string) (int, error) {
	list := &storagev1alpha1.VolumeList{}
	err := r.DPU.Client.List(ctx, list, client.InNamespace(namespace),
		client.MatchingFields{index.VolumeByVendor: vendor}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return 0, fmt.Errorf("count the volumes of StorageVendor %s: %w", vendor, err)
	}
	n := len(list.Items)
	for volume, of := range made {
		if of == vendor && !contains(list.Items, volume) {
			n++
		}
	}
	return n, nil
}

func contains(volumes []storagev1alpha1.Volume, key types.NamespacedName) bool {
	for i := range volumes {
		if client.ObjectKeyFromObject(&volumes[i]) == key {
			return true
		}
	}
	return false
}
