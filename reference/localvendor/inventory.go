package localvendor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// inventory is the Inventory face of a Storage, room its Room face.
type (
	inventory struct{ s *Storage }
	room      struct{ s *Storage }
)

// List returns a page of the volumes.
func (f inventory) List(ctx context.Context, page provisioner.Page) ([]provisioner.Entry, string, error) {
	ids, err := idsIn(f.s.dir)
	if err != nil {
		return nil, "", err
	}
	return walk(ctx, ids, page, func(id string) (provisioner.Entry, bool, error) {
		have, found, err := f.s.load(id)
		return have.entry(id), found, err
	})
}

// Look returns one volume.
func (f inventory) Look(_ context.Context, id string) (provisioner.Entry, error) {
	have, found, err := f.s.load(id)
	if err == nil && !found {
		err = fmt.Errorf("volume %q: %w", id, provisioner.ErrNotFound)
	}
	return have.entry(id), err
}

func (r record) entry(id string) provisioner.Entry {
	return provisioner.Entry{Volume: r.volume(id), Nodes: slices.Sorted(maps.Keys(r.Attachments))}
}

// Capacity returns the free room of the directory's file system, which all places
// share; none where there is no storage.
func (f room) Capacity(_ context.Context, parameters map[string]string, from provisioner.Place) (provisioner.Capacity, error) {
	probe := provisioner.VolumeSpec{
		Name: "probe", CapacityBytes: Granularity, Mode: provisioner.Block,
		AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce}, Parameters: parameters,
	}
	if _, err := f.s.parse(probe); err != nil {
		return provisioner.Capacity{}, fmt.Errorf("room for such volumes: %w", err)
	}
	if from != nil && !f.s.offers(from) {
		return provisioner.Capacity{}, nil
	}
	_, free, err := f.s.space()
	if err != nil {
		return provisioner.Capacity{}, err
	}
	free = free / Granularity * Granularity
	return provisioner.Capacity{Available: free, Largest: min(free, f.s.maxBytes), Smallest: Granularity}, nil
}

// idsIn returns the IDs of the records in a directory, in order; none if there
// is no directory.
func idsIn(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	var ids []string
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, ".json"); ok && validID(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
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
