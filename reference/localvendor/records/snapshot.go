package records

import (
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/places"
)

// Snapshot is the metadata file of a snapshot. Its field names are stored;
// they never change.
type Snapshot struct {
	Name      string                 `json:"name"`
	Volume    string                 `json:"volume"`
	SizeBytes int64                  `json:"sizeBytes"`
	Mode      provisioner.VolumeMode `json:"mode"`
	Created   time.Time              `json:"created"`
	// Place is where it is, as its volume; none: as for a volume.
	Place provisioner.Place `json:"place,omitempty"`
	// Group is the group it is of; empty if it is alone.
	Group string `json:"group,omitempty"`
}

// Snapshot is the snapshot as the platform tells of it.
func (r Snapshot) Snapshot(id string) provisioner.Snapshot {
	return provisioner.Snapshot{
		ID: id, VolumeID: r.Volume, SizeBytes: r.SizeBytes, Created: r.Created, Ready: true, GroupID: r.Group,
		AccessibleTopology: places.Reach(r.Place),
	}
}

// Group is the metadata file of a group; it is written after the records
// of the group's snapshots, which without it do not exist.
type Group struct {
	Name    string    `json:"name"`
	Volumes []string  `json:"volumes"`
	Created time.Time `json:"created"`
}
