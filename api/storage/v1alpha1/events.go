package v1alpha1

// Reasons of the events on a DPUVolume that tell its failover, in the order of
// the story. Those about a claim and about pods are the same. Additions of Moor.
const (
	// EventFailoverDetected: the host is dead, and by which evidence. Of a volume that is
	// fenced, EventFailoverFencing says so.
	EventFailoverDetected = "FailoverDetected"
	// EventFailoverFencing: the right to write is being taken back.
	EventFailoverFencing = "FailoverFencing"
	// EventFailoverHeld: nothing is done, or what is waited for, and why.
	EventFailoverHeld = "FailoverHeld"
	// EventFailoverFenced: the epoch is over, by which receipt.
	EventFailoverFenced = "FailoverFenced"
	// EventFailoverReleased: a pod of the dead host was deleted.
	EventFailoverReleased = "FailoverReleased"
	// EventPromoted: another host has the volume, from its replica or cold.
	EventPromoted = "Promoted"
	// EventAttached: the host sees the device again.
	EventAttached = "Attached"
	// EventKubeletWoken: a kubelet that had put the pod off looks at it again.
	EventKubeletWoken = "KubeletWoken"
	// EventPathLost: the DPU of the volume's host does not reach the storage any more, and
	// what is done.
	EventPathLost = "PathLost"
	// EventPathFound: it does again.
	EventPathFound = "PathFound"
	// EventMountDead: a pod's mount of the volume is of no use any more, and what is done.
	EventMountDead = "MountDead"
	// EventMountDeadReleased: a pod was deleted, so that the volume is mounted anew.
	EventMountDeadReleased = "MountDeadReleased"
)

// EventVolumeRetained is on a Volume that goes: the vendor keeps what it had made of it. An addition of
// Moor.
const EventVolumeRetained = "VolumeRetained"
