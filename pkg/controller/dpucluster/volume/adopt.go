package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// labelVolumeID is DPF's label on a Volume: the id by which others know it.
const labelVolumeID = "volumeId"

// adopt records what the vendor made.
func (p *pass) adopt(ctx context.Context, pvc *corev1.PersistentVolumeClaim) error {
	v := p.volume
	pv := &corev1.PersistentVolume{}
	found, err := kube.Find(ctx, p.cluster.Client, types.NamespacedName{Name: pvc.Spec.VolumeName}, pv)
	switch {
	case err != nil:
		return err
	case !found:
		return kube.WaitSince(pvc.CreationTimestamp.Time, "waiting for PersistentVolume %s of PersistentVolumeClaim %s, which does not exist",
			pvc.Spec.VolumeName, pvc.Name)
	case !boundTo(pv, pvc):
		return kube.WaitFor("PersistentVolume %s does not belong to PersistentVolumeClaim %s, which names it", pv.Name, pvc.Name)
	case pv.Spec.CSI == nil:
		return kube.WaitFor("PersistentVolume %s of PersistentVolumeClaim %s is not a CSI volume: StorageClass %s has to be served by a CSI driver",
			pv.Name, pvc.Name, *pvc.Spec.StorageClassName)
	}
	places, err := p.findReach(ctx, pv)
	if err != nil {
		return err
	}
	if _, err := kube.Patch(ctx, p.cluster.Client, v, func(v *storagev1alpha1.Volume) { describe(v, pv, places) }); err != nil {
		return fmt.Errorf("record PersistentVolume %s: %w", pv.Name, err)
	}
	return nil
}

func boundTo(pv *corev1.PersistentVolume, pvc *corev1.PersistentVolumeClaim) bool {
	ref := pv.Spec.ClaimRef
	return ref != nil && ref.Name == pvc.Name && ref.Namespace == pvc.Namespace && (ref.UID == "" || ref.UID == pvc.UID)
}

// findReach is from where the volume is reached. It is found out once: what the
// vendor made stays where it is, and its words for that place may come and go
// with the drivers on the DPUs.
func (p *pass) findReach(ctx context.Context, pv *corev1.PersistentVolume) ([]map[string]string, error) {
	v := p.volume
	if pv.Spec.NodeAffinity == nil || v.Spec.Volume.AccessibleTopology != nil {
		return v.Spec.Volume.AccessibleTopology, nil
	}
	dpus, err := p.dpus(ctx)
	if err != nil {
		return nil, err
	}
	if v.Spec.Volume.ID == "" {
		if err := checkReach(v, pv, dpus); err != nil {
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

// checkReach refuses what the vendor has made if it is not reached from where it is to
// be: it is not in use yet, and must not be.
func checkReach(v *storagev1alpha1.Volume, pv *corev1.PersistentVolume, dpus []dpu) error {
	if len(v.Spec.Request.AccessibleFrom) == 0 {
		return nil
	}
	for _, d := range dpus {
		if d.atOneOf(v.Spec.Request.AccessibleFrom) < 0 {
			continue
		}
		if ok, err := d.reaches(pv.Spec.NodeAffinity); ok || err != nil {
			return err
		}
	}
	return unreachablef("the vendor made PersistentVolume %s where it is reached from none of the places asked for: %s; delete this volume",
		pv.Name, describePlaces(v.Spec.Request.AccessibleFrom))
}
