package localvendor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/localvendor/files"
)

// TestCopyOfAVolumeInUse: all that may write are held up; if they cannot be held
// up, there is no copy.
func TestCopyOfAVolumeInUse(t *testing.T) {
	d := &dataPath{}
	s := openStorage(t, withData(d))
	one, two := create(t, s, spec("one")), create(t, s, spec("two"))
	p := s.Platform()
	group := provisioner.GroupSpec{Name: "g", VolumeIDs: []string{one.ID, two.ID}}
	attach(t, s, one.ID, "dpu-1")
	if _, err := p.Groups.Create(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(d.paused); got != "[[one]]" {
		t.Fatalf("held up %s", got)
	}
	d.err = fmt.Errorf("the pause ended early: %w", blocktarget.ErrUnreachable)
	group.Name = "h"
	_, err := p.Groups.Create(t.Context(), group)
	if !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	if _, err := p.Groups.Get(t.Context(), "h"); !errors.Is(err, provisioner.ErrNotFound) {
		t.Fatalf("a group of a pause that was none: %v", err)
	}
	files := openStorage(t, Options{})
	v := create(t, files, spec("one"))
	if _, err := files.Attach(t.Context(), provisioner.AttachSpec{VolumeID: v.ID, Node: "dpu-1"}); err != nil {
		t.Fatal(err)
	}
	w := create(t, files, spec("two"))
	_, err = files.Platform().Groups.Create(t.Context(), provisioner.GroupSpec{Name: "g", VolumeIDs: []string{v.ID, w.ID}})
	if !errors.Is(err, provisioner.ErrPrecondition) || !strings.Contains(err.Error(), "detach") {
		t.Fatalf("of volumes whose writers cannot be held up: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(files.dir, "*", ".new-*"))
	if err != nil || len(left) != 0 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
}

// sharing lets the file system of s share data, as reflinks do.
func sharing(s *Storage) {
	s.reflink = func(dst, src *os.File) (bool, error) { return true, files.Copy(context.Background(), dst, src) }
}

// TestGroupOfAVolumeInUse: each reflink is of one instant, and two are of two: the
// writers of a group are held up even where the file system shares data.
func TestGroupOfAVolumeInUse(t *testing.T) {
	d := &dataPath{}
	s := openStorage(t, withData(d))
	sharing(s)
	one, two := create(t, s, spec("one")), create(t, s, spec("two"))
	attach(t, s, one.ID, "dpu-1")
	p := s.Platform()
	if _, err := p.Snapshots.Create(t.Context(), provisioner.SnapshotSpec{Name: "s", VolumeID: one.ID}); err != nil || len(d.paused) != 0 {
		t.Errorf("a snapshot by reflink: held up %v, %v", d.paused, err)
	}
	if _, err := p.Groups.Create(t.Context(), provisioner.GroupSpec{Name: "g", VolumeIDs: []string{one.ID, two.ID}}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(d.paused); got != "[[one]]" {
		t.Errorf("held up %s", got)
	}
}

// TestSnapshotsHaveNoParameters: one that is asked for is refused, and nothing is kept.
func TestSnapshotsHaveNoParameters(t *testing.T) {
	s := openStorage(t, Options{})
	v, p, parameters := create(t, s, spec("one")), s.Platform(), map[string]string{"ignoreFailedRead": "true"}
	_, alone := p.Snapshots.Create(t.Context(), provisioner.SnapshotSpec{Name: "s", VolumeID: v.ID, Parameters: parameters})
	_, group := p.Groups.Create(t.Context(), provisioner.GroupSpec{Name: "g", VolumeIDs: []string{v.ID}, Parameters: parameters})
	for what, err := range map[string]error{"snapshot": alone, "group": group} {
		if !errors.Is(err, provisioner.ErrInvalid) || !strings.Contains(err.Error(), `"ignoreFailedRead"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if left, _, err := p.Snapshots.List(t.Context(), provisioner.SnapshotFilter{}, provisioner.Page{}); err != nil || len(left) != 0 {
		t.Errorf("kept: %v, %v", left, err)
	}
}

// TestReadersNeedNoPause: who only reads, by the attachment or by its modes, is
// not held up, nor stands in the way if it cannot be.
func TestReadersNeedNoPause(t *testing.T) {
	for name, c := range map[string]struct {
		spec    provisioner.AttachSpec
		written bool
	}{
		"no users":     {},
		"a writer":     {provisioner.AttachSpec{Node: "dpu-1"}, true},
		"read-only":    {provisioner.AttachSpec{Node: "dpu-1", ReadOnly: true}, false},
		"reader modes": {provisioner.AttachSpec{Node: "dpu-1", AccessModes: []provisioner.AccessMode{provisioner.ReadOnlyMany}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := &dataPath{}
			s := openStorage(t, withData(d))
			v, w := create(t, s, spec("one")), create(t, s, spec("two"))
			if c.spec.Node != "" {
				c.spec.VolumeID = v.ID
				if _, err := s.Attach(t.Context(), c.spec); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Platform().Groups.Create(t.Context(), provisioner.GroupSpec{Name: "g", VolumeIDs: []string{v.ID, w.ID}}); err != nil {
				t.Fatal(err)
			}
			if held := len(d.paused) > 0; held != c.written {
				t.Errorf("held up %v, want %t", d.paused, c.written)
			}
		})
	}
}

// TestCopyThatFails leaves no volume and no file behind.
func TestCopyThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*Storage, *dataPath, *provisioner.VolumeSpec, *provisioner.Source)
		want    error
	}{
		"no such source": {func(_ *Storage, _ *dataPath, _ *provisioner.VolumeSpec, from *provisioner.Source) {
			from.VolumeID = "none"
		}, provisioner.ErrNotFound},
		"too small": {func(_ *Storage, _ *dataPath, want *provisioner.VolumeSpec, _ *provisioner.Source) {
			want.CapacityBytes, want.LimitBytes = mib, mib
		}, provisioner.ErrOutOfRange},
		"its image is gone": {func(s *Storage, _ *dataPath, _ *provisioner.VolumeSpec, _ *provisioner.Source) {
			_ = os.Remove(s.imagePath("one"))
		}, provisioner.ErrPrecondition},
		"cut off half way": {func(_ *Storage, d *dataPath, _ *provisioner.VolumeSpec, _ *provisioner.Source) {
			d.err = context.Canceled
		}, context.Canceled},
		"its writers write on": {func(_ *Storage, d *dataPath, _ *provisioner.VolumeSpec, _ *provisioner.Source) {
			d.err = blocktarget.ErrUnreachable
		}, provisioner.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			d := &dataPath{}
			s := openStorage(t, withData(d))
			attach(t, s, create(t, s, spec("one")).ID, "dpu-1")
			want, from := spec("two"), provisioner.Source{VolumeID: "one"}
			c.prepare(s, d, &want, &from)
			if _, err := s.CreateFrom(t.Context(), want, from); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if _, err := s.Get(t.Context(), "two"); !errors.Is(err, provisioner.ErrNotFound) {
				t.Errorf("the volume is there: %v", err)
			}
			if left, err := filepath.Glob(filepath.Join(s.dir, "*two*")); err != nil || len(left) != 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

// TestCopyIsSparse: holes stay holes, data is the same, at any size.
func TestCopyIsSparse(t *testing.T) {
	s := openStorage(t, Options{})
	want := spec("one")
	want.CapacityBytes = 64 * mib
	v := create(t, s, want)
	f, err := os.OpenFile(s.imagePath(v.ID), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{0, 33*mib + 5, 64*mib - 9} {
		if _, err := f.WriteAt([]byte("data here"), at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Platform().Snapshots.Create(t.Context(), provisioner.SnapshotSpec{Name: "s", VolumeID: v.ID}); err != nil {
		t.Fatal(err)
	}
	copied, err := os.ReadFile(s.snapshotPath("s", ".img"))
	if err != nil {
		t.Fatal(err)
	}
	original, err := os.ReadFile(s.imagePath(v.ID))
	if err != nil || !bytes.Equal(copied, original) {
		t.Fatalf("the copy differs, %v", err)
	}
	if taken := allocated(t, s.snapshotPath("s", ".img")); taken > 4*mib {
		t.Fatalf("the copy takes %d bytes", taken)
	}
}

// TestCopyHasTheSizeOfItsSource, though a hole is at its end, and whatever was in
// the place of the copy.
func TestCopyHasTheSizeOfItsSource(t *testing.T) {
	for name, c := range map[string]struct{ data, before string }{
		"a hole alone":      {"", ""},
		"data, then a hole": {"data here", ""},
		"over something":    {"data here", "the rest of a longer copy"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			src, err := os.Create(filepath.Join(dir, "src"))
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			dst, err := os.Create(filepath.Join(dir, "dst"))
			if err != nil {
				t.Fatal(err)
			}
			defer dst.Close()
			_, wrote := src.WriteString(c.data)
			_, was := dst.WriteAt([]byte(c.before), 4*mib)
			if err := errors.Join(wrote, was, src.Truncate(3*mib), files.Copy(t.Context(), dst, src)); err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(src.Name())
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(dst.Name()); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes, %v; want the %d of the source", len(got), err, len(want))
			}
		})
	}
}
