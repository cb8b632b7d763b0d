package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DPUStorageVendorSpec names the two halves of a vendor. Writer: the admin.
type DPUStorageVendorSpec struct {
	// StorageClassName is the vendor's StorageClass in the DPU cluster.
	// +kubebuilder:validation:MinLength=1
	StorageClassName string `json:"storageClassName"`
	// PluginName is the vendor's StoragePlugin on each DPU.
	// +kubebuilder:validation:MinLength=1
	PluginName string `json:"pluginName"`
	// MaxShares is the most hosts that may have one of the vendor's volumes, replicas
	// included: volumes with a higher maxShares are made by another vendor of their
	// policy, or not at all. It is looked at when the vendor of a volume is chosen. Not
	// set: there is no bound. An addition of Moor.
	// +kubebuilder:validation:Minimum=1
	// +optional
	MaxShares *int32 `json:"maxShares,omitempty"`
}

// DPUStorageVendorStatus is what the host controller sees of the vendor.
type DPUStorageVendorStatus struct {
	// Conditions: Ready, DPUStorageVendorReconciled, Valid, AsRecommended.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that Conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// DPUClusters are those where the StorageClass and its CSIDriver exist.
	// +optional
	DPUClusters []ObjectReference `json:"dpuClusters,omitempty"`
}

// DPUStorageVendor is a storage vendor that policies can name.
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=moor,shortName=dpusv
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="StorageClassName",type=string,JSONPath=`.spec.storageClassName`
// +kubebuilder:printcolumn:name="PluginName",type=string,JSONPath=`.spec.pluginName`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DPUStorageVendor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DPUStorageVendorSpec   `json:"spec,omitempty"`
	Status DPUStorageVendorStatus `json:"status,omitempty"`
}

// DPUStorageVendorList is a list of DPUStorageVendors.
// +kubebuilder:object:root=true
type DPUStorageVendorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DPUStorageVendor `json:"items"`
}
