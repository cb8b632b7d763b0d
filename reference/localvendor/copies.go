package localvendor

import (
	"context"
	"fmt"
	"os"

	"github.com/moor-storage/moor/pkg/provisioner"
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
	want.Source = &source{Snapshot: from.SnapshotID, Volume: from.VolumeID}
	id := idOf(spec.Name)
	return s.create(ctx, id, spec, want, func(ctx context.Context) (record, error) { return s.copyInto(ctx, id, spec, want) })
}

// copyInto makes the image of volume id as a copy of its source, and returns
// the record, with the size that the copy has.
func (s *Storage) copyInto(ctx context.Context, id string, spec provisioner.VolumeSpec, want record) (record, error) {
	o, err := s.origin(*want.Source)
	if err != nil {
		return record{}, err
	}
	defer o.unlock()
	if o.mode != want.Mode {
		return record{}, fmt.Errorf("the source has volume mode %s, not %s: %w", o.mode, want.Mode, provisioner.ErrInvalid)
	}
	if !serves(o.place, spec.AccessibleFrom) {
		return record{}, fmt.Errorf("it is wanted where %v, and a copy is where its source is, %v: %w", spec.AccessibleFrom, o.place, provisioner.ErrExhausted)
	}
	want.Place = o.place
	if want.CapacityBytes, err = sizeOf(max(spec.CapacityBytes, o.bytes), 0, s.maxBytes); err != nil {
		return record{}, err
	}
	if spec.LimitBytes > 0 && want.CapacityBytes > spec.LimitBytes {
		return record{}, fmt.Errorf("the source has %d bytes, the limit is %d: %w", o.bytes, spec.LimitBytes, provisioner.ErrOutOfRange)
	}
	return want, s.makeImage(id, want, func(f *os.File) error {
		return s.copyAll(ctx, pair{volume: want.Source.Volume, have: o.have, image: o.image, draft: &draft{File: f}})
	})
}

// origin is the source of a copy, which stays as long as it is not unlocked.
type origin struct {
	image  string
	have   record // of a volume
	mode   provisioner.VolumeMode
	bytes  int64
	place  provisioner.Place
	unlock func()
}

func (s *Storage) origin(from source) (origin, error) {
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
