package dpuclustertest

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// Meta names an object in Namespace, with a UID made from its name.
func Meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: Namespace, Name: name, UID: types.UID("uid-" + name)}
}

// Vendor is a StorageVendor with plugin "<name>-plugin" and class
// "<name>-class".
func Vendor(name string) *storagev1alpha1.StorageVendor {
	return &storagev1alpha1.StorageVendor{ObjectMeta: Meta(name), Spec: storagev1alpha1.StorageVendorSpec{
		StorageClassName: name + "-class", PluginName: name + "-plugin",
	}}
}

// StorageClass is the class of a vendor; its driver is "<vendor>.csi".
func StorageClass(vendor string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: vendor + "-class"}, Provisioner: vendor + ".csi"}
}

// CSIDriver is the driver of a vendor.
func CSIDriver(vendor string, attachRequired *bool) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: vendor + ".csi"},
		Spec:       storagev1.CSIDriverSpec{AttachRequired: attachRequired},
	}
}

// Policy is a valid StoragePolicy.
func Policy(name string, vendors ...string) *storagev1alpha1.StoragePolicy {
	return &storagev1alpha1.StoragePolicy{
		ObjectMeta: Meta(name),
		Spec: storagev1alpha1.StoragePolicySpec{
			StorageVendors:    vendors,
			StorageParameters: map[string]string{"tier": name},
		},
		Status: storagev1alpha1.StoragePolicyStatus{State: storagev1alpha1.StoragePolicyValid},
	}
}

// Volume asks for 1 Gi, ReadWriteOnce, of a policy.
func Volume(name, policy string) *storagev1alpha1.Volume {
	return &storagev1alpha1.Volume{ObjectMeta: Meta(name), Spec: storagev1alpha1.VolumeSpec{
		Request: storagev1alpha1.VolumeRequest{
			CapacityRange: storagev1alpha1.CapacityRange{Request: ptr.To(resource.MustParse("1Gi")), Limit: ptr.To(resource.MustParse("2Gi"))},
			AccessModes:   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:    ptr.To(corev1.PersistentVolumeBlock),
		},
		StorageParameters: map[string]string{"policy": policy},
	}}
}

// Attachment attaches a volume to a DPU.
func Attachment(name, volume, node string) *storagev1alpha1.VolumeAttachment {
	return &storagev1alpha1.VolumeAttachment{ObjectMeta: Meta(name), Spec: storagev1alpha1.VolumeAttachmentSpec{
		NodeName: node,
		Source:   storagev1alpha1.VolumeAttachmentSource{VolumeRef: &storagev1alpha1.ObjectRef{Name: volume}},
	}}
}

// PV is what a vendor's CSI driver makes for a claim.
func PV(name, claim, driver string, reclaim corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1536Mi")},
		AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany},
		PersistentVolumeReclaimPolicy: reclaim,
		VolumeMode:                    ptr.To(corev1.PersistentVolumeBlock),
		ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: Namespace, Name: claim},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: driver, VolumeHandle: "handle-" + name, VolumeAttributes: map[string]string{"array": "7"},
		}},
	}}
}
