package index

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// The field indexes of the host cluster, named by the kind that is found and by
// what it is found. Those of pods and PersistentVolumes are in podvolume.
const (
	DPUStorageVendorByClass     = "spec.storageClassName"
	DPUStoragePolicyByVendor    = "spec.dpuStorageVendors"
	DPUVolumeByPolicy           = "spec.dpuStoragePolicyName"
	DPUVolumeAttachmentByVolume = "spec.dpuVolumeName"
	DPUVolumeAttachmentByNode   = "spec.dpuNodeName"
	DPUStorageNodeByDPU         = "spec.dpuName"
	// DPUStorageNodeByPlace is by the DPU as places have it, in moorv1alpha1.TopologyDPU.
	DPUStorageNodeByPlace = "place"
	// DPUVolumeMissingReplicas finds, by "true", volumes that have fewer replicas
	// than are wanted.
	DPUVolumeMissingReplicas = "status.replicas.missing"
	// DPUVolumeAttachmentWithoutFunction finds, by "true", attachments that are to
	// have a function and have none yet.
	DPUVolumeAttachmentWithoutFunction = "status.dpu"
	// DPUVolumeAttachmentAwaited finds, by "true", primaries that are to be attached and are
	// not: pods wait for them.
	DPUVolumeAttachmentAwaited = "status.dpuAttached"
	// PodStarting finds, by "true", pods with claims that are on a node and do not run yet.
	PodStarting = "status.phase"
	// PodWithAffinity finds pods that require other pods to be near, or not to be
	// near: by their namespace those that speak of pods of it alone, by
	// AnyNamespace the others.
	PodWithAffinity = "spec.affinity"
	// EventByBackedOffPod finds the events in which a kubelet says that it leaves a
	// pod alone, by the UID of the pod.
	EventByBackedOffPod = "involvedObject.uid,reason,message"
)

// AnyNamespace is the value of PodWithAffinity for a pod whose demands may speak of pods
// of other namespaces.
const AnyNamespace = "*"

// Host are the indexes of snap-host-controller's cache of the host cluster.
func Host() []kube.Index {
	return append(
		podvolume.Indexes(),
		podvolume.IndexPodsByNode(),
		AttachmentByVolume(),
		attachmentByNode(),
		kube.IndexOf(DPUStorageVendorByClass, func(v *storagev1alpha1.DPUStorageVendor) []string { return []string{v.Spec.StorageClassName} }),
		kube.IndexOf(DPUStoragePolicyByVendor, func(p *storagev1alpha1.DPUStoragePolicy) []string { return p.Spec.DPUStorageVendors }),
		kube.IndexOf(DPUVolumeByPolicy, func(v *storagev1alpha1.DPUVolume) []string { return []string{v.Spec.DPUStoragePolicyName} }),
		kube.IndexOf(DPUStorageNodeByDPU, func(n *moorv1alpha1.DPUStorageNode) []string { return []string{n.Spec.DPUName} }),
		kube.IndexOf(DPUStorageNodeByPlace, func(n *moorv1alpha1.DPUStorageNode) []string { return []string{kube.LabelValue(n.Spec.DPUName)} }),
		kube.IndexOf(EventByBackedOffPod, backedOffPod),
	)
}

// Replicas are the indexes of the cache of the host cluster behind the replica
// reconciler, in snap-csi-plugin (controller). A cache watches every kind that it
// indexes, so it has no more than are used there.
func Replicas() []kube.Index {
	return append(
		podvolume.Indexes(),
		AttachmentByVolume(),
		attachmentByNode(),
		kube.IndexOf(DPUVolumeMissingReplicas, missingReplicas),
		kube.IndexOf(DPUVolumeAttachmentWithoutFunction, withoutFunction),
		kube.IndexOf(DPUVolumeAttachmentAwaited, awaited),
		kube.IndexOf(PodStarting, starting),
		kube.IndexOf(PodWithAffinity, withAffinity),
	)
}

// AttachmentByVolume finds DPUVolumeAttachments by their volume.
func AttachmentByVolume() kube.Index {
	return kube.IndexOf(DPUVolumeAttachmentByVolume, func(a *storagev1alpha1.DPUVolumeAttachment) []string { return []string{a.Spec.DPUVolumeName} })
}

func attachmentByNode() kube.Index {
	return kube.IndexOf(DPUVolumeAttachmentByNode, func(a *storagev1alpha1.DPUVolumeAttachment) []string { return []string{a.Spec.DPUNodeName} })
}

func missingReplicas(v *storagev1alpha1.DPUVolume) []string {
	if s := v.Status.Replicas; s != nil && s.Missing > 0 {
		return []string{"true"}
	}
	return nil
}

func withoutFunction(a *storagev1alpha1.DPUVolumeAttachment) []string {
	if a.DeletionTimestamp.IsZero() && a.Status.DPU == nil {
		return []string{"true"}
	}
	return nil
}

func awaited(a *storagev1alpha1.DPUVolumeAttachment) []string {
	if a.Spec.Role != storagev1alpha1.RoleReplica && a.DeletionTimestamp.IsZero() && !ptr.Deref(a.Status.DPUAttached, false) {
		return []string{"true"}
	}
	return nil
}

func starting(pod *corev1.Pod) []string {
	claims := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
	if claims && pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp.IsZero() {
		return []string{"true"}
	}
	return nil
}

func withAffinity(pod *corev1.Pod) []string { return kube.Some(DemandsOn(pod)) }

// DemandsOn is in which namespace a pod requires other pods to be near, or not to be
// near: its own, or AnyNamespace; "" if it requires nothing.
func DemandsOn(pod *corev1.Pod) string {
	a := pod.Spec.Affinity
	if a == nil {
		return ""
	}
	var terms []corev1.PodAffinityTerm
	if a.PodAffinity != nil {
		terms = a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if a.PodAntiAffinity != nil {
		terms = slices.Concat(terms, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	switch {
	case len(terms) == 0:
		return ""
	case slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil }):
		return AnyNamespace
	}
	return pod.Namespace
}

func backedOffPod(e *corev1.Event) []string { return kube.Some(string(podvolume.BackedOff(e))) }
