package provisioner

import (
	"context"
	"time"
)

// Source is what a volume begins as a copy of: exactly one of the two.
type Source struct {
	SnapshotID string
	VolumeID   string
}

// Copies makes volumes that begin with the data of others. A platform that has
// it copies volumes; if it has Snapshots too, it restores them.
type Copies interface {
	// CreateFrom is Volumes.Create of a volume that holds what the source
	// held at one instant during the call. ErrNotFound if the source does not
	// exist; ErrInvalid if its mode is another; ErrOutOfRange if it is larger
	// than the limit asked for.
	CreateFrom(ctx context.Context, spec VolumeSpec, source Source) (Volume, error)
}

// SnapshotSpec is what is wanted of a snapshot.
type SnapshotSpec struct {
	// Name is unique among the snapshots of the platform; it makes Create
	// idempotent.
	Name string
	// VolumeID is the volume whose data it keeps.
	VolumeID string
	// Parameters are the platform's own, from the VolumeSnapshotClass.
	Parameters map[string]string
}

// Snapshot is what a volume held at one instant.
type Snapshot struct {
	ID string
	// VolumeID is the volume it was made of, which may be gone.
	VolumeID string
	// SizeBytes is the least size of a volume made of it.
	SizeBytes int64
	// Created is the instant.
	Created time.Time
	// Ready is true once a volume can be made of it.
	Ready bool
	// AccessibleTopology are the places from which its volume was reached, and
	// what is made of it will be; none: from everywhere.
	AccessibleTopology []Place
	// GroupID is the group it was made with; empty if alone.
	GroupID string
}

// SnapshotFilter chooses snapshots: those of a volume, or all if it is empty.
type SnapshotFilter struct {
	VolumeID string
}

// Snapshots keeps what volumes held. A snapshot outlives its volume.
type Snapshots interface {
	// Create keeps what the volume holds now, or returns the snapshot of that
	// name if it is there and of that volume. It is as a disk whose power
	// went: every write acknowledged before the instant, none after it.
	// Errors: ErrInvalid, ErrExists, ErrExhausted, ErrNotFound.
	Create(ctx context.Context, spec SnapshotSpec) (Snapshot, error)
	// Delete removes a snapshot; one that is gone is success. ErrInvalid for
	// one that belongs to a group.
	Delete(ctx context.Context, id string) error
	// Get returns the snapshot, or ErrNotFound.
	Get(ctx context.Context, id string) (Snapshot, error)
	// List returns a page of the snapshots that the filter chooses, ordered
	// by ID; next is where the following page goes on, empty after the last.
	List(ctx context.Context, filter SnapshotFilter, page Page) (snapshots []Snapshot, next string, err error)
}

// GroupSpec is what is wanted of a group of snapshots.
type GroupSpec struct {
	// Name is unique among the groups of the platform.
	Name string
	// VolumeIDs are the volumes, in any order, none of them twice.
	VolumeIDs []string
	// Parameters are the platform's own, from the VolumeGroupSnapshotClass.
	Parameters map[string]string
}

// Group is snapshots of several volumes at the same instant.
type Group struct {
	ID string
	// Snapshots are ordered by the volume's ID.
	Snapshots []Snapshot
	Created   time.Time
}

// Groups keeps what several volumes held at one instant. The snapshots of a
// group are found by Snapshots too, and live as long as the group.
type Groups interface {
	// Create makes a snapshot of each volume, all of the same instant, or
	// none. ErrExists if a group of that name is of other volumes.
	Create(ctx context.Context, spec GroupSpec) (Group, error)
	// Delete removes the group with its snapshots; one that is gone is
	// success.
	Delete(ctx context.Context, id string) error
	// Get returns the group, or ErrNotFound.
	Get(ctx context.Context, id string) (Group, error)
}
