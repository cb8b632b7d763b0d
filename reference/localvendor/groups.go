package localvendor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/files"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// groups is the Groups interface of a Storage.
type groups struct{ s *Storage }

// Create makes a snapshot of each volume, of one instant.
func (f groups) Create(ctx context.Context, spec provisioner.GroupSpec) (provisioner.Group, error) {
	got, err := f.s.snapGroup(ctx, spec)
	if err != nil {
		return provisioner.Group{}, fmt.Errorf("make snapshots %q of volumes %v: %w", spec.Name, spec.VolumeIDs, err)
	}
	return got, nil
}

func (s *Storage) snapGroup(ctx context.Context, spec provisioner.GroupSpec) (provisioner.Group, error) {
	none := provisioner.Group{}
	volumes, err := groupVolumes(spec)
	if err != nil {
		return none, err
	}
	id := records.ID(spec.Name)
	unlock, err := s.locked(append([]string{groupKey(id)}, volumes...)...)
	if err != nil {
		return none, err
	}
	defer unlock()
	have, found, err := s.loadGroup(id)
	switch {
	case err != nil:
		return none, err
	case found && (have.Name != spec.Name || !slices.Equal(have.Volumes, volumes)):
		return none, fmt.Errorf("it exists, of volumes %v: %w", have.Volumes, provisioner.ErrExists)
	case found:
		return s.group(id, have)
	}
	names := map[string]string{}
	for _, v := range volumes {
		names[v] = id + "/" + v // no other snapshot has a hash of it for its ID
	}
	made, err := s.keep(ctx, id, names)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(s.groupPath(id)), 0o750)
	}
	if err == nil {
		err = files.Save(s.groupPath(id), "group "+id, records.Group{Name: spec.Name, Volumes: volumes, Created: made[0].Created})
	}
	if err != nil {
		return none, errors.Join(err, s.removeMembers(id))
	}
	return provisioner.Group{ID: id, Snapshots: made, Created: made[0].Created}, nil
}

// groupVolumes checks a request and returns its volumes in order.
func groupVolumes(spec provisioner.GroupSpec) ([]string, error) {
	volumes := slices.Sorted(slices.Values(spec.VolumeIDs))
	switch {
	case spec.Name == "" || len(volumes) == 0 || volumes[0] == "":
		return nil, fmt.Errorf("the group or its volumes are not named: %w", provisioner.ErrInvalid)
	case len(slices.Compact(slices.Clone(volumes))) != len(volumes):
		return nil, fmt.Errorf("a volume is named twice: %w", provisioner.ErrInvalid)
	}
	return volumes, noParameters(spec.Parameters)
}

// group returns a group with its snapshots.
func (s *Storage) group(id string, have records.Group) (provisioner.Group, error) {
	out := provisioner.Group{ID: id, Created: have.Created}
	for _, v := range have.Volumes {
		member := records.ID(id + "/" + v)
		r, err := s.snapshot(member)
		if err != nil {
			return provisioner.Group{}, fmt.Errorf("group %s: %w", id, err)
		}
		out.Snapshots = append(out.Snapshots, r.Snapshot(member))
	}
	return out, nil
}

// removeMembers removes the snapshots of a group whose record is gone.
func (s *Storage) removeMembers(group string) error {
	ids, err := records.IDs(s.snapshotPath("", ""))
	if err != nil {
		return err
	}
	for _, id := range ids {
		r, found, err := files.Load[records.Snapshot](s.snapshotPath(id, ".json"), "snapshot "+id)
		if err != nil || !found || r.Group != group {
			continue // a damaged record belongs to no group
		}
		if err := s.removeSnapshot(id); err != nil {
			return err
		}
	}
	return nil
}

// Delete removes the record of a group, from when on it does not exist, and
// then its snapshots.
func (f groups) Delete(ctx context.Context, id string) error {
	if !records.Valid(id) {
		return nil
	}
	unlock, err := f.s.lock(groupKey(id))
	if err != nil {
		return fmt.Errorf("delete group %s: %w", id, err)
	}
	defer unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete group %s: %w", id, err)
	}
	if err := files.IgnoreMissing(os.Remove(f.s.groupPath(id))); err != nil {
		return fmt.Errorf("delete group %s: %w", id, err)
	}
	if err := f.s.removeMembers(id); err != nil {
		return fmt.Errorf("delete group %s: %w", id, err)
	}
	return nil
}

// Get returns a group.
func (f groups) Get(_ context.Context, id string) (provisioner.Group, error) {
	have, found, err := f.s.loadGroup(id)
	if err != nil {
		return provisioner.Group{}, err
	}
	if !found {
		return provisioner.Group{}, fmt.Errorf("group %q: %w", id, provisioner.ErrNotFound)
	}
	return f.s.group(id, have)
}
