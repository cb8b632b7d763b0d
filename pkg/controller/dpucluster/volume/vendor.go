package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// chooseVendor chooses the vendor and writes the choice down together with the
// finalizer, in one patch that fails if the Volume has changed since it was
// read. So a choice is made once, before anything outside depends on it.
func (p *pass) chooseVendor(ctx context.Context) error {
	v := p.volume
	if hasVendor(v) {
		p.choices.know(client.ObjectKeyFromObject(v), v.Spec.Volume.StorageVendorName)
		_, err := kube.AddFinalizer(ctx, p.cluster.Client, v, storagev1alpha1.FinalizerVolume)
		return err
	}
	policy, err := p.policy(ctx)
	if err != nil {
		return err
	}
	vendor, class, err := p.vendor(ctx, policy)
	if err != nil {
		return err
	}
	_, err = kube.PatchExact(ctx, p.cluster.Client, v, func(v *storagev1alpha1.Volume) {
		controllerutil.AddFinalizer(v, storagev1alpha1.FinalizerVolume)
		writeChoice(v, policy, vendor, class)
	})
	if err != nil {
		p.choices.know(client.ObjectKeyFromObject(v), "")
	}
	return err
}

func hasVendor(v *storagev1alpha1.Volume) bool {
	return v.Spec.Volume.StorageVendorName != "" && v.Spec.Volume.CSIReference.PVCRef != nil
}

func writeChoice(v *storagev1alpha1.Volume, policy *storagev1alpha1.StoragePolicy, vendor *storagev1alpha1.StorageVendor, class *storagev1.StorageClass) {
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
func (p *pass) policy(ctx context.Context) (*storagev1alpha1.StoragePolicy, error) {
	name := p.volume.Spec.StorageParameters[storagev1alpha1.ParameterPolicy]
	if name == "" {
		return nil, kube.WaitFor("spec.storageParameters has no key %q: it has to name a StoragePolicy", storagev1alpha1.ParameterPolicy)
	}
	policy := &storagev1alpha1.StoragePolicy{}
	found, err := kube.Find(ctx, p.cluster.Client, types.NamespacedName{Namespace: p.volume.Namespace, Name: name}, policy)
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
func (p *pass) vendor(ctx context.Context, policy *storagev1alpha1.StoragePolicy) (*storagev1alpha1.StorageVendor, *storagev1.StorageClass, error) {
	name := p.volume.Spec.Volume.StorageVendorName
	if name == "" {
		var err error
		if name, err = p.vendorOfSource(ctx, policy); err != nil {
			return nil, nil, err
		}
	}
	if name == "" {
		var err error
		if name, err = p.choose(ctx, policy); err != nil {
			return nil, nil, err
		}
	}
	return p.classOf(ctx, name, policy)
}

// vendorOfSource is the vendor that has to make the copy; "" for a volume that begins
// empty, which any vendor of the policy may make.
func (p *pass) vendorOfSource(ctx context.Context, policy *storagev1alpha1.StoragePolicy) (string, error) {
	from, err := p.origin(ctx)
	if err != nil || from == nil {
		return "", err
	}
	if !slices.Contains(policy.Spec.StorageVendors, from.vendor) {
		return "", kube.WaitFor("%s is of StorageVendor %s, which StoragePolicy %s does not name: a copy is made by the vendor of its source; "+
			"ask for it under a policy that names that vendor", from.message, from.vendor, policy.Name)
	}
	shared, err := p.sharing(ctx, []string{from.vendor})
	if err != nil {
		return "", err
	}
	return shared[0], nil
}

// classOf reads a vendor and its StorageClass.
func (p *pass) classOf(ctx context.Context, name string, policy *storagev1alpha1.StoragePolicy) (*storagev1alpha1.StorageVendor, *storagev1.StorageClass, error) {
	vendor, class := &storagev1alpha1.StorageVendor{}, &storagev1.StorageClass{}
	if err := p.cluster.Client.Get(ctx, types.NamespacedName{Namespace: p.volume.Namespace, Name: name}, vendor); err != nil {
		return nil, nil, fmt.Errorf("read StorageVendor %s of the valid StoragePolicy %s: %w", name, policy.Name, err)
	}
	if err := p.cluster.Client.Get(ctx, types.NamespacedName{Name: vendor.Spec.StorageClassName}, class); err != nil {
		return nil, nil, fmt.Errorf("read StorageClass %s of StorageVendor %s: %w", vendor.Spec.StorageClassName, name, err)
	}
	return vendor, class, nil
}

func (p *pass) choose(ctx context.Context, policy *storagev1alpha1.StoragePolicy) (string, error) {
	vendors, err := p.ableVendors(ctx, policy)
	if err != nil {
		return "", err
	}
	return p.choices.choose(client.ObjectKeyFromObject(p.volume), func() ([]storagev1alpha1.Volume, error) { return p.volumes(ctx) }, func(count func(string) int) string {
		candidates := make([]Candidate, len(vendors))
		for i, name := range vendors {
			candidates[i] = Candidate{Name: name, Volumes: count(name)}
		}
		return SelectVendor(policy.Spec.StorageSelectionAlg, candidates, p.intN)
	})
}

// sharing are those of the vendors that let as many hosts have the volume as it may have.
// One that does not exist is left to those who read it next.
func (p *pass) sharing(ctx context.Context, vendors []string) ([]string, error) {
	want := max(1, p.volume.Spec.Request.MaxShares)
	var out, bounds []string
	for _, name := range vendors {
		vendor := &storagev1alpha1.StorageVendor{}
		found, err := kube.Find(ctx, p.cluster.Client, types.NamespacedName{Namespace: p.volume.Namespace, Name: name}, vendor)
		if err != nil {
			return nil, err
		}
		if most := vendor.Spec.MaxShares; found && most != nil && *most < want {
			bounds = append(bounds, fmt.Sprintf("StorageVendor %s at most %d", name, *most))
			continue
		}
		out = append(out, name)
	}
	if len(out) == 0 {
		return nil, kube.WaitFor("the volume may be had by %d hosts (maxShares), which no vendor that may make it allows: %s; ask with a lower maxShares, or for another policy",
			want, strings.Join(bounds, ", "))
	}
	return out, nil
}

// volumes are all that there are. They are the cache's own.
func (p *pass) volumes(ctx context.Context) ([]storagev1alpha1.Volume, error) {
	list := &storagev1alpha1.VolumeList{}
	if err := p.cluster.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("count the volumes of each StorageVendor: %w", err)
	}
	return list.Items, nil
}

// ableVendors are those of a policy's vendors that let enough hosts have the volume and can
// make it where it is to be reached from, if that is not anywhere.
func (p *pass) ableVendors(ctx context.Context, policy *storagev1alpha1.StoragePolicy) ([]string, error) {
	v := p.volume
	sharing, err := p.sharing(ctx, policy.Spec.StorageVendors)
	if err != nil || len(v.Spec.Request.AccessibleFrom) == 0 {
		return sharing, err
	}
	dpus, err := p.dpus(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range sharing {
		_, class, err := p.classOf(ctx, name, policy)
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
