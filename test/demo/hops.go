package demo

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner/dpf"
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
func podHops(c kit.Clients, mode dpf.AttachMode) []kit.Hop {
	return append(attachHops(c, mode, func(client.Object) bool { return true }),
		kit.Hop{Name: "pod running", Where: c.Host, Kind: &corev1.PodList{}, Seen: is(func(o *corev1.Pod) bool {
			return o.Name == podKey.Name && kit.Ready(o)
		})})
}

// attachHops are the hops of an attachment; fresh tells new objects from old.
// Where the host asks by itself, Kubernetes attaches nothing.
func attachHops(c kit.Clients, mode dpf.AttachMode, fresh func(client.Object) bool) []kit.Hop {
	host := kit.Hop{Name: "pod has a host", Where: c.Host, Kind: &corev1.PodList{}, Seen: is(func(o *corev1.Pod) bool {
		return o.Name == podKey.Name && o.Spec.NodeName != "" && fresh(o)
	})}
	if mode == dpf.AttachNode {
		return append([]kit.Hop{host}, shownHops(c, fresh)...)
	}
	hops := append([]kit.Hop{host, {Name: "VolumeAttachment", Where: c.Host, Kind: &storagev1.VolumeAttachmentList{}, Seen: fresh}}, shownHops(c, fresh)...)
	return append(hops, kit.Hop{Name: "VolumeAttachment attached", Where: c.Host, Kind: &storagev1.VolumeAttachmentList{}, Seen: is(func(o *storagev1.VolumeAttachment) bool {
		return fresh(o) && o.Status.Attached
	})})
}

// shownHops are the hops from what is asked of the DPU to the device.
func shownHops(c kit.Clients, fresh func(client.Object) bool) []kit.Hop {
	return []kit.Hop{
		{Name: "DPUVolumeAttachment", Where: c.Host, Kind: &storagev1alpha1.DPUVolumeAttachmentList{}, Seen: fresh},
		{Name: "  VolumeAttachment, in the DPU cluster", Where: c.DPU, Kind: &storagev1alpha1.VolumeAttachmentList{}, Seen: fresh},
		{Name: "  the right to write, granted", Where: c.DPU, Kind: &storagev1alpha1.VolumeAttachmentList{}, Seen: is(func(o *storagev1alpha1.VolumeAttachment) bool { return fresh(o) && o.Spec.Epoch > 0 })},
		{Name: "  the vendor lets the DPU use the volume", Where: c.DPU, Kind: &storagev1alpha1.SVVolumeAttachmentList{}, Seen: is(func(o *storagev1alpha1.SVVolumeAttachment) bool { return fresh(o) && o.Status.Attached })},
		{Name: "  the DPU shows the device to its host", Where: c.DPU, Kind: &storagev1alpha1.VolumeAttachmentList{}, Seen: is(func(o *storagev1alpha1.VolumeAttachment) bool { return fresh(o) && o.Status.DPU.Attached })},
		{Name: "DPUVolumeAttachment ready", Where: c.Host, Kind: &storagev1alpha1.DPUVolumeAttachmentList{}, Seen: is(func(o *storagev1alpha1.DPUVolumeAttachment) bool {
			return fresh(o) && o.Status.DPUAttached != nil && *o.Status.DPUAttached
		})},
	}
}

// moveHops are the hops of a pod's move from where it is.
func moveHops(c kit.Clients, mode dpf.AttachMode, pod *corev1.Pod) []kit.Hop {
	old := pod.Spec.NodeName
	fresh := func(o client.Object) bool {
		switch o := o.(type) {
		case *corev1.Pod:
			return o.UID != pod.UID
		case *storagev1.VolumeAttachment:
			return o.Spec.NodeName != old
		case *storagev1alpha1.DPUVolumeAttachment:
			return o.Spec.DPUNodeName != old && o.Spec.Role != storagev1alpha1.RoleReplica
		case *storagev1alpha1.VolumeAttachment:
			return !of(old, o) && o.Spec.Role != storagev1alpha1.RoleReplica
		default:
			return !of(old, o)
		}
	}
	hops := []kit.Hop{{Name: "old pod gone, or going", Where: c.Host, Kind: &corev1.PodList{}, Seen: is(func(o *corev1.Pod) bool {
		return o.UID == pod.UID && !o.DeletionTimestamp.IsZero()
	})}}
	hops = append(hops, attachHops(c, mode, fresh)...)
	return append(hops, kit.Hop{Name: "pod running again", Where: c.Host, Kind: &corev1.PodList{}, Seen: is(func(o *corev1.Pod) bool {
		return o.Name == podKey.Name && o.UID != pod.UID && kit.Ready(o)
	})})
}

// of reports whether an object of the DPU cluster belongs to a host: its name
// begins with the host's.
func of(host string, o client.Object) bool { return strings.HasPrefix(o.GetName(), host+"-") }

// failoverHops are the hops of a failover away from the pod's host.
func failoverHops(c kit.Clients, mode dpf.AttachMode, pod *corev1.Pod) []kit.Hop {
	claim := func(check func(*moorv1alpha1.WriterClaimStatus) bool) func(client.Object) bool {
		return is(func(o *moorv1alpha1.WriterClaim) bool { return o.Status != nil && check(o.Status) })
	}
	hops := []kit.Hop{
		{Name: "DPU sees its host dead", Where: c.Host, Kind: &moorv1alpha1.DPUStorageNodeList{}, Seen: is(func(o *moorv1alpha1.DPUStorageNode) bool {
			return o.Name == pod.Spec.NodeName && o.Status.DPU != nil && o.Status.DPU.Host != nil && !o.Status.DPU.Host.Alive
		})},
		{Name: "  fencing begins", Where: c.DPU, Kind: &moorv1alpha1.WriterClaimList{}, Seen: claim(func(s *moorv1alpha1.WriterClaimStatus) bool {
			return s.Phase == moorv1alpha1.ClaimFencing
		})},
		{Name: "  proof that the old host can no longer write", Where: c.DPU, Kind: &moorv1alpha1.WriterClaimList{}, Seen: claim(func(s *moorv1alpha1.WriterClaimStatus) bool {
			return len(s.Receipts) > 1
		})},
	}
	return append(hops, moveHops(c, mode, pod)...)
}
