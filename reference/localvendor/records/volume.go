// Package records is what the reference vendor's controller, target and plugins
// know of a volume in common: its record and its names in the target directory,
// the marks of nodes that have a directory open, and the keys of contexts.
package records

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/files"
	"github.com/moor-storage/moor/reference/localvendor/places"
)

// Volume is the metadata file of a volume. Its field names are stored; they
// never change.
type Volume struct {
	Name          string                   `json:"name"`
	CapacityBytes int64                    `json:"capacityBytes"`
	AccessModes   []provisioner.AccessMode `json:"accessModes"`
	Mode          provisioner.VolumeMode   `json:"mode"`
	Provisioning  string                   `json:"provisioning"`
	Parameters    map[string]string        `json:"parameters,omitempty"`
	// Place is where it is; none: it was made where there were no places.
	Place provisioner.Place `json:"place,omitempty"`
	// Source is what it began as a copy of; nil if it began empty.
	Source *Source `json:"source,omitempty"`
	// Limits bound its data path, where that is a target.
	Limits Limits `json:"limits,omitzero"`
	// Fenced: every epoch below it is over. It only grows.
	Fenced int64 `json:"fenced,omitempty"`
	// FSType is the type of the file system in its image, of a volume of mode
	// Filesystem that has one; its root is what the volume shows.
	FSType string `json:"fsType,omitempty"`
	// Ephemeral: it was made for one pod, and goes with it.
	Ephemeral bool `json:"ephemeral,omitempty"`
	// Attachments are the nodes that have the volume.
	Attachments map[string]Holder `json:"attachments,omitempty"`
}

// Source is a provisioner.Source as it is stored.
type Source struct {
	Snapshot string `json:"snapshot,omitempty"`
	Volume   string `json:"volume,omitempty"`
}

// Holder is how a node has a volume.
type Holder struct {
	ReadOnly    bool                     `json:"readOnly"`
	AccessModes []provisioner.AccessMode `json:"accessModes"`
	// Revoking is true once the volume is being taken from the node, until
	// the target has confirmed it.
	Revoking bool `json:"revoking,omitempty"`
	// Grant is the right at the target; nil if the node uses the file itself.
	Grant *Grant `json:"grant,omitempty"`
}

// Volume is the volume as the platform tells of it.
func (r Volume) Volume(id string) provisioner.Volume {
	v := provisioner.Volume{
		ID:                 id,
		CapacityBytes:      r.CapacityBytes,
		AccessModes:        r.AccessModes,
		Mode:               r.Mode,
		Parameters:         r.Parameters,
		Context:            map[string]string{ContextImage: id + ".img"},
		AccessibleTopology: places.Reach(r.Place),
	}
	switch {
	case r.Shared():
		v.Context = map[string]string{ContextDirectory: id + DirectorySuffix}
	case r.Contained():
		v.Context = map[string]string{ContextFilesystem: id + ".img"}
	}
	if r.Source != nil {
		v.Source = provisioner.Source{SnapshotID: r.Source.Snapshot, VolumeID: r.Source.Volume}
	}
	return v
}

// Load reads the record of a volume; found is false if there is none.
func Load(dir, id string) (r Volume, found bool, err error) {
	if !Valid(id) {
		return Volume{}, false, nil
	}
	return files.Load[Volume](filepath.Join(dir, id+".json"), "volume "+id)
}

// Grant is a node's right to open a volume at the target. The token itself is
// stored nowhere: it follows from the key of the directory and the nonce.
type Grant struct {
	Nonce     string `json:"nonce"`
	TokenHash string `json:"tokenHash"`
}

// Limits are admission.Limits as they are stored.
type Limits struct {
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	IOPS           int64 `json:"iops,omitempty"`
}

// Shared reports whether the volume is a directory beside the images.
func (r Volume) Shared() bool { return r.Mode == provisioner.Filesystem && r.FSType == "" }

// Contained reports whether the volume is the file system in its image.
func (r Volume) Contained() bool { return r.Mode == provisioner.Filesystem && r.FSType != "" }

// ByTarget reports whether nodes can reach the volume through a target: a file
// system is used where it is.
func (r Volume) ByTarget() bool { return r.Mode != provisioner.Filesystem }

// Written reports whether any node may write to the volume.
func (r Volume) Written() bool {
	for _, h := range r.Attachments {
		if !h.ReadOnly && !ReadOnlyModes(h.AccessModes) {
			return true
		}
	}
	return false
}

// Holders returns the nodes to take the volume from: node if it has it, or all
// if none is named.
func (r Volume) Holders(node string) []string {
	if node == "" {
		return slices.Sorted(maps.Keys(r.Attachments))
	}
	if _, ok := r.Attachments[node]; ok {
		return []string{node}
	}
	return nil
}

// Entry is the volume with the nodes that have it.
func (r Volume) Entry(id string) provisioner.Entry {
	return provisioner.Entry{Volume: r.Volume(id), Nodes: slices.Sorted(maps.Keys(r.Attachments))}
}

// ReadOnlyModes reports whether none of the modes, if there are any, writes.
func ReadOnlyModes(modes []provisioner.AccessMode) bool {
	return len(modes) > 0 && !slices.ContainsFunc(modes, func(m provisioner.AccessMode) bool {
		return m != provisioner.ReadOnlyMany
	})
}

// Fits says whether a volume of size bytes has room on a file system of total
// bytes, of which free are free.
func (r Volume) Fits(size, total, free int64) bool {
	return size <= total && (r.Provisioning != Thick || size-r.CapacityBytes <= free)
}
