package kube

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// needed are the kinds that have to be served wherever they are watched: how they are served is
// no question. Those of snapshots are not among them: where they are not served there are none.
var needed = []struct {
	schema.GroupVersion
	scope meta.RESTScope
	kinds []string
}{
	{corev1.SchemeGroupVersion, meta.RESTScopeRoot, []string{"Node", "PersistentVolume"}},
	{corev1.SchemeGroupVersion, meta.RESTScopeNamespace, []string{"Event", "PersistentVolumeClaim", "Pod", "Secret"}},
	{coordinationv1.SchemeGroupVersion, meta.RESTScopeNamespace, []string{"Lease"}},
	{storagev1.SchemeGroupVersion, meta.RESTScopeRoot, []string{"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"}},
	{storagev1.SchemeGroupVersion, meta.RESTScopeNamespace, []string{"CSIStorageCapacity"}},
	{storagev1alpha1.GroupVersion, meta.RESTScopeNamespace, []string{
		"DPUStoragePolicy", "DPUStorageVendor", "DPUVolume", "DPUVolumeAttachment", "StoragePolicy", "StorageVendor", "SVVolumeAttachment", "Volume",
		"VolumeAttachment",
	}},
	{moorv1alpha1.GroupVersion, meta.RESTScopeRoot, []string{"DPUStorageNode"}},
	{moorv1alpha1.GroupVersion, meta.RESTScopeNamespace, []string{"PowerControl", "WriterClaim"}},
}
