package state

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

const (
	driver    = "csi.snap.nvidia.com"
	second    = "csi-virtiofs.snap.nvidia.com"
	namespace = "dpf-operator-system"
)

// claim is bound to the volume of its own name with "pv-" before it.
func claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
}

// persistentVolume has the handle "h-" and the claim's name.
func persistentVolume(claim string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim},
		Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "h-" + claim},
		}},
	}
}

// ofVendor is the same, of a vendor.
func ofVendor(claim, vendor string) *corev1.PersistentVolume {
	v := persistentVolume(claim)
	v.Spec.CSI.VolumeAttributes = map[string]string{storagev1alpha1.VolumeContextVendor: vendor}
	return v
}

func attachment(name, claim, node string, attached bool) *storagev1alpha1.DPUVolumeAttachment {
	a := &storagev1alpha1.DPUVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: storagev1alpha1.DPUVolumeAttachmentSpec{
			DPUNodeName: node, DPUVolumeName: "h-" + claim,
			FunctionTypeConfig: storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypeVF},
		},
	}
	a.Status.DPUAttached = &attached
	return a
}

func storageNode(name string, freeVFs int64) *moorv1alpha1.DPUStorageNode {
	return &moorv1alpha1.DPUStorageNode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       moorv1alpha1.DPUStorageNodeSpec{DPUName: "dpu-" + name},
		Status: moorv1alpha1.DPUStorageNodeStatus{DPU: &moorv1alpha1.DPUState{
			SNAPReady: true,
			Functions: []moorv1alpha1.FunctionCount{{Type: "pf", Total: 2, Free: 2}, {Type: "vf", Total: 64, Free: freeVFs}},
		}},
	}
}

// lostOn is a node whose DPU has lost its way to the storage of the claims' volumes.
func lostOn(name string, claims ...string) *moorv1alpha1.DPUStorageNode {
	n := storageNode(name, 4)
	n.Status.DPU.AllPathsLost = len(claims) > 0
	for _, c := range claims {
		n.Status.DPU.LostPaths = append(n.Status.DPU.LostPaths, moorv1alpha1.LostPath{Volume: "h-" + c, Message: "no path"})
	}
	return n
}

// pod uses the claims given.
func pod(claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
	for i, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c},
		}})
	}
	return p
}
