package demo

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// is makes a check for one kind of object.
func is[T client.Object](check func(T) bool) func(client.Object) bool {
	return func(o client.Object) bool {
		t, ok := o.(T)
		return ok && check(t)
	}
}

func first[T client.Object](client.Object) bool { return true }

// volumeHops are the hops from a claim to its volume.
func volumeHops(c kit.Clients) []kit.Hop {
	return []kit.Hop{
		{Name: "PersistentVolumeClaim", Where: c.Host, Kind: &corev1.PersistentVolumeClaimList{}, Seen: first[*corev1.PersistentVolumeClaim]},
		{Name: "DPUVolume", Where: c.Host, Kind: &storagev1alpha1.DPUVolumeList{}, Seen: first[*storagev1alpha1.DPUVolume]},
		{Name: "  Volume, in the DPU cluster", Where: c.DPU, Kind: &storagev1alpha1.VolumeList{}, Seen: first[*storagev1alpha1.Volume]},
		{Name: "  the vendor's claim", Where: c.DPU, Kind: &corev1.PersistentVolumeClaimList{}, Seen: first[*corev1.PersistentVolumeClaim]},
		{Name: "  the vendor's volume, bound", Where: c.DPU, Kind: &corev1.PersistentVolumeClaimList{}, Seen: is(func(o *corev1.PersistentVolumeClaim) bool { return o.Status.Phase == corev1.ClaimBound })},
		{Name: "  Volume available", Where: c.DPU, Kind: &storagev1alpha1.VolumeList{}, Seen: is(func(o *storagev1alpha1.Volume) bool { return o.Status.State == storagev1alpha1.VolumeAvailable })},
		{Name: "DPUVolume bound", Where: c.Host, Kind: &storagev1alpha1.DPUVolumeList{}, Seen: is(func(o *storagev1alpha1.DPUVolume) bool { return o.Status.Phase == storagev1alpha1.DPUVolumeBound })},
		{Name: "PersistentVolume bound", Where: c.Host, Kind: &corev1.PersistentVolumeClaimList{}, Seen: is(func(o *corev1.PersistentVolumeClaim) bool { return o.Status.Phase == corev1.ClaimBound })},
	}
}

// podHops are the hops from a pod to its devices and to Running.
func podHops(c kit.Clients) []kit.Hop {
	return append(attachHops(c, func(client.Object) bool { return true }),
		kit.Hop{Name: "pod running", Where: c.Host, Kind: &corev1.PodList{}, Seen: is(func(o *corev1.Pod) bool {
			return o.Name == podKey.Name && kit.Ready(o)
		})})
}

// attachHops are the hops of an attachment; fresh tells new objects from old.
func attachHops(c kit.Clients, fresh func(client.Object) bool) []kit.Hop {
	return []kit.Hop{
		{Name: "pod has a host", Where: c.Host, Kind: &corev1.PodList{}, Seen: is(func(o *corev1.Pod) bool {
			return o.Name == podKey.Name && o.Spec.NodeName != "" && fresh(o)
		})},
		{Name: "VolumeAttachment", Where: c.Host, Kind: &storagev1.VolumeAttachmentList{}, Seen: fresh},
		{Name: "DPUVolumeAttachment", Where: c.Host, Kind: &storagev1alpha1.DPUVolumeAttachmentList{}, Seen: fresh},
		{Name: "  VolumeAttachment, in the DPU cluster", Where: c.DPU, Kind: &storagev1alpha1.VolumeAttachmentList{}, Seen: fresh},
		{Name: "  the right to write, granted", Where: c.DPU, Kind: &storagev1alpha1.VolumeAttachmentList{}, Seen: is(func(o *storagev1alpha1.VolumeAttachment) bool { return fresh(o) && o.Spec.Epoch > 0 })},
		{Name: "  the vendor lets the DPU use the volume", Where: c.DPU, Kind: &storagev1alpha1.SVVolumeAttachmentList{}, Seen: is(func(o *storagev1alpha1.SVVolumeAttachment) bool { return fresh(o) && o.Status.Attached })},
		{Name: "  the DPU shows the device to its host", Where: c.DPU, Kind: &storagev1alpha1.VolumeAttachmentList{}, Seen: is(func(o *storagev1alpha1.VolumeAttachment) bool { return fresh(o) && o.Status.DPU.Attached })},
		{Name: "DPUVolumeAttachment ready", Where: c.Host, Kind: &storagev1alpha1.DPUVolumeAttachmentList{}, Seen: is(func(o *storagev1alpha1.DPUVolumeAttachment) bool {
			return fresh(o) && o.Status.DPUAttached != nil && *o.Status.DPUAttached
		})},
		{Name: "VolumeAttachment attached", Where: c.Host, Kind: &storagev1.VolumeAttachmentList{}, Seen: is(func(o *storagev1.VolumeAttachment) bool { return fresh(o) && o.Status.Attached })},
	}
}

// moveHops are the hops of a pod's move from where it is.
func moveHops(c kit.Clients, pod *corev1.Pod) []kit.Hop {
	old := pod.Spec.NodeName
	fresh := func(o client.Object) bool {
		switch o := o.(type) {
		case *corev1.Pod:
			return o.UID != pod.UID
		case *storagev1.VolumeAttachment:
			return o.Spec.NodeName != old
		case *storagev1alpha1.DPUVolumeAttachment:
			return o.Spec.DPUNodeName != old
		default:
			// Names in the DPU cluster begin with the host's.
			return len(o.GetName()) > len(old) && o.GetName()[:len(old)+1] != old+"-"
		}
	}
	hops := []kit.Hop{{Name: "pod deleted", Where: c.Host, Kind: &corev1.PodList{}, Seen: is(func(o *corev1.Pod) bool {
		return o.UID == pod.UID && !o.DeletionTimestamp.IsZero()
	})}}
	hops = append(hops, attachHops(c, fresh)...)
	return append(hops, kit.Hop{Name: "pod running again", Where: c.Host, Kind: &corev1.PodList{}, Seen: is(func(o *corev1.Pod) bool {
		return o.Name == podKey.Name && o.UID != pod.UID && kit.Ready(o)
	})})
}
