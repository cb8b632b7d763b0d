package index

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// The field indexes of pods as volumes, named by the kind that is found and by what it
// is found.
const (
	PodVolumeByProvisioner  = "spec.provisionerName"
	PodStagingByProvisioner = "spec.provisionerName"
	// PodVolumeByNode finds PodVolumes by the node where their pod is.
	PodVolumeByNode    = "status.pod.nodeName"
	PodStagingByNode   = "spec.nodeName"
	PodStagingByVolume = "spec.volumeName"
	// HelperPodByOwner finds the pods that work for a PodVolume, PodStaging or PodRevocation by its UID.
	HelperPodByOwner = "helper.owner"
	// PersistentVolumeByDriver finds PersistentVolumes by their CSI driver.
	PersistentVolumeByDriver = "spec.csi.driver"
)

// Pods are the indexes of pod-provisioner's (controller) cache.
func Pods() []kube.Index {
	return []kube.Index{
		kube.IndexOf(PodVolumeByProvisioner, func(v *moorv1alpha1.PodVolume) []string { return kube.Some(v.Spec.ProvisionerName) }),
		kube.IndexOf(PodVolumeByNode, func(v *moorv1alpha1.PodVolume) []string {
			if v.Status.Pod == nil {
				return nil
			}
			return kube.Some(v.Status.Pod.NodeName)
		}),
		kube.IndexOf(PodStagingByProvisioner, func(s *moorv1alpha1.PodStaging) []string { return kube.Some(s.Spec.ProvisionerName) }),
		kube.IndexOf(PodStagingByNode, func(s *moorv1alpha1.PodStaging) []string { return kube.Some(s.Spec.NodeName) }),
		kube.IndexOf(PodStagingByVolume, func(s *moorv1alpha1.PodStaging) []string { return kube.Some(s.Spec.VolumeName) }),
		kube.IndexOf(HelperPodByOwner, func(p *corev1.Pod) []string {
			return kube.Some(cmp.Or(p.Labels[moorv1alpha1.LabelPodVolume], p.Labels[moorv1alpha1.LabelPodStaging], p.Labels[moorv1alpha1.LabelPodRevocation]))
		}),
		kube.IndexOf(PersistentVolumeByDriver, func(v *corev1.PersistentVolume) []string {
			if v.Spec.CSI == nil {
				return nil
			}
			return kube.Some(v.Spec.CSI.Driver)
		}),
	}
}
