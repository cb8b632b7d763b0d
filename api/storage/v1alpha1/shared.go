package v1alpha1

// FunctionType is the kind of PCI function through which a host sees a volume.
// +kubebuilder:validation:Enum=pf;vf
type FunctionType string

// The function types.
const (
	FunctionTypePF FunctionType = "pf"
	FunctionTypeVF FunctionType = "vf"
)

// FunctionTypeConfig chooses the emulated function. Writer: the creator
// of the attachment.
type FunctionTypeConfig struct {
	// FunctionType is pf (physical function) or vf (virtual function).
	FunctionType FunctionType `json:"functionType"`
	// HotplugFunction asks for a function that is plugged in for this volume
	// alone; only with functionType pf.
	HotplugFunction bool `json:"hotplugFunction"`
}

// ObjectReference names an object of which namespace and name are known.
type ObjectReference struct {
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// Namespace of the object.
	// +kubebuilder:validation:MinLength=1
	Namespace string `json:"namespace"`
}

// ObjectRef names an object in the DPU cluster.
type ObjectRef struct {
	// Kind of the object.
	// +optional
	Kind string `json:"kind,omitempty"`
	// APIVersion of the object.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Name of the object.
	// +optional
	Name string `json:"name,omitempty"`
	// Namespace of the object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// Role says what an attachment is for. An addition of Moor.
// +kubebuilder:validation:Enum=Primary;Replica
type Role string

// The roles of an attachment.
const (
	// RolePrimary is the attachment through which pods use the volume.
	RolePrimary Role = "Primary"
	// RoleReplica is kept ready on another host, so that a failover is quick.
	RoleReplica Role = "Replica"
)

// MostPlaces is how many places a list of them has at most: what it names comes
// by preference, so that one of the first is as good as one of all. It is the
// maxItems of the CRDs. An addition of Moor.
const MostPlaces = 256
