package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// owners remembers in a directory, made when needed, whose a device is. What is
// there may be old: it counts only for a device that reaches what it says.
type owners struct{ dir string }

// owner is one record.
type owner struct {
	Device string `json:"device"`
	Volume string `json:"volume"`
	// Reaches is what the device was made over.
	Reaches string `json:"reaches"`
}

// file is named by a hash: the name of a device may be no file name.
func (o owners) file(device string) string {
	sum := sha256.Sum256([]byte(device))
	return filepath.Join(o.dir, hex.EncodeToString(sum[:16])+".json")
}

// remember records whose a device is, all of it or not at all.
func (o owners) remember(r owner) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("remember the volume of device %s: %w", r.Device, err)
	}
	path := o.file(r.Device)
	if err := errors.Join(os.MkdirAll(o.dir, 0o750), os.WriteFile(path+".new", raw, 0o640)); err != nil {
		return fmt.Errorf("remember the volume of device %s: %w", r.Device, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("remember the volume of device %s: %w", r.Device, err)
	}
	return nil
}

// of returns the volume that the device over reaches was made for; empty if
// that is not known.
func (o owners) of(device, reaches string) (string, error) {
	r, err := o.recall(device)
	if err != nil || r.Reaches != reaches {
		return "", err
	}
	return r.Volume, nil
}

// recall returns the record of a device; an empty one if there is none. A
// damaged record says nothing.
func (o owners) recall(device string) (owner, error) {
	raw, err := os.ReadFile(o.file(device))
	if errors.Is(err, fs.ErrNotExist) {
		return owner{}, nil
	}
	if err != nil {
		return owner{}, fmt.Errorf("recall the volume of device %s: %w", device, err)
	}
	var r owner
	if json.Unmarshal(raw, &r) != nil || r.Device != device {
		return owner{}, nil
	}
	return r, nil
}

func (o owners) forget(device string) error {
	if err := os.Remove(o.file(device)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget the volume of device %s: %w", device, err)
	}
	return nil
}
