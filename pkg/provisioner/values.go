package provisioner

import "context"

// AccessMode says who may use a volume, in Kubernetes' words.
type AccessMode string

// The access modes.
const (
	ReadWriteOnce    AccessMode = "ReadWriteOnce"
	ReadOnlyMany     AccessMode = "ReadOnlyMany"
	ReadWriteMany    AccessMode = "ReadWriteMany"
	ReadWriteOncePod AccessMode = "ReadWriteOncePod"
)

// SingleNode reports whether modes allow the volume on one node at a time:
// true unless one of them is a Many mode.
func SingleNode[M ~string](modes []M) bool {
	for _, m := range modes {
		if m := AccessMode(m); m == ReadOnlyMany || m == ReadWriteMany {
			return false
		}
	}
	return true
}

// VolumeMode says how a volume is shown: as a file system or as a block device.
type VolumeMode string

// The volume modes.
const (
	Filesystem VolumeMode = "Filesystem"
	Block      VolumeMode = "Block"
)

// VolumeSpec is what is wanted of a volume.
type VolumeSpec struct {
	// Name is unique for the platform; it makes Create idempotent.
	Name string
	// CapacityBytes is the least size; 0 leaves it to the platform.
	CapacityBytes int64
	// LimitBytes is the largest size allowed; 0 means no limit.
	LimitBytes int64
	// AccessModes is never empty.
	AccessModes []AccessMode
	// Mode is Filesystem or Block.
	Mode VolumeMode
	// Parameters are the platform's own, from the StorageClass.
	Parameters map[string]string
	// AccessibleFrom are places from one of which it has to be reached, the most
	// preferred first; none: from anywhere.
	AccessibleFrom []Place
	// Mutable are the parameters that Change may change later, from the
	// VolumeAttributesClass; for platforms with Change only.
	Mutable map[string]string
}

// Volume is a volume as it is.
type Volume struct {
	ID            string
	CapacityBytes int64
	// AccessModes and Mode are what the volume was made with.
	AccessModes []AccessMode
	Mode        VolumeMode
	// Parameters are those it was made with.
	Parameters map[string]string
	// Context travels with the volume to every later call.
	Context map[string]string
	// AccessibleTopology are the places from which it is reached; none: from
	// everywhere.
	AccessibleTopology []Place
	// Source is what it began as a copy of; zero if it began empty.
	Source Source
}

// AttachSpec names a volume and the node that is to use it.
type AttachSpec struct {
	VolumeID string
	Node     string
	ReadOnly bool
	// AccessModes is the mode in which it is to be used.
	AccessModes []AccessMode
	// VolumeContext is Volume.Context.
	VolumeContext map[string]string
}

// Attachment is what the node needs to find the volume.
type Attachment struct {
	PublishContext map[string]string
}

// OpenSpec says which attached volume is to become a device.
type OpenSpec struct {
	VolumeID       string
	Mode           VolumeMode
	AccessModes    []AccessMode
	PublishContext map[string]string
	VolumeContext  map[string]string
	Parameters     map[string]string
}

// Device is an open device: a block device, a file system with a tag, or a
// directory.
type Device struct {
	VolumeID string
	// Name is the platform's own: an SPDK bdev on a DPU, "nvme0n1" on a host.
	Name string
	// Path is its file in /dev; empty where there is none.
	Path string
	// Tag is what a host mounts, of a device that is a file system; it has no
	// Path.
	Tag string
	// Directory is the root of the volume, of a device that is a directory of
	// this machine: its absolute path. It has neither Path nor Tag; its file
	// system is the platform's, which sees to its size.
	Directory string
	// Mode is how it was opened.
	Mode VolumeMode
}

// FunctionType is the kind of PCI function.
type FunctionType string

// The function types.
const (
	PF FunctionType = "pf"
	VF FunctionType = "vf"
	// Hotplug is the type of physical functions that are plugged in when they
	// are wanted; in counts only.
	Hotplug FunctionType = "hotplug"
)

// ExposeSpec says which device the host is to see, and through what.
type ExposeSpec struct {
	// Device is the name of the SPDK bdev, or of the fsdev.
	Device string
	// Mode is Filesystem for an fsdev, which is shown by virtio-fs; else the
	// device is a bdev, shown by NVMe.
	Mode         VolumeMode
	FunctionType FunctionType
	Hotplug      bool
	// Recorded identity of an earlier exposure, kept over restarts: with
	// these the host sees the very same namespace again. Zero if none.
	PCIAddress  string
	NamespaceID int64
	UUID        string
	// VUID of the function that it had. Virtio-fs needs it, whose service does not
	// tell which function a device has; NVMe does not.
	VUID string
	// Hidden makes everything ready but lets the host not see the device: one
	// step is left, which Expose without it takes. What the host sees already
	// is taken out of its sight, and kept ready.
	Hidden bool
	// Parameters are passed to the controller or device, as SNAP knows them.
	Parameters map[string]string
	// Recover lets the host go on where a service that ended has left it: what its
	// function has kept of it is served. It is asked when all is made anew and nothing
	// is served yet; an error leaves it so, or removes it. Nil: whatever the function
	// has kept is discarded.
	Recover func(context.Context) error
}

// Exposure is a device as the host sees it.
type Exposure struct {
	Device      string
	PCIAddress  string
	NamespaceID int64
	UUID        string
	// Tag is what the host mounts; of a device shown by virtio-fs, which has
	// neither namespace nor UUID.
	Tag string
	// VUID of the function, by which a host knows it in whichever PCI domain it
	// has it; of a virtual function that of its physical one. Empty if it is not known.
	VUID string
	// Visible is true if the host can reach the namespace. Hidden is true if
	// it cannot, and everything else is ready. Neither is true of an exposure
	// that is there in part only.
	Visible, Hidden bool
}

// FunctionCount says how many functions of a type there are and how many are
// free.
type FunctionCount struct {
	Type        FunctionType
	Total, Free int
}

// PathState says what a DPU has noticed of a device's way to its storage.
type PathState string

// The states of a path.
const (
	// PathUnknown: the device has no connection of its own, such as one over a file
	// of the DPU, or the DPU does not tell.
	PathUnknown PathState = ""
	// PathConnected: nothing wrong was noticed yet. While nothing is sent, a network
	// that swallows everything is not noticed.
	PathConnected PathState = "Connected"
	// PathReconnecting: the connection is lost, and is tried again.
	PathReconnecting PathState = "Reconnecting"
	// PathFailed: the connection is lost, and the DPU does not try again by itself.
	PathFailed PathState = "Failed"
)

// Path is the way of a block device of a DPU to its storage. Of a device with several
// ways the best counts.
type Path struct {
	Device string
	State  PathState
	// Detail is the DPU's own word for the state, for people; empty if it has none.
	Detail string
	// Connections name the connections that are there now, of all ways; empty if there is none, or
	// the DPU does not tell. Another name is of a connection that was made anew: what was sent over
	// the one before may be on its way to the storage still.
	Connections string
	// InFlight is how many operations the device has begun and not ended, a short time
	// ago; -1 if that is not known, or not yet.
	InFlight int64
	// Completed is how many operations of the device ended, errors included. Only
	// that it changes means something: it may begin anew, and is 0 if it is not known.
	Completed int64
}
