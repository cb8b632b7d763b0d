// Package files writes files that are there whole or not at all, also after a
// power failure, and copies those that are large. It knows no volume.
package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// Load reads the record of what, which is at path; found is false if there
// is none.
func Load[T any](path, what string) (r T, found bool, err error) {
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

// Save writes the record of what to path, as Replace does.
func Save(path, what string, r any) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the record of %s: %w", what, err)
	}
	if err := Replace(path, append(raw, '\n')); err != nil {
		return fmt.Errorf("write the record of %s: %w", what, err)
	}
	return nil
}

// Replace puts content at path by write, fsync, rename and fsync of the
// directory.
func Replace(path string, content []byte) error {
	return Write(path, func(f *os.File) error {
		_, err := f.Write(content)
		return err
	})
}

// Write makes a file beside path, lets fill write it, and renames it to path
// once it is on disk. On error path is as it was and nothing is left behind.
func Write(path string, fill func(*os.File) error) error {
	d, err := NewDraft(path)
	if err != nil {
		return err
	}
	defer d.Discard()
	if err := fill(d.File); err != nil {
		return err
	}
	return d.Commit()
}

// Draft is a file that will be at path, all of it, or not at all.
type Draft struct {
	*os.File
	path string
}

// NewDraft begins a file that Commit puts at path.
func NewDraft(path string) (*Draft, error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return nil, err
	}
	return &Draft{File: f, path: path}, nil
}

// Commit puts the draft in its place, once it is on disk.
func (d *Draft) Commit() error {
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return err
	}
	if err := os.Rename(d.Name(), d.path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(d.path))
}

// Discard removes a draft that was not committed.
func (d *Draft) Discard() {
	_ = d.Close()
	_ = os.Remove(d.Name())
}

// SyncDir makes what was made, renamed or removed in a directory last.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Remove removes a file; one that is gone is success.
func Remove(path string) error { return IgnoreMissing(os.Remove(path)) }

// MakeDir makes a directory of state, and those above it; one that is there is
// success.
func MakeDir(path string) error {
	if err := os.MkdirAll(path, 0o750); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	return nil
}

// IgnoreMissing drops the error of a file that is not there.
func IgnoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
