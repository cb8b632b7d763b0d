package kubetest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// A builder is named after the kind that it builds.

// Driver is the name of Moor's CSI driver.
const Driver = "csi.snap.nvidia.com"

// SecondDriver is the name of one that is installed beside it, as DPF has one for
// virtio-fs.
const SecondDriver = "csi-virtiofs.snap.nvidia.com"

// HostObject is the name and namespace of an object of Moor's in the host cluster.
func HostObject(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: HostNamespace, Name: name}
}

// DPUStorageVendor is a vendor with StorageClass "<name>-class" and plugin
// "<name>-plugin".
func DPUStorageVendor(name string) *storagev1alpha1.DPUStorageVendor {
	return &storagev1alpha1.DPUStorageVendor{
		ObjectMeta: HostObject(name),
		Spec:       storagev1alpha1.DPUStorageVendorSpec{StorageClassName: name + "-class", PluginName: name + "-plugin"},
	}
}

// DPUStoragePolicy is a policy of the vendors.
func DPUStoragePolicy(name string, vendors ...string) *storagev1alpha1.DPUStoragePolicy {
	return &storagev1alpha1.DPUStoragePolicy{
		ObjectMeta: HostObject(name),
		Spec:       storagev1alpha1.DPUStoragePolicySpec{DPUStorageVendors: vendors, SelectionAlgorithm: storagev1alpha1.SelectNumberVolumes},
	}
}

// DPUVolume is a volume of 1 GiB of policy "policy", without a status.
func DPUVolume(name string, modes ...corev1.PersistentVolumeAccessMode) *storagev1alpha1.DPUVolume {
	return &storagev1alpha1.DPUVolume{ObjectMeta: HostObject(name), Spec: storagev1alpha1.DPUVolumeSpec{
		DPUStoragePolicyName: "policy", AccessModes: modes, VolumeMode: ptr.To(corev1.PersistentVolumeBlock), Parameters: map[string]string{"color": "red"},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
}

// DPUVolumeAttachment is attachment "<node>-<volume>".
func DPUVolumeAttachment(volume, node string) *storagev1alpha1.DPUVolumeAttachment {
	return &storagev1alpha1.DPUVolumeAttachment{ObjectMeta: HostObject(node + "-" + volume), Spec: storagev1alpha1.DPUVolumeAttachmentSpec{
		DPUVolumeName: volume, DPUNodeName: node, FunctionTypeConfig: storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypeVF},
	}}
}

// DPUStorageNode is a node whose DPU is "dpu-<name>".
func DPUStorageNode(name string) *moorv1alpha1.DPUStorageNode {
	return &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: "dpu-" + name}}
}

// Node is a node that is ready, with these labels.
func Node(name string, labels map[string]string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// Pod is a pod in namespace "default", on the node, that uses the claims.
func Pod(name, node string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}, Spec: corev1.PodSpec{NodeName: node}}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return pod
}

// PVC is a claim in namespace "default", bound to a PersistentVolume.
func PVC(name, pv string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: pv},
	}
}

// PV is the PersistentVolume of a DPUVolume, bound to a claim in namespace "default".
func PV(name, claim, volume string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef:               &corev1.ObjectReference{Namespace: metav1.NamespaceDefault, Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: Driver, VolumeHandle: volume}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

// Conditions writes conditions as "Type=Status/Reason: message" lines in the order
// of the types given, so that tables can compare them.
func Conditions(conditions []metav1.Condition, types ...string) []string {
	var out []string
	for _, kind := range types {
		c := meta.FindStatusCondition(conditions, kind)
		if c == nil {
			out = append(out, kind+" is missing")
			continue
		}
		line := fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason)
		if c.Message != "" {
			line += ": " + c.Message
		}
		out = append(out, line)
	}
	return out
}
