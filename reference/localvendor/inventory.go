package localvendor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// inventory is the Inventory interface of a Storage, room its Room interface.
type (
	inventory struct{ s *Storage }
	room      struct{ s *Storage }
)

// List returns a page of the volumes.
func (f inventory) List(ctx context.Context, page provisioner.Page) ([]provisioner.Entry, string, error) {
	ids, err := records.IDs(f.s.dir)
	if err != nil {
		return nil, "", err
	}
	return walk(ctx, ids, page, func(id string) (provisioner.Entry, bool, error) {
		have, found, err := f.s.load(id)
		return have.Entry(id), found, err
	})
}

// Look returns one volume.
func (f inventory) Look(_ context.Context, id string) (provisioner.Entry, error) {
	have, found, err := f.s.load(id)
	if err == nil && !found {
		err = fmt.Errorf("volume %q: %w", id, provisioner.ErrNotFound)
	}
	return have.Entry(id), err
}

// Capacity returns the free room of the directory's file system, which all places
// share; none where there is no storage.
func (f room) Capacity(_ context.Context, parameters map[string]string, from provisioner.Place) (provisioner.Capacity, error) {
	mode := provisioner.Block
	if parameters[records.ParameterKind] == records.KindDirectory {
		mode = provisioner.Filesystem
	}
	probe := provisioner.VolumeSpec{
		Name: "probe", CapacityBytes: Granularity, Mode: mode,
		AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce}, Parameters: parameters,
	}
	least, err := f.s.parse(probe)
	if err != nil {
		return provisioner.Capacity{}, fmt.Errorf("room for such volumes: %w", err)
	}
	if from != nil && !f.s.places.Offer(from) {
		return provisioner.Capacity{}, nil
	}
	_, free, err := f.s.space()
	if err != nil {
		return provisioner.Capacity{}, err
	}
	free = free / Granularity * Granularity
	return provisioner.Capacity{Available: free, Largest: min(free, f.s.maxBytes), Smallest: least.CapacityBytes}, nil
}

// walk returns a page of what load finds under ids, which are in order; ok is
// false for what is not of the list.
func walk[T any](ctx context.Context, ids []string, page provisioner.Page, load func(id string) (v T, ok bool, err error)) (out []T, next string, err error) {
	rest, _ := provisioner.Page{After: page.After}.Cut(ids)
	last := ""
	for _, id := range rest {
		if err := ctx.Err(); err != nil {
			return nil, "", err
		}
		v, ok, err := load(id)
		if err != nil {
			return nil, "", err
		}
		if !ok {
			continue
		}
		if page.Max > 0 && len(out) == page.Max {
			return out, last, nil
		}
		out, last = append(out, v), id
	}
	return out, "", nil
}

// The reasons of problems.
const (
	reasonImageGone     = "ImageGone"
	reasonImageShort    = "ImageTooShort"
	reasonImageUnread   = "ImageUnreadable"
	reasonRecordDamaged = "RecordDamaged"
	reasonNoRoom        = "NoRoomLeft"
)

// lowWater is the free room in bytes below which thin volumes are in danger.
const lowWater = 64 << 20

// health is the Health interface of a Storage.
type health struct{ s *Storage }

// Get looks at a volume's record and image.
func (f health) Get(_ context.Context, id string) (provisioner.VolumeHealth, error) {
	out := provisioner.VolumeHealth{VolumeID: id}
	have, found, err := f.s.load(id)
	switch {
	case errors.Is(err, provisioner.ErrPrecondition):
		out.Problems = []provisioner.Problem{{Severity: provisioner.DataLoss, Reason: reasonRecordDamaged, Message: err.Error()}}
		return out, nil
	case err != nil:
		return provisioner.VolumeHealth{}, err
	case !found:
		return provisioner.VolumeHealth{}, fmt.Errorf("volume %q: %w", id, provisioner.ErrNotFound)
	}
	_, free, err := f.s.space()
	if err != nil {
		return provisioner.VolumeHealth{}, err
	}
	path := f.s.dataPath(id, have)
	st, err := os.Stat(path)
	out.Problems = diagnose(have, path, st, err, free)
	return out, nil
}

// diagnose says what is wrong with a volume whose image was looked at.
func diagnose(have records.Volume, path string, image fs.FileInfo, looked error, free int64) (out []provisioner.Problem) {
	add := func(s provisioner.Severity, reason, format string, args ...any) {
		out = append(out, provisioner.Problem{Severity: s, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case errors.Is(looked, fs.ErrNotExist):
		add(provisioner.DataLoss, reasonImageGone, "image %s is gone: restore it from a snapshot or a backup", path)
	case looked != nil:
		add(provisioner.Inaccessible, reasonImageUnread, "image %s cannot be looked at: %v", path, looked)
	case !have.Shared() && image.Size() < have.CapacityBytes:
		add(provisioner.DataLoss, reasonImageShort, "image %s has %d bytes and had %d: restore it from a snapshot or a backup", path, image.Size(), have.CapacityBytes)
	}
	if have.Provisioning == records.Thin && free < lowWater {
		add(provisioner.Degraded, reasonNoRoom, "%d bytes are left where the volume takes room as it is written: make room", free)
	}
	return out
}

// List returns a page of the volumes that are not well.
func (f health) List(ctx context.Context, page provisioner.Page) ([]provisioner.VolumeHealth, string, error) {
	ids, err := records.IDs(f.s.dir)
	if err != nil {
		return nil, "", err
	}
	return walk(ctx, ids, page, func(id string) (provisioner.VolumeHealth, bool, error) {
		h, err := f.Get(ctx, id)
		if errors.Is(err, provisioner.ErrNotFound) {
			return h, false, nil
		}
		return h, len(h.Problems) > 0, err
	})
}
