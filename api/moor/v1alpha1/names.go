package v1alpha1

import "strings"

// LabelHeartbeat marks the Leases that carry heartbeats, also that which
// snap-host-controller writes to hear itself.
const LabelHeartbeat = "storage.moor.dev/heartbeat"

// leasePrefix keeps the Leases of hosts and DPUs apart from all others in their
// namespace.
const leasePrefix = "dpustoragenode."

// LeaseName is the name of the Lease that carries the heartbeat of a host or a DPU, in
// the namespace of Moor's objects of its cluster. Its holder is the node itself.
func LeaseName(node string) string { return leasePrefix + node }

// LeaseOf is whose heartbeat a Lease carries, by its name; ok: it is one of those.
func LeaseOf(name string) (node string, ok bool) { return strings.CutPrefix(name, leasePrefix) }

// Condition types of a DPUStorageNode.
const (
	ConditionHostAlive = "HostAlive"
	ConditionDPUAlive  = "DPUAlive"
	ConditionReady     = "Ready"
	// ConditionPathHealthy is there once the DPU has lost its way to the storage of a volume,
	// and False while it has. Volumes and attachments have one of the same name.
	ConditionPathHealthy = "PathHealthy"
	// ConditionFailover is True while a failover of the host is under way: from its
	// beginning until the host is back in service. Package failover alone writes it.
	ConditionFailover = "Failover"
	// ConditionFailoverRequested says what becomes of spec.failover. Package failover
	// alone writes it.
	ConditionFailoverRequested = "FailoverRequested"
	// ConditionDrained is there while spec.drain is, and True while nothing can be written
	// through the DPU, as the API servers said. Package dpudrain alone writes it.
	ConditionDrained = "Drained"
)

// Reasons of the conditions HostAlive, DPUAlive, Ready and PathHealthy of a DPUStorageNode.
const (
	// ReasonBeats: the heartbeat goes on.
	ReasonBeats = "Beats"
	// ReasonSilent: the heartbeat has stopped.
	ReasonSilent = "Silent"
	// ReasonSeenAlive: the DPU, which is alive, sees its host alive.
	ReasonSeenAlive = "SeenAlive"
	// ReasonSeenDead: the DPU, which is alive, sees its host dead.
	ReasonSeenDead = "SeenDead"
	// ReasonNotKnown: not watched for long enough, or it never beat.
	ReasonNotKnown = "NotKnown"
	// ReasonReady: host, DPU and SNAP work.
	ReasonReady = "Ready"
	// ReasonNotReady: one of them does not; the message says which.
	ReasonNotReady = "NotReady"
	// ReasonAllPathsLost: the DPU reaches the storage of no volume. ReasonPathLost: of some it does.
	ReasonAllPathsLost = "AllPathsLost"
	// ReasonSuccess: it reaches the storage of all its volumes again.
	ReasonSuccess = "Success"
	// ReasonNodeRemoved: the Node was removed, and something stays. It is also the
	// reason of the event that the object goes.
	ReasonNodeRemoved = "NodeRemoved"
	// ReasonDPUNamed: an event, spec.dpuName was set to the DPU that DPF has in the host.
	ReasonDPUNamed = "DPUNamed"
	// ReasonDPUNotNamed: an event, a person has to say which DPU is in the host.
	ReasonDPUNotNamed = "DPUNotNamed"
)

// Reasons of the condition Failover of a DPUStorageNode.
const (
	// ReasonFencing: a receipt is waited for.
	ReasonFencing = "Fencing"
	// ReasonReleased: every right to write is back; the host is out of service.
	ReasonReleased = "Released"
	// ReasonReturning: the host is healthy again, and something of before is still
	// on it.
	ReasonReturning = "Returning"
	// ReasonHeld: the host is not well and nothing is done; the message says why.
	ReasonHeld = "Held"
	// ReasonPathLost: the host lives, and volumes of it have lost their way to the storage;
	// the message says what is done about each. It is also a reason of PathHealthy.
	ReasonPathLost = "PathLost"
	// ReasonRecovered: the host is healthy and nothing of before is left.
	ReasonRecovered = "Recovered"
)

// Reasons of the condition FailoverRequested of a DPUStorageNode.
const (
	// ReasonAccepted: the request counts.
	ReasonAccepted = "Accepted"
	// ReasonRefused: what it names has changed, or the host is well.
	ReasonRefused = "Refused"
	// ReasonExpired: it was written too long ago.
	ReasonExpired = "Expired"
	// ReasonCarriedOut: the host has failed over since, and is back.
	ReasonCarriedOut = "CarriedOut"
)

// NodeConditionHostDead is a condition of Nodes, True from the beginning of the failover
// of a host that is taken for dead until it is seen alive, for those who repair or
// switch machines. Package failover writes it.
const NodeConditionHostDead = "storage.moor.dev/HostDead"

// Reasons of the condition Drained of a DPUStorageNode.
const (
	// ReasonEvicting: pods are being evicted, or are on their way to end.
	ReasonEvicting = "Evicting"
	// ReasonBudget: pods are refused by their PodDisruptionBudgets, which are waited for.
	ReasonBudget = "Budget"
	// ReasonNotEvicted: all pods that are left are those that a person has to delete.
	ReasonNotEvicted = "NotEvicted"
	// ReasonDetaching: no pod is left, and volumes are attached, or can be written to.
	ReasonDetaching = "Detaching"
	// ReasonUnclear: it could not be found out what is left.
	ReasonUnclear = "Unclear"
	// ReasonDrained: the DPU can be rebooted.
	ReasonDrained = "Drained"
)

// TaintReturning (NoSchedule) keeps new pods off a Node that comes back from a failover,
// until the pods are gone that had the volumes which were taken.
const TaintReturning = "storage.moor.dev/returning"

// Reasons of the events on a DPUStorageNode about a failover of its host.
const (
	// EventFailoverRequested: a person's request that the host fails over counts.
	EventFailoverRequested = "FailoverRequested"
	// EventFailoverRefused: it does not, and why.
	EventFailoverRefused = "FailoverRefused"
	// EventOutOfService: the Node was tainted out of service.
	EventOutOfService = "OutOfService"
	// EventBackInService: that taint was removed.
	EventBackInService = "BackInService"
)

// Reasons of the events on a DPUStorageNode about a drain of its DPU.
const (
	// EventDrainBegun: the DPU is being drained, and why.
	EventDrainBegun = "DrainBegun"
	// EventDrained: the DPU can be rebooted.
	EventDrained = "Drained"
	// EventDrainEnded: the drain was taken back.
	EventDrainEnded = "DrainEnded"
	// EventDrainEvicted, on a pod: it was evicted.
	EventDrainEvicted = "DrainEvicted"
)
