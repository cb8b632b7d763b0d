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

// annotationSelectedNode is Kubernetes' way of telling csi-provisioner for which node a
// pvc is; it heeds it with either volumeBindingMode.
const annotationSelectedNode = "volume.kubernetes.io/selected-node"

// pvc makes the vendor's claim and waits until it is bound. A volume that
// has been Available never gets a second claim: that would be another, empty
// volume under the same name.
func (p *pass) pvc(ctx context.Context) (*corev1.PersistentVolumeClaim, error) {
	v := p.volume
	name := pvcKey(v)
	pvc := &corev1.PersistentVolumeClaim{}
	found, err := kube.Find(ctx, p.cluster.Client, name, pvc)
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
		from, err := p.origin(ctx)
		if err != nil {
			return nil, err
		}
		dpu, err := p.selectNode(ctx, from)
		if err != nil {
			return nil, err
		}
		pvc = desiredPVC(v, from, dpu)
		if _, err := kube.CreateLive(ctx, p.cluster.Client, p.cluster.Live, pvc); err != nil {
			return nil, err
		}
	}
	if madeByDPF(pvc, v) {
		if _, err := kube.PatchExact(ctx, p.cluster.Client, pvc, func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = ownerOf(v) }); err != nil {
			return nil, fmt.Errorf("take over PersistentVolumeClaim %s, which DPF made: %w", pvc.Name, err)
		}
	}
	return pvc, p.waitForPVC(ctx, pvc)
}

// ownerOf has a claim go with its volume.
func ownerOf(v *storagev1alpha1.Volume) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(v, storagev1alpha1.GroupVersion.WithKind("Volume"))}
}

func (p *pass) waitForPVC(ctx context.Context, pvc *corev1.PersistentVolumeClaim) error {
	switch {
	case !ownedBy(pvc, p.volume):
		return kube.WaitFor("PersistentVolumeClaim %s exists already and does not belong to this Volume: "+
			"delete it, or choose another name for the volume", pvc.Name)
	case !pvc.DeletionTimestamp.IsZero():
		return kube.WaitFor("the vendor's PersistentVolumeClaim %s is being deleted", pvc.Name)
	case pvc.Status.Phase == corev1.ClaimLost:
		return kube.WaitFor("the vendor's PersistentVolumeClaim %s has lost its PersistentVolume %s", pvc.Name, pvc.Spec.VolumeName)
	case pvc.Status.Phase == corev1.ClaimBound && pvc.Spec.VolumeName != "":
		return nil
	}
	return p.waitForVendor(ctx, pvc)
}

// waitForVendor says why the claim is not bound, as far as this can be known
// here: a StorageClass that waits for a pod waits forever, since no pod of the
// DPU cluster uses the claim, unless a DPU was selected for it. csi-provisioner
// takes the selection back when the vendor cannot make the volume for that DPU.
func (p *pass) waitForVendor(ctx context.Context, pvc *corev1.PersistentVolumeClaim) error {
	class := &storagev1.StorageClass{}
	found, err := kube.Find(ctx, p.cluster.Client, types.NamespacedName{Name: *pvc.Spec.StorageClassName}, class)
	switch {
	case err != nil:
		return err
	case !found:
		return kube.WaitFor("the vendor's PersistentVolumeClaim %s needs StorageClass %s, which does not exist any more", pvc.Name, *pvc.Spec.StorageClassName)
	case waitsForNode(class) && pvc.Annotations[annotationSelectedNode] == "":
		return unreachablef("the vendor's PersistentVolumeClaim %s will never be bound: StorageClass %s has volumeBindingMode "+
			"WaitForFirstConsumer; it has to be Immediate, or a DPU has to have the vendor's driver, whose CSI controller can make the volume for it",
			pvc.Name, class.Name)
	}
	return kube.WaitSince(pvc.CreationTimestamp.Time, "waiting for the vendor's PersistentVolumeClaim %s", pvc.Name)
}

// selectNode is the DPU for which the vendor is to make the volume; "" if that is
// left to the vendor.
func (p *pass) selectNode(ctx context.Context, from *origin) (string, error) {
	v := p.volume
	class := &storagev1.StorageClass{}
	found, err := kube.Find(ctx, p.cluster.Client, types.NamespacedName{Name: v.Spec.Volume.CSIReference.StorageClassName}, class)
	if err != nil || !found || !waitsForNode(class) && len(v.Spec.Request.AccessibleFrom) == 0 {
		return "", err
	}
	dpus, err := p.dpus(ctx)
	if err != nil {
		return "", err
	}
	s := constraintsOf(v, class, from.reach())
	if !waitsForNode(class) && !topologyAware(dpus, s.driver) {
		return "", nil
	}
	fit := bestNodes(dpus, s)
	switch {
	case len(fit) > 0:
		return fit[p.intN(len(fit))].node.Name, nil
	case len(s.wanted)+len(s.source) == 0:
		return "", nil
	}
	return "", unreachablef("StorageClass %s makes no volume that is reached from one of the places asked for: %s", class.Name, describePlaces(s.wanted))
}

// waitsForNode reports whether the class makes no volume before a node is selected.
func waitsForNode(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

func desiredPVC(v *storagev1alpha1.Volume, from *origin, dpu string) *corev1.PersistentVolumeClaim {
	capacity := v.Spec.Request.CapacityRange
	resources := corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *capacity.Request}}
	if capacity.Limit != nil {
		resources.Limits = corev1.ResourceList{corev1.ResourceStorage: *capacity.Limit}
	}
	class := v.Spec.Volume.CSIReference.StorageClassName
	key := pvcKey(v)
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       key.Namespace,
			Name:            key.Name,
			OwnerReferences: ownerOf(v),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			VolumeMode:       v.Spec.Request.VolumeMode,
			AccessModes:      v.Spec.Request.AccessModes,
			Resources:        resources,
		},
	}
	if from != nil {
		pvc.Spec.DataSource = from.data
	}
	if dpu != "" {
		pvc.Annotations = map[string]string{annotationSelectedNode: dpu}
	}
	return pvc
}
