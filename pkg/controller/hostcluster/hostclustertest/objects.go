package hostclustertest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// AddHost makes objects in the host cluster, with their status.
func (w *World) AddHost(objects ...client.Object) { w.t.Helper(); w.add(w.Host, objects) }

// AddDPU makes objects in the DPU cluster, with their status.
func (w *World) AddDPU(objects ...client.Object) { w.t.Helper(); w.add(w.DPU, objects) }

func (w *World) add(c client.Client, objects []client.Object) {
	w.t.Helper()
	for _, o := range objects {
		if o.GetGeneration() == 0 {
			o.SetGeneration(1)
		}
		status := o.DeepCopyObject().(client.Object)
		if err := c.Create(w.t.Context(), o); err != nil {
			w.t.Fatalf("make %T %s: %v", o, o.GetName(), err)
		}
		status.SetUID(o.GetUID())
		status.SetResourceVersion(o.GetResourceVersion())
		switch o.(type) {
		case *storagev1.StorageClass, *storagev1.CSIDriver, *storagev1alpha1.StorageVendor, *corev1.Event:
			continue
		}
		if err := c.Status().Update(w.t.Context(), status); err != nil {
			w.t.Fatalf("status of %T %s: %v", o, o.GetName(), err)
		}
	}
}

// Change reads an object, changes it and writes it and its status.
func Change[T client.Object](w *World, c client.Client, o T, change func(T)) {
	w.t.Helper()
	if err := c.Get(w.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		w.t.Fatalf("read %T %s: %v", o, o.GetName(), err)
	}
	before := o.DeepCopyObject().(T)
	change(o)
	want := o.DeepCopyObject().(T)
	if err := c.Patch(w.t.Context(), o, client.MergeFrom(before)); err != nil {
		w.t.Fatalf("change %T %s: %v", o, o.GetName(), err)
	}
	if len(o.GetFinalizers()) == 0 && !o.GetDeletionTimestamp().IsZero() {
		return // it is gone
	}
	want.SetResourceVersion(o.GetResourceVersion())
	if err := c.Status().Update(w.t.Context(), want); err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatalf("change status of %T %s: %v", o, o.GetName(), err)
	}
}

// Read reads an object; found is false if it does not exist.
func Read[T client.Object](w *World, c client.Reader, o T) (got T, found bool) {
	w.t.Helper()
	err := c.Get(w.t.Context(), client.ObjectKeyFromObject(o), o)
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	return o, err == nil
}

// Remove deletes an object; one that is gone is well.
func Remove(w *World, c client.Client, o client.Object) {
	w.t.Helper()
	if err := client.IgnoreNotFound(c.Delete(w.t.Context(), o)); err != nil {
		w.t.Fatal(err)
	}
}

// User is the name and namespace of an object in the host cluster.
func User(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: Namespace, Name: name} }

// Mirror is the name and namespace of an object in the DPU cluster.
func Mirror(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: Target, Name: name} }

// Vendor is a DPUStorageVendor with StorageClass "<name>-class".
func Vendor(name string) *storagev1alpha1.DPUStorageVendor {
	return &storagev1alpha1.DPUStorageVendor{
		ObjectMeta: User(name),
		Spec:       storagev1alpha1.DPUStorageVendorSpec{StorageClassName: name + "-class", PluginName: name + "-plugin"},
	}
}

// Class is a StorageClass and its CSIDriver.
func Class(name, driver string) []client.Object {
	return []client.Object{
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver}},
	}
}

// Policy is a DPUStoragePolicy of the vendors.
func Policy(name string, vendors ...string) *storagev1alpha1.DPUStoragePolicy {
	return &storagev1alpha1.DPUStoragePolicy{
		ObjectMeta: User(name),
		Spec:       storagev1alpha1.DPUStoragePolicySpec{DPUStorageVendors: vendors, SelectionAlgorithm: storagev1alpha1.SelectNumberVolumes},
	}
}

// Volume is a DPUVolume of 1 GiB of policy "policy", without a status.
func Volume(name string, modes ...corev1.PersistentVolumeAccessMode) *storagev1alpha1.DPUVolume {
	block := corev1.PersistentVolumeBlock
	return &storagev1alpha1.DPUVolume{ObjectMeta: User(name), Spec: storagev1alpha1.DPUVolumeSpec{
		DPUStoragePolicyName: "policy", AccessModes: modes, VolumeMode: &block, Parameters: map[string]string{"color": "red"},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
}

// Attachment is a DPUVolumeAttachment "<node>-<volume>".
func Attachment(volume, node string) *storagev1alpha1.DPUVolumeAttachment {
	return &storagev1alpha1.DPUVolumeAttachment{ObjectMeta: User(node + "-" + volume), Spec: storagev1alpha1.DPUVolumeAttachmentSpec{
		DPUVolumeName: volume, DPUNodeName: node, FunctionTypeConfig: storagev1alpha1.FunctionTypeConfig{FunctionType: storagev1alpha1.FunctionTypeVF},
	}}
}

// Node is a DPUStorageNode whose DPU is "dpu-<name>".
func Node(name string) *moorv1alpha1.DPUStorageNode {
	return &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: "dpu-" + name}}
}

// Driver is the name of the CSI driver.
const Driver = "csi.snap.nvidia.com"

// Persistent is PersistentVolume "pv" of volume "vol", bound to claim
// default/data.
func Persistent() *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: "data"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: Driver, VolumeHandle: "vol"}},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
}

// PodOn is pod default/pod of the host, that uses claim default/data.
func PodOn(node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod"}, Spec: corev1.PodSpec{NodeName: node, Volumes: []corev1.Volume{{
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}},
	}}}}
}

// Say writes the conditions as "Type=Status/Reason: message" lines in the
// order of the types given, so that tables can compare them.
func Say(conditions []metav1.Condition, types ...string) []string {
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
