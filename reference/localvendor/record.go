package localvendor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// record is the metadata file of a volume. Its field names are stored; they
// never change.
type record struct {
	Name          string                   `json:"name"`
	CapacityBytes int64                    `json:"capacityBytes"`
	AccessModes   []provisioner.AccessMode `json:"accessModes"`
	Mode          provisioner.VolumeMode   `json:"mode"`
	Provisioning  string                   `json:"provisioning"`
	Parameters    map[string]string        `json:"parameters,omitempty"`
	// Place is where it is; none: it was made where there were no places.
	Place provisioner.Place `json:"place,omitempty"`
	// Source is what it began as a copy of; nil if it began empty.
	Source *source `json:"source,omitempty"`
	// Limits bound its data path, where that is a target.
	Limits limits `json:"limits,omitzero"`
	// Attachments are the nodes that have the volume.
	Attachments map[string]holder `json:"attachments,omitempty"`
}

// source is a provisioner.Source as it is stored.
type source struct {
	Snapshot string `json:"snapshot,omitempty"`
	Volume   string `json:"volume,omitempty"`
}

// holder is how a node has a volume.
type holder struct {
	ReadOnly    bool                     `json:"readOnly"`
	AccessModes []provisioner.AccessMode `json:"accessModes"`
	// Revoking is true once the volume is being taken from the node, until
	// the target has confirmed it.
	Revoking bool `json:"revoking,omitempty"`
	// Grant is the right at the target; nil if the node uses the file itself.
	Grant *grant `json:"grant,omitempty"`
}

func (r record) volume(id string) provisioner.Volume {
	v := provisioner.Volume{
		ID:                 id,
		CapacityBytes:      r.CapacityBytes,
		AccessModes:        r.AccessModes,
		Mode:               r.Mode,
		Parameters:         r.Parameters,
		Context:            map[string]string{ContextImage: id + ".img"},
		AccessibleTopology: reach(r.Place),
	}
	if r.shared() {
		v.Context = map[string]string{ContextDirectory: id + directorySuffix}
	}
	if r.Source != nil {
		v.Source = provisioner.Source{SnapshotID: r.Source.Snapshot, VolumeID: r.Source.Volume}
	}
	return v
}

func (s *Storage) imagePath(id string) string  { return filepath.Join(s.dir, id+".img") }
func (s *Storage) recordPath(id string) string { return filepath.Join(s.dir, id+".json") }

// load reads the record of a volume; found is false if there is none.
func (s *Storage) load(id string) (r record, found bool, err error) {
	r, found, err = loadRecord(s.dir, id)
	r.Place = s.since(r.Place)
	return r, found, err
}

func loadRecord(dir, id string) (r record, found bool, err error) {
	if !validID(id) {
		return record{}, false, nil
	}
	return loadJSON[record](filepath.Join(dir, id+".json"), "volume "+id)
}

// loadJSON reads the record of what, which is at path; found is false if there
// is none.
func loadJSON[T any](path, what string) (r T, found bool, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("read the record of %s: %w", what, err)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return r, false, fmt.Errorf("record %s of %s is damaged, repair it by hand (%v): %w", path, what, err, provisioner.ErrPrecondition)
	}
	return r, true, nil
}

// save writes the record of a volume: all of it or nothing, and on disk when
// it returns.
func (s *Storage) save(id string, r record) error { return saveJSON(s.recordPath(id), "volume "+id, r) }

func saveJSON(path, what string, r any) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the record of %s: %w", what, err)
	}
	if err := replaceFile(path, append(raw, '\n')); err != nil {
		return fmt.Errorf("write the record of %s: %w", what, err)
	}
	return nil
}

// replaceFile puts content at path by write, fsync, rename and fsync of the
// directory.
func replaceFile(path string, content []byte) error {
	return place(path, func(f *os.File) error {
		_, err := f.Write(content)
		return err
	})
}

// place makes a file beside path, lets fill write it, and renames it to path
// once it is on disk. On error path is as it was and nothing is left behind.
func place(path string, fill func(*os.File) error) error {
	d, err := newDraft(path)
	if err != nil {
		return err
	}
	defer d.discard()
	if err := fill(d.File); err != nil {
		return err
	}
	return d.commit()
}

// draft is a file that will be at path, all of it, or not at all.
type draft struct {
	*os.File
	path string
}

func newDraft(path string) (*draft, error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return nil, err
	}
	return &draft{File: f, path: path}, nil
}

// commit puts the draft in its place, once it is on disk.
func (d *draft) commit() error {
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return err
	}
	if err := os.Rename(d.Name(), d.path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(d.path))
}

// discard removes a draft that was not committed.
func (d *draft) discard() {
	_ = d.Close()
	_ = os.Remove(d.Name())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// removeMissing removes a file; one that is gone is success.
func removeMissing(path string) error { return ignoreMissing(os.Remove(path)) }

func makeDir(path string) error {
	if err := os.MkdirAll(path, 0o750); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
