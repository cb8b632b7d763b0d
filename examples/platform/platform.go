package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// directory is a platform whose volumes are files in a directory that every
// node mounts. Its methods are those of Volumes and of Attachments.
type directory struct {
	path string
	mu   sync.Mutex
}

// record is what is kept of a volume, beside its data. It is written last and
// whole, so that a volume is there completely or not at all.
type record struct {
	Volume provisioner.Volume
	Nodes  map[string]bool // those that have it; true: for reading only
}

func (d *directory) file(id, suffix string) string {
	return filepath.Join(d.path, filepath.Base(id)+suffix)
}

func (d *directory) load(id string) (r record, err error) {
	text, err := os.ReadFile(d.file(id, ".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("volume %s: %w", id, provisioner.ErrNotFound)
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

func (d *directory) save(r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	next := d.file(r.Volume.ID, ".next")
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, d.file(r.Volume.ID, ".json"))
}

// Create implements provisioner.Volumes. The ID follows from the name, so that
// a repeated call finds what the first one made.
func (d *directory) Create(_ context.Context, spec provisioner.VolumeSpec) (provisioner.Volume, error) {
	if err := check(spec); err != nil {
		return provisioner.Volume{}, fmt.Errorf("create volume %q: %w", spec.Name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(spec.Name)))[:32]
	have, err := d.load(id)
	switch {
	case err == nil && !same(have.Volume, spec):
		return provisioner.Volume{}, fmt.Errorf("create volume %q: %w", spec.Name, provisioner.ErrExists)
	case err == nil:
		return have.Volume, nil
	case !errors.Is(err, provisioner.ErrNotFound):
		return provisioner.Volume{}, err
	}
	v := provisioner.Volume{ID: id, CapacityBytes: spec.CapacityBytes, AccessModes: spec.AccessModes, Mode: spec.Mode, Parameters: spec.Parameters}
	if v.CapacityBytes == 0 {
		v.CapacityBytes = max(spec.LimitBytes, 1<<20)
	}
	data, err := os.OpenFile(d.file(id, ".img"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return provisioner.Volume{}, err
	}
	err = errors.Join(data.Truncate(v.CapacityBytes), data.Close(), d.save(record{Volume: v}))
	return v, err
}

// check refuses what can never be made.
func check(s provisioner.VolumeSpec) error {
	if s.Name == "" || len(s.AccessModes) == 0 || (s.Mode != provisioner.Block && s.Mode != provisioner.Filesystem) {
		return fmt.Errorf("name, access modes and volume mode are needed: %w", provisioner.ErrInvalid)
	}
	if s.CapacityBytes < 0 || s.LimitBytes < 0 || (s.LimitBytes > 0 && s.LimitBytes < s.CapacityBytes) {
		return fmt.Errorf("%d to %d bytes: %w", s.CapacityBytes, s.LimitBytes, provisioner.ErrOutOfRange)
	}
	return nil
}

// same reports whether the volume is what spec asks for.
func same(v provisioner.Volume, s provisioner.VolumeSpec) bool {
	return v.CapacityBytes >= s.CapacityBytes && (s.LimitBytes == 0 || v.CapacityBytes <= s.LimitBytes) &&
		v.Mode == s.Mode && slices.Equal(v.AccessModes, s.AccessModes) && maps.Equal(v.Parameters, s.Parameters)
}

// Delete implements provisioner.Volumes.
func (d *directory) Delete(_ context.Context, id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, err := d.load(id)
	if errors.Is(err, provisioner.ErrNotFound) {
		return nil
	}
	if err == nil && len(r.Nodes) > 0 {
		err = fmt.Errorf("delete volume %s: nodes have it: %w", id, provisioner.ErrInUse)
	}
	if err != nil {
		return err
	}
	if err := os.Remove(d.file(id, ".img")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Remove(d.file(id, ".json"))
}

// Get implements provisioner.Volumes.
func (d *directory) Get(_ context.Context, id string) (provisioner.Volume, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, err := d.load(id)
	return r.Volume, err
}

// Attach implements provisioner.Attachments.
func (d *directory) Attach(_ context.Context, spec provisioner.AttachSpec) (none provisioner.Attachment, err error) {
	if spec.Node == "" {
		return none, fmt.Errorf("attach volume %s: no node is named: %w", spec.VolumeID, provisioner.ErrInvalid)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r, err := d.load(spec.VolumeID)
	if err != nil {
		return none, err
	}
	readOnly, has := r.Nodes[spec.Node]
	switch {
	case has && readOnly != spec.ReadOnly:
		return none, fmt.Errorf("attach volume %s to %s: read-only there: %t: %w", spec.VolumeID, spec.Node, readOnly, provisioner.ErrExists)
	case !has && len(r.Nodes) > 0 && provisioner.SingleNode(r.Volume.AccessModes):
		return none, fmt.Errorf("attach volume %s to %s: another node has it: %w", spec.VolumeID, spec.Node, provisioner.ErrInUse)
	}
	if r.Nodes == nil {
		r.Nodes = map[string]bool{}
	}
	r.Nodes[spec.Node] = spec.ReadOnly
	return provisioner.Attachment{PublishContext: map[string]string{"file": d.file(spec.VolumeID, ".img")}}, d.save(r)
}

// Detach implements provisioner.Attachments.
func (d *directory) Detach(_ context.Context, volume, node string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, err := d.load(volume)
	if errors.Is(err, provisioner.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	maps.DeleteFunc(r.Nodes, func(n string, _ bool) bool { return node == "" || n == node })
	return d.save(r)
}
