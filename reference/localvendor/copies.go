package localvendor

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/localvendor/files"
	"github.com/moor-storage/moor/reference/localvendor/places"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// CreateFrom makes a volume of the data of a snapshot or of another volume. See
// provisioner.Copies.
func (s *Storage) CreateFrom(ctx context.Context, spec provisioner.VolumeSpec, from provisioner.Source) (provisioner.Volume, error) {
	v, err := s.createFrom(ctx, spec, from)
	if err != nil {
		return provisioner.Volume{}, fmt.Errorf("create volume %q of %+v: %w", spec.Name, from, err)
	}
	return v, nil
}

func (s *Storage) createFrom(ctx context.Context, spec provisioner.VolumeSpec, from provisioner.Source) (provisioner.Volume, error) {
	if (from.SnapshotID == "") == (from.VolumeID == "") {
		return provisioner.Volume{}, fmt.Errorf("name either a snapshot or a volume: %w", provisioner.ErrInvalid)
	}
	want, err := s.parse(spec)
	if err != nil {
		return provisioner.Volume{}, err
	}
	if err := onlyImage(want, "made as a copy"); err != nil {
		return provisioner.Volume{}, err
	}
	want.Source = &records.Source{Snapshot: from.SnapshotID, Volume: from.VolumeID}
	id := records.ID(spec.Name)
	return s.create(ctx, id, spec, want, func(ctx context.Context) (records.Volume, error) { return s.copyInto(ctx, id, spec, want) })
}

// copyInto makes the image of volume id as a copy of its source, and returns
// the record, with the size that the copy has.
func (s *Storage) copyInto(ctx context.Context, id string, spec provisioner.VolumeSpec, want records.Volume) (records.Volume, error) {
	o, err := s.origin(*want.Source)
	if err != nil {
		return records.Volume{}, err
	}
	defer o.unlock()
	if o.mode != want.Mode {
		return records.Volume{}, fmt.Errorf("the source has volume mode %s, not %s: %w", o.mode, want.Mode, provisioner.ErrInvalid)
	}
	if !places.Serves(o.place, spec.AccessibleFrom) {
		return records.Volume{}, fmt.Errorf("it is wanted where %v, and a copy is where its source is, %v: %w", spec.AccessibleFrom, o.place, provisioner.ErrExhausted)
	}
	want.Place = o.place
	if want.CapacityBytes, err = sizeOf(max(spec.CapacityBytes, o.bytes), 0, s.maxBytes); err != nil {
		return records.Volume{}, err
	}
	if spec.LimitBytes > 0 && want.CapacityBytes > spec.LimitBytes {
		return records.Volume{}, fmt.Errorf("the source has %d bytes, the limit is %d: %w", o.bytes, spec.LimitBytes, provisioner.ErrOutOfRange)
	}
	return want, s.makeImage(id, want, func(f *os.File) error {
		return s.copyAll(ctx, pair{volume: want.Source.Volume, have: o.have, image: o.image, draft: &files.Draft{File: f}})
	})
}

// origin is the source of a copy, which stays as long as it is not unlocked.
type origin struct {
	image  string
	have   records.Volume // of a volume
	mode   provisioner.VolumeMode
	bytes  int64
	place  provisioner.Place
	unlock func()
}

func (s *Storage) origin(from records.Source) (origin, error) {
	if from.Volume != "" {
		return s.volumeOrigin(from.Volume)
	}
	unlock, err := s.lock(snapshotKey(from.Snapshot))
	if err != nil {
		return origin{}, err
	}
	have, err := s.snapshot(from.Snapshot)
	if err != nil {
		unlock()
		return origin{}, err
	}
	return origin{image: s.snapshotPath(from.Snapshot, ".img"), mode: have.Mode, bytes: have.SizeBytes, place: have.Place, unlock: unlock}, nil
}

func (s *Storage) volumeOrigin(id string) (origin, error) {
	unlock, err := s.lock(id)
	if err != nil {
		return origin{}, err
	}
	have, found, err := s.load(id)
	if err == nil && !found {
		err = fmt.Errorf("volume %q: %w", id, provisioner.ErrNotFound)
	}
	if err != nil {
		unlock()
		return origin{}, err
	}
	return origin{image: s.imagePath(id), have: have, mode: have.Mode, bytes: have.CapacityBytes, place: have.Place, unlock: unlock}, nil
}

// pair is an image and the draft of its copy.
type pair struct {
	volume string
	have   records.Volume // what is known of the volume; zero for a snapshot
	image  string
	draft  *files.Draft
}

// copyAll fills the drafts with what their images hold at one instant. Volumes
// that no node may write to hold still. Of the others, a reflink is of one
// instant, if there is one only; else the target has to hold the writers up. A file
// system always holds still for it, so that what was written is in the image.
func (s *Storage) copyAll(ctx context.Context, pairs ...pair) error {
	var written []string
	cached := false
	for _, p := range pairs {
		if p.have.Written() {
			written = append(written, p.volume)
			cached = cached || p.have.Contained()
		}
	}
	if len(pairs) == 1 && !cached || len(written) == 0 {
		if done, err := s.reflinkAll(pairs); done || err != nil {
			return err
		}
	}
	if len(written) == 0 {
		return plainCopy(ctx, pairs)
	}
	if s.target == nil || s.target.Data == nil {
		return fmt.Errorf("volumes %v are in use, the file system of %s cannot copy at one instant, and no target can hold their writers up: detach them first: %w",
			written, s.dir, provisioner.ErrPrecondition)
	}
	return s.copyPaused(ctx, written, pairs)
}

// copyPaused copies while the writers wait.
func (s *Storage) copyPaused(ctx context.Context, written []string, pairs []pair) error {
	ctx, cancel := context.WithTimeout(ctx, blocktarget.MaxPause)
	defer cancel()
	err := s.target.Data.Pause(ctx, written, func(ctx context.Context) error {
		if done, err := s.reflinkAll(pairs); done || err != nil {
			return err
		}
		return plainCopy(ctx, pairs)
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("copy volumes %v while their writers wait: more than %s are not allowed, detach them or use a file system with reflinks: %w: %w",
			written, blocktarget.MaxPause, provisioner.ErrUnavailable, err)
	case errors.Is(err, blocktarget.ErrUnreachable):
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	return err
}

// reflinkAll copies by reflink; done is false if the file system has none.
func (s *Storage) reflinkAll(pairs []pair) (done bool, err error) {
	for _, p := range pairs {
		done, err := withImage(p.image, func(src *os.File) (bool, error) { return s.reflink(p.draft.File, src) })
		if err != nil || !done {
			return false, err
		}
	}
	return true, nil
}

func plainCopy(ctx context.Context, pairs []pair) error {
	for _, p := range pairs {
		_, err := withImage(p.image, func(src *os.File) (bool, error) { return true, files.Copy(ctx, p.draft.File, src) })
		if err != nil {
			return err
		}
	}
	return nil
}

func withImage(path string, act func(*os.File) (bool, error)) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("its image %s is gone, restore it from a backup: %w", path, provisioner.ErrPrecondition)
	}
	if err != nil {
		return false, err
	}
	done, err := act(f)
	return done, errors.Join(err, f.Close())
}

// copyError gives an error of a copy its kind.
func copyError(err error) error {
	if noRoom(err) {
		return fmt.Errorf("%w: %w", provisioner.ErrExhausted, err)
	}
	return err
}
