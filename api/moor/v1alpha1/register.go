package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind here.
var GroupVersion = schema.GroupVersion{Group: "storage.moor.dev", Version: "v1alpha1"}

// AddHostToScheme registers the kinds that the host cluster serves.
func AddHostToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&DPUStorageNode{}, &DPUStorageNodeList{}, &DPUVolumeSnapshot{}, &DPUVolumeSnapshotList{},
		&PowerControl{}, &PowerControlList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// AddDPUToScheme registers the kinds that the DPU cluster serves.
func AddDPUToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&DPUStorageNode{}, &DPUStorageNodeList{}, &WriterClaim{}, &WriterClaimList{},
		&StorageSnapshot{}, &StorageSnapshotList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// AddPodsToScheme registers the kinds of pods as volumes, which either cluster can serve.
func AddPodsToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &PodVolume{}, &PodVolumeList{}, &PodStaging{}, &PodStagingList{}, &PodRevocation{}, &PodRevocationList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
