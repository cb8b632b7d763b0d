package localvendor

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/files"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// snapshots is the Snapshots interface of a Storage.
type snapshots struct{ s *Storage }

// Create keeps what a volume holds, by reflink where the file system has it.
func (f snapshots) Create(ctx context.Context, spec provisioner.SnapshotSpec) (provisioner.Snapshot, error) {
	got, err := f.s.snap(ctx, spec)
	if err != nil {
		return provisioner.Snapshot{}, fmt.Errorf("make snapshot %q of volume %q: %w", spec.Name, spec.VolumeID, err)
	}
	return got, nil
}

func (s *Storage) snap(ctx context.Context, spec provisioner.SnapshotSpec) (provisioner.Snapshot, error) {
	none := provisioner.Snapshot{}
	if spec.Name == "" || spec.VolumeID == "" {
		return none, fmt.Errorf("snapshot or volume is not named: %w", provisioner.ErrInvalid)
	}
	if err := noParameters(spec.Parameters); err != nil {
		return none, err
	}
	id := records.ID(spec.Name)
	unlock, err := s.locked(snapshotKey(id), spec.VolumeID)
	if err != nil {
		return none, err
	}
	defer unlock()
	have, found, err := s.loadSnapshot(id)
	switch {
	case err != nil:
		return none, err
	case found && (have.Volume != spec.VolumeID || have.Name != spec.Name || have.Group != ""):
		return none, fmt.Errorf("it exists, of volume %s: %w", have.Volume, provisioner.ErrExists)
	case found:
		return have.Snapshot(id), nil
	}
	made, err := s.keep(ctx, "", map[string]string{spec.VolumeID: spec.Name})
	if err != nil {
		return none, err
	}
	return made[0], nil
}

// noParameters refuses parameters: this platform knows none for snapshots.
func noParameters(parameters map[string]string) error {
	for _, k := range slices.Sorted(maps.Keys(parameters)) {
		return fmt.Errorf("parameter %q: snapshots have none: %w", k, provisioner.ErrInvalid)
	}
	return nil
}

// keep makes a snapshot, named by names, of each volume, all of one instant, or
// none. The caller holds the locks.
func (s *Storage) keep(ctx context.Context, group string, names map[string]string) ([]provisioner.Snapshot, error) {
	if err := os.MkdirAll(s.snapshotPath("", ""), 0o750); err != nil {
		return nil, err
	}
	var pairs []pair
	defer func() {
		for _, p := range pairs {
			p.draft.Discard()
		}
	}()
	for _, volume := range slices.Sorted(maps.Keys(names)) {
		have, found, err := s.load(volume)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, fmt.Errorf("volume %q: %w", volume, provisioner.ErrNotFound)
		}
		if err := onlyImage(have, "kept in a snapshot"); err != nil {
			return nil, err
		}
		d, err := files.NewDraft(s.snapshotPath(records.ID(names[volume]), ".img"))
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, pair{volume: volume, have: have, image: s.imagePath(volume), draft: d})
	}
	if err := s.copyAll(ctx, pairs...); err != nil {
		return nil, copyError(err)
	}
	return s.commit(group, names, pairs)
}

// commit makes the copies snapshots. What an error leaves has no record, or one
// of a group that has none, and so does not exist.
func (s *Storage) commit(group string, names map[string]string, pairs []pair) ([]provisioner.Snapshot, error) {
	now := s.clock.Now().UTC()
	var out []provisioner.Snapshot
	for _, p := range pairs {
		id := records.ID(names[p.volume])
		r := records.Snapshot{
			Name: names[p.volume], Volume: p.volume, SizeBytes: p.have.CapacityBytes, Mode: p.have.Mode, Place: p.have.Place, Created: now, Group: group,
		}
		if err := p.draft.Commit(); err != nil {
			return nil, copyError(err)
		}
		if err := files.Save(s.snapshotPath(id, ".json"), "snapshot "+id, r); err != nil {
			return nil, err
		}
		out = append(out, r.Snapshot(id))
	}
	return out, nil
}

// Delete removes a snapshot that is of no group.
func (f snapshots) Delete(ctx context.Context, id string) error {
	if !records.Valid(id) {
		return nil
	}
	unlock, err := f.s.lock(snapshotKey(id))
	if err != nil {
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	defer unlock()
	have, found, err := f.s.loadSnapshot(id)
	if err == nil && found && have.Group != "" {
		err = fmt.Errorf("it is of group %s, delete that: %w", have.Group, provisioner.ErrInvalid)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = f.s.removeSnapshot(id)
	}
	if err != nil {
		return fmt.Errorf("delete snapshot %s: %w", id, err)
	}
	return nil
}

// Get returns a snapshot.
func (f snapshots) Get(_ context.Context, id string) (provisioner.Snapshot, error) {
	have, err := f.s.snapshot(id)
	return have.Snapshot(id), err
}

// List returns a page of the snapshots.
func (f snapshots) List(ctx context.Context, filter provisioner.SnapshotFilter, page provisioner.Page) ([]provisioner.Snapshot, string, error) {
	ids, err := records.IDs(f.s.snapshotPath("", ""))
	if err != nil {
		return nil, "", err
	}
	return walk(ctx, ids, page, func(id string) (provisioner.Snapshot, bool, error) {
		have, found, err := f.s.loadSnapshot(id)
		return have.Snapshot(id), found && (filter.VolumeID == "" || filter.VolumeID == have.Volume), err
	})
}

// blocks is the Blocks interface of a Storage.
type blocks struct{ s *Storage }

// Allocated tells where the image of a snapshot is no hole.
func (f blocks) Allocated(ctx context.Context, id string, from int64, found func(provisioner.Range) error) error {
	err := f.s.withSnapshots(func(have []records.Snapshot, images []*os.File) error {
		return files.Allocated(ctx, images[0], files.Part{From: from, Size: have[0].SizeBytes}, asRange(found))
	}, id)
	if err != nil {
		return fmt.Errorf("find the data of snapshot %q: %w", id, err)
	}
	return nil
}

// Changed compares the images of two snapshots.
func (f blocks) Changed(ctx context.Context, base, target string, from int64, found func(provisioner.Range) error) error {
	err := f.s.withSnapshots(func(have []records.Snapshot, images []*os.File) error {
		if have[0].Volume != have[1].Volume {
			return fmt.Errorf("they are of the volumes %s and %s: %w", have[0].Volume, have[1].Volume, provisioner.ErrInvalid)
		}
		return files.Changed(ctx, images[0], images[1], files.Part{From: from, Size: have[1].SizeBytes}, asRange(found))
	}, base, target)
	if err != nil {
		return fmt.Errorf("compare snapshots %q and %q: %w", base, target, err)
	}
	return nil
}

func asRange(found func(provisioner.Range) error) func(start, end int64) error {
	return func(start, end int64) error { return found(provisioner.Range{Offset: start, Length: end - start}) }
}

// withSnapshots opens the images of snapshots, which stay as they are while they are
// read, also if they are deleted meanwhile.
func (s *Storage) withSnapshots(act func([]records.Snapshot, []*os.File) error, ids ...string) (err error) {
	var have []records.Snapshot
	var images []*os.File
	for _, id := range ids {
		r, err := s.snapshot(id)
		if err != nil {
			return err
		}
		if r.Mode != provisioner.Block {
			return fmt.Errorf("snapshot %s is of a file system, whose blocks are its own: %w", id, provisioner.ErrInvalid)
		}
		image, err := os.Open(s.snapshotPath(id, ".img"))
		if err != nil {
			return fmt.Errorf("snapshot %s: %w: %w", id, provisioner.ErrPrecondition, err)
		}
		defer func() { _ = image.Close() }()
		have, images = append(have, r), append(images, image)
	}
	return act(have, images)
}

// Where snapshots and groups are, in the target directory.
const (
	snapshotDir = "snapshots"
	groupDir    = "groups"
)

func snapshotKey(id string) string { return snapshotDir + "/" + id }
func groupKey(id string) string    { return groupDir + "/" + id }

func (s *Storage) snapshotPath(id, suffix string) string {
	return filepath.Join(s.dir, snapshotDir, id+suffix)
}

func (s *Storage) groupPath(id string) string { return filepath.Join(s.dir, groupDir, id+".json") }

// snapshot returns the record of a snapshot, or ErrNotFound.
func (s *Storage) snapshot(id string) (records.Snapshot, error) {
	r, found, err := s.loadSnapshot(id)
	if err == nil && !found {
		err = fmt.Errorf("snapshot %q: %w", id, provisioner.ErrNotFound)
	}
	return r, err
}

// loadSnapshot reads the record of a snapshot; one of a group that was not
// finished, or is half removed, does not exist.
func (s *Storage) loadSnapshot(id string) (r records.Snapshot, found bool, err error) {
	if !records.Valid(id) {
		return records.Snapshot{}, false, nil
	}
	r, found, err = files.Load[records.Snapshot](s.snapshotPath(id, ".json"), "snapshot "+id)
	r.Place = s.places.Since(r.Place)
	if err != nil || !found || r.Group == "" {
		return r, found, err
	}
	_, found, err = s.loadGroup(r.Group)
	return r, found, err
}

func (s *Storage) loadGroup(id string) (records.Group, bool, error) {
	if !records.Valid(id) {
		return records.Group{}, false, nil
	}
	return files.Load[records.Group](s.groupPath(id), "group "+id)
}

// removeSnapshot removes the record and then the data.
func (s *Storage) removeSnapshot(id string) error {
	for _, suffix := range []string{".json", ".img"} {
		if err := files.IgnoreMissing(os.Remove(s.snapshotPath(id, suffix))); err != nil {
			return fmt.Errorf("remove snapshot %s: %w", id, err)
		}
	}
	return files.IgnoreMissing(files.SyncDir(filepath.Join(s.dir, snapshotDir)))
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
