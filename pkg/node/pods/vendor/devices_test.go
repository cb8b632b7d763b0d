package vendor

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// snap has devices by mode, and fails where a test says so.
type snap struct {
	there map[provisioner.VolumeMode]bool
	// look, make and take are what looking, making and removing end with.
	look, make, take error
	done             []string
}

func (s *snap) BdevGetBdevs(_ context.Context, name string) ([]snaprpc.Bdev, error) {
	switch {
	case s.look != nil:
		return nil, s.look
	case !s.there[provisioner.Block]:
		return nil, &snaprpc.Error{Code: snaprpc.CodeNoDevice}
	}
	return []snaprpc.Bdev{{Name: name}}, nil
}

func (s *snap) FsdevGetFsdevs(context.Context) ([]snaprpc.FSDev, error) {
	out := []snaprpc.FSDev{{Name: "other"}}
	if s.there[provisioner.Filesystem] {
		out = append(out, snaprpc.FSDev{Name: "d"})
	}
	return out, s.look
}

func (s *snap) does(what string, err error) error {
	s.done = append(s.done, what)
	return err
}

func (s *snap) BdevAioCreate(_ context.Context, spec snaprpc.AIOSpec) (string, error) {
	if spec.ReadOnly {
		return spec.Name, s.does("bdev over "+spec.Filename+", read-only", s.make)
	}
	return spec.Name, s.does("bdev over "+spec.Filename, s.make)
}

func (s *snap) FsdevAioCreate(_ context.Context, _, root string) error {
	return s.does("fsdev over "+root, s.make)
}
func (s *snap) BdevAioDelete(context.Context, string) error  { return s.does("no bdev", s.take) }
func (s *snap) FsdevAioDelete(context.Context, string) error { return s.does("no fsdev", s.take) }

// TestDevices: what SNAP cannot be asked about is neither made nor removed, and a failure is told.
func TestDevices(t *testing.T) {
	const block, fs = provisioner.Block, provisioner.Filesystem
	has := func(modes ...provisioner.VolumeMode) map[provisioner.VolumeMode]bool {
		out := map[provisioner.VolumeMode]bool{}
		for _, m := range modes {
			out[m] = true
		}
		return out
	}
	busy := &snaprpc.Error{Code: snaprpc.CodeBusy}
	for name, c := range map[string]struct {
		snap   snap
		mode   provisioner.VolumeMode
		ro     bool
		remove bool
		done   []string
		err    error
	}{
		"a bdev":                       {mode: block, done: []string{"bdev over /p"}},
		"a bdev for readers":           {mode: block, ro: true, done: []string{"bdev over /p, read-only"}},
		"an fsdev":                     {mode: fs, done: []string{"fsdev over /p"}},
		"a bdev that is there":         {mode: block, snap: snap{there: has(block)}},
		"an fsdev that is there":       {mode: fs, snap: snap{there: has(fs)}},
		"a bdev that is not known":     {mode: block, snap: snap{look: snaprpc.ErrUnavailable}, err: provisioner.ErrUnavailable},
		"an fsdev that is not known":   {mode: fs, snap: snap{look: snaprpc.ErrUnavailable}, err: provisioner.ErrUnavailable},
		"a bdev that cannot be made":   {mode: block, snap: snap{make: busy}, done: []string{"bdev over /p"}, err: provisioner.ErrInUse},
		"an fsdev that cannot be made": {mode: fs, snap: snap{make: busy}, done: []string{"fsdev over /p"}, err: provisioner.ErrInUse},
		"no device":                    {remove: true},
		"a bdev goes":                  {remove: true, snap: snap{there: has(block)}, done: []string{"no bdev"}},
		"an fsdev goes":                {remove: true, snap: snap{there: has(fs)}, done: []string{"no fsdev"}},
		"a device that cannot go":      {remove: true, snap: snap{there: has(block), take: busy}, done: []string{"no bdev"}, err: provisioner.ErrInUse},
		"a device that may be there":   {remove: true, snap: snap{look: snaprpc.ErrUnavailable}, err: provisioner.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s := devices{&c.snap}
			err := s.create(t.Context(), provisioner.Device{Name: "d", Mode: c.mode}, "/p", c.ro)
			if c.remove {
				c.snap.done = nil
				err = s.remove(t.Context(), "d")
			}
			if !errors.Is(err, c.err) || !slices.Equal(c.snap.done, c.done) {
				t.Errorf("%v, %v; want %v, %v", c.snap.done, err, c.done, c.err)
			}
		})
	}
}
