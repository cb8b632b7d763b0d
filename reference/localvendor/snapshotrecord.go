package localvendor

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// Where snapshots and groups are, in the target directory.
const (
	snapshotDir = "snapshots"
	groupDir    = "groups"
)

// snapshotRecord is the metadata file of a snapshot. Its field names are stored;
// they never change.
type snapshotRecord struct {
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

func (r snapshotRecord) snapshot(id string) provisioner.Snapshot {
	return provisioner.Snapshot{
		ID: id, VolumeID: r.Volume, SizeBytes: r.SizeBytes, Created: r.Created, Ready: true, GroupID: r.Group,
		AccessibleTopology: reach(r.Place),
	}
}

// groupRecord is the metadata file of a group; it is written after the records
// of the group's snapshots, which without it do not exist.
type groupRecord struct {
	Name    string    `json:"name"`
	Volumes []string  `json:"volumes"`
	Created time.Time `json:"created"`
}

func snapshotKey(id string) string { return snapshotDir + "/" + id }
func groupKey(id string) string    { return groupDir + "/" + id }

func (s *Storage) snapshotPath(id, suffix string) string {
	return filepath.Join(s.dir, snapshotDir, id+suffix)
}

func (s *Storage) groupPath(id string) string { return filepath.Join(s.dir, groupDir, id+".json") }

// snapshot returns the record of a snapshot, or ErrNotFound.
func (s *Storage) snapshot(id string) (snapshotRecord, error) {
	r, found, err := s.loadSnapshot(id)
	if err == nil && !found {
		err = fmt.Errorf("snapshot %q: %w", id, provisioner.ErrNotFound)
	}
	return r, err
}

// loadSnapshot reads the record of a snapshot; one of a group that was not
// finished, or is half removed, does not exist.
func (s *Storage) loadSnapshot(id string) (r snapshotRecord, found bool, err error) {
	if !validID(id) {
		return snapshotRecord{}, false, nil
	}
	r, found, err = loadJSON[snapshotRecord](s.snapshotPath(id, ".json"), "snapshot "+id)
	r.Place = s.since(r.Place)
	if err != nil || !found || r.Group == "" {
		return r, found, err
	}
	_, found, err = s.loadGroup(r.Group)
	return r, found, err
}

func (s *Storage) loadGroup(id string) (groupRecord, bool, error) {
	if !validID(id) {
		return groupRecord{}, false, nil
	}
	return loadJSON[groupRecord](s.groupPath(id), "group "+id)
}

// removeSnapshot removes the record and then the data.
func (s *Storage) removeSnapshot(id string) error {
	for _, suffix := range []string{".json", ".img"} {
		if err := ignoreMissing(os.Remove(s.snapshotPath(id, suffix))); err != nil {
			return fmt.Errorf("remove snapshot %s: %w", id, err)
		}
	}
	return ignoreMissing(syncDir(filepath.Join(s.dir, snapshotDir)))
}

// locked takes several keys for one operation, or none of them.
func (s *Storage) locked(keys ...string) (unlock func(), err error) {
	var held []func()
	unlock = func() {
		for _, u := range held {
			u()
		}
	}
	for _, k := range keys {
		u, err := s.lock(k)
		if err != nil {
			unlock()
			return nil, err
		}
		held = append(held, u)
	}
	return unlock, nil
}
