package placement

// Warmth says how much of a volume's way to a node's host is walked already:
// storagev1alpha1.Warmth as a rank, to compare and to count points by, with a
// degree for nothing at all. The greater, the better.
type Warmth uint8

// The degrees of warmth.
const (
	// Cold: nothing is there.
	Cold Warmth = iota
	// StorageAttached: the storage lets the DPU use the volume; a function
	// is still to be found.
	StorageAttached
	// PreEmulated: device and controller stand on the DPU, and only the
	// namespace is not attached: one call makes the volume visible.
	PreEmulated
	// Attached: the host sees the volume.
	Attached

	degrees = iota
)

// String is the name of the degree.
func (w Warmth) String() string {
	switch w {
	case Cold:
		return "cold"
	case StorageAttached:
		return "storage-attached"
	case PreEmulated:
		return "pre-emulated"
	case Attached:
		return "attached"
	}
	return "unknown"
}

// holdsFunction reports whether a volume this warm has its emulated function.
func (w Warmth) holdsFunction() bool { return w >= PreEmulated }

// Function is the kind of emulated PCI function through which a host sees a
// volume.
type Function uint8

// The kinds of functions. The zero value is a physical function.
const (
	PF Function = iota
	VF
	// Hotplug is a physical function plugged in for one volume alone.
	Hotplug

	kinds = iota
)

// String is the name of the kind.
func (f Function) String() string {
	switch f {
	case PF:
		return "pf"
	case VF:
		return "vf"
	case Hotplug:
		return "hot-plug"
	}
	return "unknown"
}

// Unknown is a count of free functions that was not reported. It refuses no
// volume: only what is known may refuse.
const Unknown = -1

// Free counts the free functions of a DPU by kind; Unknown where not reported.
type Free [kinds]int

// UnknownFree is a DPU that has not counted its functions.
func UnknownFree() Free { return Free{Unknown, Unknown, Unknown} }

// Node is a host with, or without, a DPU.
type Node struct {
	// Name of the node; unique among the nodes of one question.
	Name string
	// NoDPU is the reason why the node can never serve: it has no DPU, or
	// none that is known. Empty: it has one.
	NoDPU string
	// Trouble is the reason why the DPU, or the host, cannot serve now.
	// Empty: nothing is known against it.
	Trouble string
	// Lost are the volumes whose way from the DPU to the storage is lost; nil: none.
	// For a volume that this concerns the node is refused, and gets no new replica;
	// one that is there stays.
	Lost *Lost
	// Doubt is the reason why it is not certain that the node can serve: it is
	// not refused, but scores 0 and gets no new replica. Empty: no doubt.
	Doubt string
	// Unsuited is the reason why the pod could not run there as others are
	// placed now: the node gets no new replica, and one that is there moves to
	// a suited node, but only once there is one. Empty: suited. Only Choose
	// reads it.
	Unsuited string
	// Free functions of the DPU.
	Free Free
	// Domain is the node's value of the topology key over which replicas are
	// spread. Nodes without one share the empty domain. Only Choose reads it.
	Domain string
}

// Copy is what a node has of a volume.
type Copy struct {
	Node   string
	Warmth Warmth
}

// Volume is a volume and where it is warm.
type Volume struct {
	// ID of the volume.
	ID string
	// Vendor whose storage has the volume; empty: not known.
	Vendor string
	// Function that the volume needs on a DPU.
	Function Function
	// Copies of the volume; if one node has several, the warmest counts.
	Copies []Copy
}
