package state

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Slim cuts claims and volumes down to what the index reads, for the caches
// behind it: there may be tens of thousands. It is a cache transform. Other
// objects only lose their managed fields.
func Slim(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.PersistentVolumeClaim:
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: identity(&o.ObjectMeta),
			Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: o.Spec.VolumeName},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: o.Status.Phase},
		}, nil
	case *corev1.PersistentVolume:
		out := &corev1.PersistentVolume{ObjectMeta: identity(&o.ObjectMeta)}
		if csi := o.Spec.CSI; csi != nil {
			out.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: csi.Driver, VolumeHandle: csi.VolumeHandle, VolumeAttributes: csi.VolumeAttributes}
		}
		return out, nil
	case metav1.Object:
		o.SetManagedFields(nil)
	}
	return o, nil
}

// identity is what informers need of an object's metadata.
func identity(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
}
