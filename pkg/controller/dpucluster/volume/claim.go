package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// labelVolumeID is DPF's label on a Volume: the id by which others know it.
const labelVolumeID = "volumeId"

// claim makes the vendor's claim and waits until it is bound. A volume that
// has been Available never gets a second claim: that would be another, empty
// volume under the same name.
func (r *Reconciler) claim(ctx context.Context, v *storagev1alpha1.Volume) (*corev1.PersistentVolumeClaim, error) {
	name := claimKey(v)
	claim := &corev1.PersistentVolumeClaim{}
	found, err := kube.Find(ctx, r.DPU.Client, name, claim)
	if err != nil {
		return nil, err
	}
	if !found {
		if v.Spec.Volume.ID != "" {
			return nil, kube.WaitFor("the vendor's PersistentVolumeClaim %s is gone, and perhaps the data with it: "+
				"restore it, or delete the volume", name.Name)
		}
		if v.Spec.Request.CapacityRange.Request == nil {
			return nil, kube.WaitFor("spec.request.capacityRange.request is missing: the vendor has to know a size")
		}
		from, err := r.origin(ctx, v)
		if err != nil {
			return nil, err
		}
		dpu, err := r.selected(ctx, v, from)
		if err != nil {
			return nil, err
		}
		claim = desiredClaim(v, from, dpu)
		if _, err := kube.CreateLive(ctx, r.DPU.Client, r.DPU.Live, claim); err != nil {
			return nil, err
		}
	}
	return claim, r.waitForClaim(ctx, v, claim)
}

func (r *Reconciler) waitForClaim(ctx context.Context, v *storagev1alpha1.Volume, claim *corev1.PersistentVolumeClaim) error {
	switch {
	case !ownedBy(claim, v):
		return kube.WaitFor("PersistentVolumeClaim %s exists already and does not belong to this Volume: "+
			"delete it, or choose another name for the volume", claim.Name)
	case !claim.DeletionTimestamp.IsZero():
		return kube.WaitFor("the vendor's PersistentVolumeClaim %s is being deleted", claim.Name)
	case claim.Status.Phase == corev1.ClaimLost:
		return kube.WaitFor("the vendor's PersistentVolumeClaim %s has lost its PersistentVolume %s", claim.Name, claim.Spec.VolumeName)
	case claim.Status.Phase == corev1.ClaimBound && claim.Spec.VolumeName != "":
		return nil
	}
	return r.waitForVendor(ctx, claim)
}

// waitForVendor says why the claim is not bound, as far as this can be known
// here: a StorageClass that waits for a pod waits forever, since no pod of the
// DPU cluster uses the claim, unless a DPU was selected for it. csi-provisioner
// takes the selection back when the vendor cannot make the volume for that DPU.
func (r *Reconciler) waitForVendor(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	class := &storagev1.StorageClass{}
	found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Name: *claim.Spec.StorageClassName}, class)
	switch {
	case err != nil:
		return err
	case !found:
		return kube.WaitFor("the vendor's PersistentVolumeClaim %s needs StorageClass %s, which does not exist any more", claim.Name, *claim.Spec.StorageClassName)
	case late(class) && claim.Annotations[annSelectedNode] == "":
		return nowhere("the vendor's PersistentVolumeClaim %s will never be bound: StorageClass %s has volumeBindingMode "+
			"WaitForFirstConsumer; it has to be Immediate, or a DPU has to have the vendor's driver, whose CSI controller can make the volume for it",
			claim.Name, class.Name)
	}
	return kube.WaitSince(claim.CreationTimestamp.Time, "waiting for the vendor's PersistentVolumeClaim %s", claim.Name)
}

func desiredClaim(v *storagev1alpha1.Volume, from *origin, dpu string) *corev1.PersistentVolumeClaim {
	capacity := v.Spec.Request.CapacityRange
	resources := corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *capacity.Request}}
	if capacity.Limit != nil {
		resources.Limits = corev1.ResourceList{corev1.ResourceStorage: *capacity.Limit}
	}
	class := v.Spec.Volume.CSIReference.StorageClassName
	key := claimKey(v)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       key.Namespace,
			Name:            key.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(v, storagev1alpha1.GroupVersion.WithKind("Volume"))},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			VolumeMode:       v.Spec.Request.VolumeMode,
			AccessModes:      v.Spec.Request.AccessModes,
			Resources:        resources,
		},
	}
	if from != nil {
		claim.Spec.DataSource = from.data
	}
	if dpu != "" {
		claim.Annotations = map[string]string{annSelectedNode: dpu}
	}
	return claim
}

// adopt records what the vendor made.
func (r *Reconciler) adopt(ctx context.Context, v *storagev1alpha1.Volume, claim *corev1.PersistentVolumeClaim) error {
	pv := &corev1.PersistentVolume{}
	found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Name: claim.Spec.VolumeName}, pv)
	switch {
	case err != nil:
		return err
	case !found:
		return kube.WaitSince(claim.CreationTimestamp.Time, "waiting for PersistentVolume %s of PersistentVolumeClaim %s, which does not exist",
			claim.Spec.VolumeName, claim.Name)
	case !boundTo(pv, claim):
		return kube.WaitFor("PersistentVolume %s does not belong to PersistentVolumeClaim %s, which names it", pv.Name, claim.Name)
	case pv.Spec.CSI == nil:
		return kube.WaitFor("PersistentVolume %s of PersistentVolumeClaim %s is not a CSI volume: StorageClass %s has to be served by a CSI driver",
			pv.Name, claim.Name, *claim.Spec.StorageClassName)
	}
	places, err := r.reach(ctx, v, pv)
	if err != nil {
		return err
	}
	if _, err := kube.Patch(ctx, r.DPU.Client, v, func(v *storagev1alpha1.Volume) { describe(v, pv, places) }); err != nil {
		return fmt.Errorf("record PersistentVolume %s: %w", pv.Name, err)
	}
	return nil
}

func boundTo(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := pv.Spec.ClaimRef
	return ref != nil && ref.Name == claim.Name && ref.Namespace == claim.Namespace && (ref.UID == "" || ref.UID == claim.UID)
}

// reach is from where the volume is reached. It is found out once: what the
// vendor made stays where it is, and its words for that place may come and go
// with the drivers on the DPUs.
func (r *Reconciler) reach(ctx context.Context, v *storagev1alpha1.Volume, pv *corev1.PersistentVolume) ([]map[string]string, error) {
	if pv.Spec.NodeAffinity == nil || v.Spec.Volume.AccessibleTopology != nil {
		return v.Spec.Volume.AccessibleTopology, nil
	}
	dpus, err := r.dpus(ctx)
	if err != nil {
		return nil, err
	}
	if v.Spec.Volume.ID == "" {
		if err := fits(v, pv, dpus); err != nil {
			return nil, err
		}
	}
	return placesOf(pv.Spec.NodeAffinity, dpus)
}

func describe(v *storagev1alpha1.Volume, pv *corev1.PersistentVolume, places []map[string]string) {
	made := &v.Spec.Volume
	capacity := pv.Spec.Capacity[corev1.ResourceStorage]
	made.ID = string(v.UID)
	made.Capacity = &capacity
	made.AccessModes = pv.Spec.AccessModes
	made.ReclaimPolicy = pv.Spec.PersistentVolumeReclaimPolicy
	made.VolumeAttributes = pv.Spec.CSI.VolumeAttributes
	made.AccessibleTopology = places
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	v.Labels[labelVolumeID] = made.ID
}

func claimKey(v *storagev1alpha1.Volume) types.NamespacedName {
	if ref := v.Spec.Volume.CSIReference.PVCRef; ref != nil {
		return types.NamespacedName{Namespace: v.Namespace, Name: ref.Name}
	}
	return types.NamespacedName{Namespace: v.Namespace, Name: kube.ClaimName(v.Name)}
}

func ownedBy(claim *corev1.PersistentVolumeClaim, v *storagev1alpha1.Volume) bool {
	for _, owner := range claim.OwnerReferences {
		if owner.UID == v.UID {
			return true
		}
	}
	return false
}
