package provisioner

import "context"

// Platform is one storage platform: the interfaces it has. One that is nil is a
// thing that it cannot do.
type Platform struct {
	Volumes     Volumes
	Attachments Attachments
	Host        Host
	DPU         DPU

	Copies    Copies
	Snapshots Snapshots
	Groups    Groups
	Blocks    Blocks
	Inventory Inventory
	Room      Room
	Expansion Expansion
	Change    Change
	Health    Health
	Rescan    Rescan

	Fencing Fencing
	Epochs  Epochs
}

// Volumes makes and removes volumes.
type Volumes interface {
	// Create makes the volume named spec.Name, or returns it if it is there
	// with the same properties. Errors: ErrInvalid, ErrExists,
	// ErrExhausted, ErrOutOfRange, or an uncertain one.
	Create(ctx context.Context, spec VolumeSpec) (Volume, error)
	// Delete removes a volume; one that is gone is success. ErrInUse while
	// it is attached somewhere.
	Delete(ctx context.Context, id string) error
	// Get returns the volume, or ErrNotFound.
	Get(ctx context.Context, id string) (Volume, error)
}

// Attachments lets a node use a volume, and takes that right back.
type Attachments interface {
	// Attach gives spec.Node the use of the volume. ErrNotFound if volume or
	// node is unknown; ErrInUse if a single-node volume is held elsewhere;
	// ErrExists if it is attached there in another way; ErrExhausted if the
	// node can have no more volumes.
	Attach(ctx context.Context, spec AttachSpec) (Attachment, error)
	// Detach ends it. When it returns nil the node can no longer reach the
	// volume. What is not attached, or gone, is success. An empty node
	// means every node.
	Detach(ctx context.Context, volumeID, node string) error
}

// Host turns an attached volume into a device on the machine that asks. On a
// host it is a block device in /dev, a file system that is mounted by its tag, or a
// directory; on a DPU, asked by the SNAP node driver, it is the name of an SPDK
// block device.
type Host interface {
	// Open makes the device appear and returns it; repeated, it returns the
	// same device, which then has the size that the volume has.
	// ErrUnavailable while the device has not appeared yet.
	Open(ctx context.Context, spec OpenSpec) (Device, error)
	// Close undoes Open; a device that is gone is success.
	Close(ctx context.Context, volumeID, deviceName string) error
	// Lookup returns the open device of a volume, or ErrNotFound.
	Lookup(ctx context.Context, volumeID string) (Device, error)
	// List returns every open device, ordered by volume.
	List(ctx context.Context) ([]Device, error)
}

// Ephemeral makes volumes that live as long as the pod that they are made for, on
// the machine that asks.
type Ephemeral interface {
	// Make makes the volume spec.Name and opens it; repeated, it returns the same
	// device. After an error that is final nothing is left. Errors: those of Create
	// and of Open.
	Make(ctx context.Context, spec VolumeSpec) (Device, error)
	// Remove closes the volume of that name and removes it, with its data. One that
	// is gone is success; one that Make did not make is left alone, with success.
	Remove(ctx context.Context, name string) error
}

// DPU shows a device to the host as an emulated PCI function.
type DPU interface {
	// Expose shows spec.Device to the host and returns where; with
	// spec.Hidden it stops one step before, so that a later Expose has only
	// that step to take. Repeated, it returns the same function and identity,
	// hidden or not. ErrExhausted if no function is free; ErrNotFound if the
	// device does not exist.
	Expose(ctx context.Context, spec ExposeSpec) (Exposure, error)
	// Withdraw takes the device away from the host: when it returns nil, no
	// further read or write of the host reaches the device. One that is not
	// exposed is success.
	Withdraw(ctx context.Context, deviceName string) error
	// Discard ends what the function at a PCI address has kept of a device for a service that
	// ended: when it returns nil, no service can serve a request any more that the host had sent
	// there by then. It is for a device that is withdrawn. Nothing kept is success.
	Discard(ctx context.Context, deviceName, pciAddress string) error
	// Tidy removes what withdrawals have left on the machine, as far as the host has let go of
	// it: functions that were plugged in. It returns of how many devices nothing is left now,
	// and of how many something is, which a later call may remove. What is exposed stays.
	Tidy(ctx context.Context) (removed, left int, err error)
	// List returns what is exposed now, whole or in part, ordered by device.
	List(ctx context.Context) ([]Exposure, error)
	// Functions counts the functions of each type.
	Functions(ctx context.Context) ([]FunctionCount, error)
	// Size returns how large a block device is now, in bytes; it is what the
	// host sees of it once it is exposed. ErrNotFound if it does not exist.
	Size(ctx context.Context, device string) (int64, error)
	// Paths tells of the ways of block devices to their storage, of those named
	// that exist, ordered by device. It asks no storage, only the DPU: a path is
	// connected as long as nothing has noticed that it is not. ErrSilent if the DPU
	// does not answer.
	Paths(ctx context.Context, devices []string) ([]Path, error)
	// ProbePath asks the storage of a device to answer, by a command that changes
	// nothing: nil if it answered. ErrUnsupported if this device cannot be asked;
	// ErrNotFound if it does not exist; else ErrUnavailable, also if storage
	// refused the command, which not every service tells apart. It may take as
	// long as ctx lets it.
	ProbePath(ctx context.Context, device string) error
}

// Fencing ends the epochs of a single-writer volume at the storage itself.
type Fencing interface {
	// Fence has the storage accept no change of the volume any more under an epoch
	// below the one named, nor from a device that was opened without one. When it
	// returns nil, that is so for ever, also after a restart of the storage, and
	// what was in flight is done or refused. It never goes back: a lower epoch than
	// an earlier call's changes nothing, and is nil. ErrNotFound if there is no such
	// volume; ErrInvalid if epoch is not positive; ErrUnsupported if this volume
	// cannot be fenced.
	Fence(ctx context.Context, volumeID string, epoch int64) error
}

// Epochs opens the devices of a Host under epochs.
type Epochs interface {
	// OpenAtEpoch opens the device, which Host.Open has made, at the storage under
	// the epoch: when it returns nil, all that is sent for the device is under this
	// epoch, and nothing that was sent before, under another one or none, reaches
	// the storage any more. It is repeated, also with a higher epoch. ErrPrecondition
	// if the storage has fenced the epoch, or the device is open at a higher one:
	// then nothing has changed. ErrNotFound if there is no such device; ErrUnsupported
	// if a device of its kind takes no epoch.
	OpenAtEpoch(ctx context.Context, volumeID, deviceName string, epoch int64) error
}
