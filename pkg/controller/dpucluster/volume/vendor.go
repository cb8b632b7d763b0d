package volume

import (
	"context"
	"fmt"
	"slices"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

// chooseVendor chooses the vendor and writes the choice down together with the
// finalizer, in one patch that fails if the Volume has changed since it was
// read. So a choice is made once, before anything outside depends on it.
func (r *Reconciler) chooseVendor(ctx context.Context, v *storagev1alpha1.Volume) error {
	if hasVendor(v) {
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

func hasVendor(v *storagev1alpha1.Volume) bool {
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
			Kind: "PersistentVolumeClaim", APIVersion: "v1", Name: kube.PVCName(v.Name), Namespace: v.Namespace,
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
		if name, err = r.vendorOfSource(ctx, v, policy); err != nil {
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

// vendorOfSource is the vendor that has to make the copy; "" for a volume that begins
// empty, which any vendor of the policy may make.
func (r *Reconciler) vendorOfSource(ctx context.Context, v *storagev1alpha1.Volume, policy *storagev1alpha1.StoragePolicy) (string, error) {
	from, err := r.origin(ctx, v)
	if err != nil || from == nil {
		return "", err
	}
	if !slices.Contains(policy.Spec.StorageVendors, from.vendor) {
		return "", kube.WaitFor("%s is of StorageVendor %s, which StoragePolicy %s does not name: a copy is made by the vendor of its source; "+
			"ask for it under a policy that names that vendor", from.message, from.vendor, policy.Name)
	}
	return from.vendor, nil
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
	vendors, err := r.ableVendors(ctx, v, policy)
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

// choices are the vendors chosen so recently that the cache may not show them
// yet. They only keep volumes that arrive together from all going to the same
// vendor; the truth is in the Volumes. The zero value is ready.
type choices struct {
	mu   sync.Mutex
	made map[types.NamespacedName]string
}

// choose calls pick with the choices made so far and remembers its answer for
// the volume. Only one pick runs at a time.
func (c *choices) choose(volume types.NamespacedName, pick func(made map[types.NamespacedName]string) (string, error)) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.made, volume)
	vendor, err := pick(c.made)
	if err != nil {
		return "", err
	}
	if c.made == nil {
		c.made = map[types.NamespacedName]string{}
	}
	c.made[volume] = vendor
	return vendor, nil
}

// ableVendors are those of a policy's vendors that can make the volume where it is to
// be reached from: all of them, if that is anywhere.
func (r *Reconciler) ableVendors(ctx context.Context, v *storagev1alpha1.Volume, policy *storagev1alpha1.StoragePolicy) ([]string, error) {
	if len(v.Spec.Request.AccessibleFrom) == 0 {
		return policy.Spec.StorageVendors, nil
	}
	dpus, err := r.dpus(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range policy.Spec.StorageVendors {
		_, class, err := r.classOf(ctx, v.Namespace, name, policy)
		if err != nil {
			return nil, err
		}
		if !topologyAware(dpus, class.Provisioner) || len(bestNodes(dpus, constraintsOf(v, class, nil))) > 0 {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return nil, unreachablef("no vendor of StoragePolicy %s makes volumes that are reached from one of the places asked for: %s",
			policy.Name, describePlaces(v.Spec.Request.AccessibleFrom))
	}
	return out, nil
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

// Candidate is a vendor that may serve a volume.
type Candidate struct {
	Name string
	// Volumes that the vendor has already, of every policy.
	Volumes int
}

// SelectVendor chooses one of the candidates; there must be at least one.
// Random takes any with equal chance, by intN(n), which returns 0..n-1. Every
// other algorithm is LocalNVolumes: the fewest volumes, where a vendor with
// none is a candidate like any other; a tie goes to the first in alphabetical
// order.
func SelectVendor(alg storagev1alpha1.StorageSelectionAlg, candidates []Candidate, intN func(int) int) string {
	if alg == storagev1alpha1.AlgRandom {
		return candidates[intN(len(candidates))].Name
	}
	bestNodes := candidates[0]
	for _, c := range candidates[1:] {
		if c.Volumes < bestNodes.Volumes || c.Volumes == bestNodes.Volumes && c.Name < bestNodes.Name {
			bestNodes = c
		}
	}
	return bestNodes.Name
}

// forget drops the choice of a volume: it is written down, was lost, or the
// volume is gone.
func (c *choices) forget(volume types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.made, volume)
}
