package local

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
	// Attachments are the nodes that have the volume.
	Attachments map[string]holder `json:"attachments,omitempty"`
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
	return provisioner.Volume{
		ID:            id,
		CapacityBytes: r.CapacityBytes,
		AccessModes:   r.AccessModes,
		Mode:          r.Mode,
		Parameters:    r.Parameters,
		Context:       map[string]string{ContextImage: id + ".img"},
	}
}

func (s *Storage) imagePath(id string) string  { return filepath.Join(s.dir, id+".img") }
func (s *Storage) recordPath(id string) string { return filepath.Join(s.dir, id+".json") }

// load reads the record of a volume; found is false if there is none.
func (s *Storage) load(id string) (r record, found bool, err error) { return loadRecord(s.dir, id) }

func loadRecord(dir, id string) (r record, found bool, err error) {
	if !validID(id) {
		return record{}, false, nil
	}
	path := filepath.Join(dir, id+".json")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, false, nil
	}
	if err != nil {
		return record{}, false, fmt.Errorf("read the record of volume %s: %w", id, err)
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return record{}, false, fmt.Errorf("record %s of volume %s is damaged, repair it by hand (%v): %w",
			path, id, err, provisioner.ErrPrecondition)
	}
	return r, true, nil
}

// save writes the record of a volume: all of it or nothing, and on disk when
// it returns.
func (s *Storage) save(id string, r record) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the record of volume %s: %w", id, err)
	}
	if err := replaceFile(s.recordPath(id), append(raw, '\n')); err != nil {
		return fmt.Errorf("write the record of volume %s: %w", id, err)
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
func place(path string, fill func(*os.File) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreMissing(os.Remove(f.Name())))
		}
	}()
	if err := errors.Join(fill(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
