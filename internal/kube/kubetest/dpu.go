package kubetest

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// DPUObject is the name and namespace of an object in the DPU cluster.
func DPUObject(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: DPUNamespace, Name: name}
}

// StorageVendor is a vendor with StorageClass "<name>-class" and plugin
// "<name>-plugin".
func StorageVendor(name string) *storagev1alpha1.StorageVendor {
	return &storagev1alpha1.StorageVendor{ObjectMeta: DPUObject(name), Spec: storagev1alpha1.StorageVendorSpec{
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

// StoragePolicy is a valid policy of the vendors.
func StoragePolicy(name string, vendors ...string) *storagev1alpha1.StoragePolicy {
	return &storagev1alpha1.StoragePolicy{
		ObjectMeta: DPUObject(name),
		Spec: storagev1alpha1.StoragePolicySpec{
			StorageVendors:    vendors,
			StorageParameters: map[string]string{"tier": name},
		},
		Status: storagev1alpha1.StoragePolicyStatus{State: storagev1alpha1.StoragePolicyValid},
	}
}

// Volume asks for 1 GiB, ReadWriteOnce, of a policy.
func Volume(name, policy string) *storagev1alpha1.Volume {
	return &storagev1alpha1.Volume{ObjectMeta: DPUObject(name), Spec: storagev1alpha1.VolumeSpec{
		Request: storagev1alpha1.VolumeRequest{
			CapacityRange: storagev1alpha1.CapacityRange{Request: ptr.To(resource.MustParse("1Gi")), Limit: ptr.To(resource.MustParse("2Gi"))},
			AccessModes:   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:    ptr.To(corev1.PersistentVolumeBlock),
		},
		StorageParameters: map[string]string{storagev1alpha1.ParameterPolicy: policy},
	}}
}

// VolumeAttachment attaches a volume to a DPU.
func VolumeAttachment(name, volume, dpu string) *storagev1alpha1.VolumeAttachment {
	return &storagev1alpha1.VolumeAttachment{ObjectMeta: DPUObject(name), Spec: storagev1alpha1.VolumeAttachmentSpec{
		NodeName: dpu,
		Source:   storagev1alpha1.VolumeAttachmentSource{VolumeRef: &storagev1alpha1.ObjectRef{Name: volume}},
	}}
}

// WriterClaim is the writer claim of a volume, granted to a DPU's attachment: the first of
// its name that is made.
func WriterClaim(volume, dpu, attachment string, epoch int64) *moorv1alpha1.WriterClaim {
	meta := DPUObject(volume)
	meta.Finalizers = []string{storagev1alpha1.FinalizerEpochs}
	return &moorv1alpha1.WriterClaim{
		ObjectMeta: meta, Spec: moorv1alpha1.WriterClaimSpec{VolumeName: volume},
		Status: &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: dpu, Attachment: attachment, AttachmentUID: AttachmentUID(attachment), Epoch: epoch},
	}
}

// MirrorOfFirst is the Volume that snap-host-controller makes for the first DPUVolume of its name.
func MirrorOfFirst(name string) *storagev1alpha1.Volume {
	v := &storagev1alpha1.Volume{ObjectMeta: DPUObject(name)}
	v.Labels = map[string]string{storagev1alpha1.LabelOwnerUID: "DPUVolume-" + name + "-1"}
	return v
}

// AttachmentUID is the UID of the first VolumeAttachment of a name that is made.
func AttachmentUID(name string) types.UID { return types.UID("VolumeAttachment-" + name + "-1") }

// VendorPV is what a vendor's CSI driver makes for a claim.
func VendorPV(name, claim, driver string, reclaim corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1536Mi")},
		AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany},
		PersistentVolumeReclaimPolicy: reclaim,
		VolumeMode:                    ptr.To(corev1.PersistentVolumeBlock),
		ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: DPUNamespace, Name: claim},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: driver, VolumeHandle: "handle-" + name, VolumeAttributes: map[string]string{"array": "7"},
		}},
	}}
}
