package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SelectionAlgorithm chooses one of a policy's vendors for a volume.
// +kubebuilder:validation:Enum=Random;NumberVolumes
type SelectionAlgorithm string

// The selection algorithms.
const (
	// SelectRandom takes any vendor with equal chance.
	SelectRandom SelectionAlgorithm = "Random"
	// SelectNumberVolumes takes the vendor with the fewest volumes; a tie
	// goes to the first in alphabetical order.
	SelectNumberVolumes SelectionAlgorithm = "NumberVolumes"
)

// DPUStoragePolicySpec says which vendors may serve a volume. Writer: the admin.
type DPUStoragePolicySpec struct {
	// DPUStorageVendors are names of DPUStorageVendors in the same namespace.
	// +kubebuilder:validation:MinItems=1
	DPUStorageVendors []string `json:"dpuStorageVendors"`
	// Parameters go to every volume of this policy; the volume's own win.
	// +kubebuilder:default={}
	// +optional
	Parameters map[string]string `json:"parameters,omitempty"`
	// SelectionAlgorithm chooses among the vendors.
	// +kubebuilder:default=NumberVolumes
	// +optional
	SelectionAlgorithm SelectionAlgorithm `json:"selectionAlgorithm,omitempty"`
}

// DPUStoragePolicyStatus is what the host controller sees of the policy.
type DPUStoragePolicyStatus struct {
	// Capacity is what is free for volumes of this policy; absent if no vendor
	// tells. An addition of Moor.
	// +optional
	Capacity *PolicyCapacity `json:"capacity,omitempty"`
	// Conditions: Ready, DPUStoragePolicyReconciled, Valid.
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that Conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// DPUStoragePolicy is what a StorageClass names: vendors and parameters.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=dpustoragepolicies,categories=moor,shortName=dpusp
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="SelectionAlgorithm",type=string,JSONPath=`.spec.selectionAlgorithm`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DPUStoragePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DPUStoragePolicySpec   `json:"spec,omitempty"`
	Status DPUStoragePolicyStatus `json:"status,omitempty"`
}

// DPUStoragePolicyList is a list of DPUStoragePolicies.
// +kubebuilder:object:root=true
type DPUStoragePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DPUStoragePolicy `json:"items"`
}
