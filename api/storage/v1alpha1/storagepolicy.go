package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StorageSelectionAlg chooses one of a policy's vendors.
// +kubebuilder:validation:Enum=Random;LocalNVolumes
type StorageSelectionAlg string

// The selection algorithms of the DPU cluster.
const (
	// AlgRandom takes any vendor with equal chance.
	AlgRandom StorageSelectionAlg = "Random"
	// AlgLocalNVolumes takes the vendor with the fewest volumes.
	AlgLocalNVolumes StorageSelectionAlg = "LocalNVolumes"
)

// StoragePolicySpec mirrors a DPUStoragePolicy. Writer: snap-host-controller.
type StoragePolicySpec struct {
	// StorageVendors are names of StorageVendors in the same namespace.
	// +optional
	StorageVendors []string `json:"storageVendors,omitempty"`
	// StorageParameters go to every volume of this policy.
	// +optional
	StorageParameters map[string]string `json:"storageParameters,omitempty"`
	// StorageSelectionAlg chooses among the vendors.
	// +kubebuilder:default=LocalNVolumes
	// +optional
	StorageSelectionAlg StorageSelectionAlg `json:"storageSelectionAlg,omitempty"`
}

// StoragePolicyState says whether a policy can serve volumes.
// +kubebuilder:validation:Enum=Valid;Invalid
type StoragePolicyState string

// The states of a StoragePolicy.
const (
	StoragePolicyValid   StoragePolicyState = "Valid"
	StoragePolicyInvalid StoragePolicyState = "Invalid"
)

// StoragePolicyStatus is what snap-controller sees.
type StoragePolicyStatus struct {
	// State: Valid if every vendor and its StorageClass exist.
	// +optional
	State StoragePolicyState `json:"state,omitempty"`
	// Message says what is missing.
	// +optional
	Message string `json:"message,omitempty"`
	// Capacity is what is free for volumes of this policy; absent if no vendor
	// tells. An addition of Moor.
	// +optional
	Capacity *PolicyCapacity `json:"capacity,omitempty"`
}

// PolicyCapacity is the room that the vendors of a policy have, as their
// CSIStorageCapacity objects in the DPU cluster tell.
type PolicyCapacity struct {
	// Available is how much can be given out still, over all vendors that
	// tell, in bytes.
	Available resource.Quantity `json:"available"`
	// MaximumVolumeSize is the largest volume that one of them can make;
	// absent if none tells.
	// +optional
	MaximumVolumeSize *resource.Quantity `json:"maximumVolumeSize,omitempty"`
	// Places are the parts of it, by where they are reached from; absent if
	// that makes no difference.
	// +optional
	Places []PlaceCapacity `json:"places,omitempty"`
}

// PlaceCapacity is the room that is reached from one place.
type PlaceCapacity struct {
	// Topology is the place, by values of topology keys; absent: everywhere.
	// +optional
	Topology map[string]string `json:"topology,omitempty"`
	// Available is how much can be given out still, in bytes.
	Available resource.Quantity `json:"available"`
	// MaximumVolumeSize is the largest volume that can be made; absent if it is
	// not told.
	// +optional
	MaximumVolumeSize *resource.Quantity `json:"maximumVolumeSize,omitempty"`
}

// StoragePolicy is a DPUStoragePolicy as the DPU cluster knows it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=storagepolicies,categories=moor
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type StoragePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   StoragePolicySpec   `json:"spec,omitempty"`
	Status StoragePolicyStatus `json:"status,omitempty"`
}

// StoragePolicyList is a list of StoragePolicies.
// +kubebuilder:object:root=true
type StoragePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StoragePolicy `json:"items"`
}

// StorageVendorSpec mirrors a DPUStorageVendor. Writer: snap-host-controller.
type StorageVendorSpec struct {
	// StorageClassName is the vendor's StorageClass in this cluster.
	// +kubebuilder:validation:MinLength=1
	StorageClassName string `json:"storageClassName"`
	// PluginName is the vendor's StoragePlugin on each DPU.
	// +kubebuilder:validation:MinLength=1
	PluginName string `json:"pluginName"`
	// MaxShares is the most hosts that may have one of the vendor's volumes. Not set:
	// there is no bound. An addition of Moor.
	// +kubebuilder:validation:Minimum=1
	// +optional
	MaxShares *int32 `json:"maxShares,omitempty"`
}

// StorageVendor is a DPUStorageVendor as the DPU cluster knows it.
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=moor
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="StorageClassName",type=string,JSONPath=`.spec.storageClassName`
// +kubebuilder:printcolumn:name="PluginName",type=string,JSONPath=`.spec.pluginName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type StorageVendor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec StorageVendorSpec `json:"spec,omitempty"`
}

// StorageVendorList is a list of StorageVendors.
// +kubebuilder:object:root=true
type StorageVendorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StorageVendor `json:"items"`
}
