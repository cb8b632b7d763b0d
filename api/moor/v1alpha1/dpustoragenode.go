package v1alpha1

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// HostMode is what the host is trusted with.
// +kubebuilder:validation:Enum=Trusted;ZeroTrust
type HostMode string

// The modes of a host.
const (
	// Trusted: snap-csi-plugin runs on the host, with an account of the host
	// cluster, and writes a heartbeat.
	Trusted HostMode = "Trusted"
	// ZeroTrust: nothing of Moor on the host has an account, and there is no
	// heartbeat: only its DPU can tell whether the host is alive.
	ZeroTrust HostMode = "ZeroTrust"
)

// DPUStorageNodeSpec binds a host to its DPU.
type DPUStorageNodeSpec struct {
	// DPUName is the DPU's node name in the DPU cluster. Empty: not known yet.
	// +optional
	DPUName string `json:"dpuName,omitempty"`
	// Replaces is the DPU that dpuName takes the place of. A change of dpuName has to
	// name it: what that DPU shows for this host is not over by the change, so who
	// makes it has to know of it. Afterwards it says nothing.
	// +optional
	Replaces string `json:"replaces,omitempty"`
	// DPUCluster is the DPU cluster in which the DPU is, as "namespace/name" of its
	// DPUCluster, where there are several: the snap-host-controller of that one sees to this
	// host. Empty: not known yet, or there is one DPU cluster. Never changes once it is set.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +optional
	DPUCluster string `json:"dpuCluster,omitempty"`
	// HostMode says what the host is trusted with. Empty: Trusted.
	// +kubebuilder:default=Trusted
	// +optional
	HostMode HostMode `json:"hostMode,omitempty"`
	// Failover is a person's request that the host fails over now, in the normal
	// way: its volumes go elsewhere with a receipt each, or not at all. It counts
	// for the DPU and the boot of the host that it names, for 15 minutes from
	// its time, and not while the host is Healthy.
	// +optional
	Failover *FailoverRequest `json:"failover,omitempty"`
	// Drain is a person's wish that nothing is written through the DPU of this host, so
	// that it can be rebooted: pods that use volumes are evicted, none comes, and no
	// replica is made there, for as long as it is set. Absent: no drain. In the host
	// cluster only.
	// +optional
	Drain *DrainRequest `json:"drain,omitempty"`
}

// DrainRequest is a person's wish that a DPU is drained.
type DrainRequest struct {
	// Reason says why, such as "new BFB". It is told wherever the host is refused.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason"`
}

// FailoverRequest is a person's request that a host fails over. It proves nothing.
type FailoverRequest struct {
	// DPUName is that of spec.
	// +kubebuilder:validation:MinLength=1
	DPUName string `json:"dpuName"`
	// BootID is status.nodeInfo.bootID of the Node: for a host that has booted
	// since, the request does not count. Empty only if the Node says none.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// Time at which it is written.
	Time metav1.Time `json:"time"`
	// RequestedBy is the user name of the person, as the API server knows it: a
	// policy compares it.
	// +kubebuilder:validation:MinLength=1
	RequestedBy string `json:"requestedBy"`
	// Reason says why.
	// +kubebuilder:validation:MinLength=1
	Reason string `json:"reason"`
}

// Heartbeat is one sign of life. Only the change of Sequence counts, measured
// by the observer's own clock; Time is for people.
type Heartbeat struct {
	// Sequence grows with every beat.
	// +optional
	Sequence int64 `json:"sequence,omitempty"`
	// Time of the beat by the sender's clock.
	// +optional
	Time metav1.Time `json:"time,omitempty"`
	// Version of the sender.
	// +optional
	Version string `json:"version,omitempty"`
}

// HostState is what the host's node plugin says. Writer: snap-csi-plugin.
type HostState struct {
	Heartbeat `json:",inline"`
	// MaxVolumes that this host can have attached.
	// +optional
	MaxVolumes int64 `json:"maxVolumes,omitempty"`
	// DeadMounts are the volumes whose mounts on this host are of no use any more.
	// +optional
	// +listType=map
	// +listMapKey=volume
	// +kubebuilder:validation:MaxItems=1024
	DeadMounts []DeadMount `json:"deadMounts,omitempty"`
}

// DeadMount is a volume that is mounted on a host and can be used through that mount no
// more: its device is gone or another one, or the kernel has given the file system up.
// The containers of a pod keep its mount when they are started again, so only a new pod
// gets the volume back.
type DeadMount struct {
	// Volume is the DPUVolume.
	Volume string `json:"volume"`
	// Since when, by the host's clock.
	Since metav1.Time `json:"since"`
	// Pods that have the mount, by their UIDs.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	Pods []types.UID `json:"pods,omitempty"`
	// DeviceReady: the device of the volume answers on the host, so that a new pod can have
	// it there; or the host's plugin was started after the volume was staged, and does not know which it is.
	// +optional
	DeviceReady bool `json:"deviceReady,omitempty"`
	// Message says what is wrong.
	// +optional
	Message string `json:"message,omitempty"`
}

// FunctionHotplug is the type in FunctionCount of functions that are plugged in
// when they are wanted.
const FunctionHotplug = "hotplug"

// FunctionCount is how many emulated functions there are.
type FunctionCount struct {
	// Type of the functions: pf and vf are those that are always there, hotplug
	// are physical functions that are plugged in when they are wanted.
	Type string `json:"type"`
	// Total number of functions.
	Total int64 `json:"total"`
	// Free functions.
	Free int64 `json:"free"`
}

// PluginState is how a vendor plugin is.
type PluginState struct {
	// Name of the plugin: that of its directory.
	Name string `json:"name"`
	// Version that it says it is.
	// +optional
	Version string `json:"version,omitempty"`
	// Provider is the SNAP service that it works with.
	// +optional
	Provider string `json:"provider,omitempty"`
	// Ready: it answers, is fit, and says that it is ready.
	Ready bool `json:"ready"`
	// Message says why it is not ready; of one that is, what it tells of itself that the
	// plugin API does not allow.
	// +optional
	Message string `json:"message,omitempty"`
}

// DPUState is what the DPU's agent says. Writer: snap-node-driver in the DPU
// cluster; snap-host-controller copies it to the host cluster.
type DPUState struct {
	Heartbeat `json:",inline"`
	// Functions by type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Functions []FunctionCount `json:"functions,omitempty"`
	// Plugins of vendors.
	// +optional
	// +listType=map
	// +listMapKey=name
	Plugins []PluginState `json:"plugins,omitempty"`
	// SNAPReady: the SNAP service answers.
	// +optional
	SNAPReady bool `json:"snapReady,omitempty"`
	// Host is what the DPU sees of the host it sits in, over a link that is
	// not the cluster network. Absent: the DPU does not look.
	// +optional
	Host *HostObservation `json:"host,omitempty"`
	// LostPaths are the volumes of this DPU whose way to the storage is lost.
	// +optional
	// +listType=map
	// +listMapKey=volume
	// +kubebuilder:validation:MaxItems=1024
	LostPaths []LostPath `json:"lostPaths,omitempty"`
	// AllPathsLost: there are such volumes, and no device of this DPU reaches its storage.
	// +optional
	AllPathsLost bool `json:"allPathsLost,omitempty"`
	// Lease is what the DPU promises about the time after this beat. Absent: it
	// promises nothing, and shows volumes until it is told to withdraw them.
	// +optional
	Lease *DPULease `json:"lease,omitempty"`
}

// LostPath is a volume that a DPU has a device of, and cannot reach at the storage: I/O of
// the host waits, or fails. That the DPU says so proves nothing about what the storage has
// received of it.
type LostPath struct {
	// Volume is the Volume, and so the DPUVolume of that name.
	Volume string `json:"volume"`
	// Since when, by the DPU's clock; for people.
	Since metav1.Time `json:"since"`
	// BorneMillis is for how many milliseconds the path had shown signs of a loss when it began to
	// count as lost. That is a duration, so no two clocks are compared: pathTimeout counts it in.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600000
	// +optional
	BorneMillis int64 `json:"borneMillis,omitempty"`
	// Message says by what it is known.
	// +optional
	Message string `json:"message,omitempty"`
}

// DPULease is a DPU's promise that nothing of a single-writer volume is written
// through it any more, once it has not renewed for DurationMillis and
// GraceMillis together. Each beat that carries it renews it.
type DPULease struct {
	// Sequence of the beat that renewed it. A lease with another sequence than
	// the beat's is no promise: a sender that gives none has left it there.
	// +kubebuilder:validation:Minimum=1
	Sequence int64 `json:"sequence"`
	// DurationMillis is how long the DPU shows volumes after it began a
	// renewal that was answered.
	// +kubebuilder:validation:Minimum=1
	DurationMillis int64 `json:"durationMillis"`
	// GraceMillis is how long it takes at most after that until the last write
	// has landed: its watchdog's timeout, three times, and what the storage has
	// received already.
	// +kubebuilder:validation:Minimum=1
	GraceMillis int64 `json:"graceMillis"`
}

// HostObservation is what a DPU observes of its host.
type HostObservation struct {
	// Alive: the host answers, or begins I/O on what it is shown.
	Alive bool `json:"alive"`
	// Since when it is so, by the DPU's clock; for people.
	// +optional
	Since metav1.Time `json:"since,omitempty"`
	// Evidence says, for people, what Alive was concluded from.
	// +optional
	Evidence string `json:"evidence,omitempty"`
}

// DPUStorageNodeStatus is what is seen of a host and its DPU.
type DPUStorageNodeStatus struct {
	// Host half.
	// +optional
	Host *HostState `json:"host,omitempty"`
	// DPU half.
	// +optional
	DPU *DPUState `json:"dpu,omitempty"`
	// Topology is where the host's DPU is, for storage: the labels of its Node
	// for the topology keys of the vendors' drivers there, and the DPU itself.
	// In the host cluster only. Writer: snap-host-controller.
	// +optional
	Topology map[string]string `json:"topology,omitempty"`
	// Conditions: HostAlive, DPUAlive, Ready; PathHealthy, Failover, FailoverRequested and Drained
	// where there is something to say.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Draining says, in words, that the DPU is being drained; "" if it is not.
func (s *DPUStorageNodeSpec) Draining() string {
	if s.Drain == nil {
		return ""
	}
	return fmt.Sprintf("DPU %s is being drained: %s", s.DPUName, s.Drain.Reason)
}

// DeadMounts are those that the host tells of.
func (s *DPUStorageNodeStatus) DeadMounts() []DeadMount {
	if s.Host == nil {
		return nil
	}
	return s.Host.DeadMounts
}

// LostPaths are those that the DPU tells of.
func (s *DPUStorageNodeStatus) LostPaths() []LostPath {
	if s.DPU == nil {
		return nil
	}
	return s.DPU.LostPaths
}

// LostPath is that of a volume, nil if the DPU tells of none.
func (s *DPUStorageNodeStatus) LostPath(volume string) *LostPath {
	all := s.LostPaths()
	i := slices.IndexFunc(all, func(l LostPath) bool { return l.Volume == volume })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// DPUStorageNode is the heartbeat of a host and of the DPU in it. In the host
// cluster its name is the host's node name, in the DPU cluster the DPU's.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=moor,shortName=dpusn
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:selectablefield:JSONPath=`.spec.dpuName`
// +kubebuilder:selectablefield:JSONPath=`.spec.dpuCluster`
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec) || !has(oldSelf.spec.dpuCluster) || size(oldSelf.spec.dpuCluster) == 0 || has(self.spec) && has(self.spec.dpuCluster) && self.spec.dpuCluster == oldSelf.spec.dpuCluster",fieldPath=".spec.dpuCluster",messageExpression="'the host is in DPU cluster ' + oldSelf.spec.dpuCluster + ', whose controller alone can take back what its DPU may write: delete this object, once nothing is attached to the host, to have it in another one'",message="dpuCluster never changes once it is set"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec) || !has(oldSelf.spec.dpuName) || size(oldSelf.spec.dpuName) == 0 || (has(self.spec) && (has(self.spec.dpuName) && self.spec.dpuName == oldSelf.spec.dpuName || has(self.spec.replaces) && self.spec.replaces == oldSelf.spec.dpuName))",fieldPath=".spec.dpuName",messageExpression="'the host has DPU ' + oldSelf.spec.dpuName + ', which may still write for it: name it in spec.replaces to name another one in spec.dpuName'",message="dpuName changes with spec.replaces, which names the DPU of before"
// +kubebuilder:printcolumn:name="DPU",type=string,JSONPath=`.spec.dpuName`
// +kubebuilder:printcolumn:name="Host Alive",type=string,JSONPath=`.status.conditions[?(@.type=='HostAlive')].status`
// +kubebuilder:printcolumn:name="DPU Alive",type=string,JSONPath=`.status.conditions[?(@.type=='DPUAlive')].status`
// +kubebuilder:printcolumn:name="SNAP",type=boolean,JSONPath=`.status.dpu.snapReady`
// +kubebuilder:printcolumn:name="Free VFs",type=integer,JSONPath=`.status.dpu.functions[?(@.type=='vf')].free`
// +kubebuilder:printcolumn:name="Plugins",type=string,JSONPath=`.status.dpu.plugins[*].name`
// +kubebuilder:printcolumn:name="Host Beat",type=date,JSONPath=`.status.host.time`
// +kubebuilder:printcolumn:name="DPU Beat",type=date,JSONPath=`.status.dpu.time`
// +kubebuilder:printcolumn:name="Failover",type=string,JSONPath=`.status.conditions[?(@.type=='Failover')].reason`
// +kubebuilder:printcolumn:name="Drained",type=string,JSONPath=`.status.conditions[?(@.type=='Drained')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DPUStorageNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DPUStorageNodeSpec   `json:"spec,omitempty"`
	Status DPUStorageNodeStatus `json:"status,omitempty"`
}

// DPUStorageNodeList is a list of DPUStorageNodes.
// +kubebuilder:object:root=true
type DPUStorageNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DPUStorageNode `json:"items"`
}

// TopologyDPU is the topology key whose value is the DPU of a host: the name of
// its Node in the DPU cluster, or the hex FNV-128 of it where a label may not
// have that. It is no label that a person gives: the kubelet refuses a driver whose key the node
// has with another value (storage.moor.dev/dpu, in deploy/, is such a label).
const TopologyDPU = "storage.moor.dev/dpu-name"

// TopologyDPUCluster is the topology key whose value is the DPU cluster of a host's DPU, where
// there are several: "namespace.name" of its DPUCluster, or the hex FNV-128 of it if that is no
// label value. A volume is reached from the DPU cluster in which it is alone.
const TopologyDPUCluster = "storage.moor.dev/dpu-cluster"
