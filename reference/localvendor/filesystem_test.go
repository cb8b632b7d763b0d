package localvendor

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// contained is a storage in whose images are file systems, behind a target that is
// never asked about them.
func contained(t *testing.T, d DataPath) *Storage {
	t.Helper()
	o := targetOptions(revoker(func(volume, _ string) error {
		t.Errorf("the target was asked about volume %s, which is a file system", volume)
		return nil
	}))
	o.Target.Data, o.FSType = d, "ext4"
	return openStorage(t, o)
}

// directory asks for the file system in an image.
func directory(name string) provisioner.VolumeSpec {
	out := spec(name)
	out.Mode, out.CapacityBytes = provisioner.Filesystem, 16*mib
	out.Parameters = map[string]string{records.ParameterKind: records.KindDirectory}
	return out
}

func TestKinds(t *testing.T) {
	least := hostdev.LeastBytes("ext4")
	for name, tc := range map[string]struct {
		plain  bool // a storage without file systems
		change func(*provisioner.VolumeSpec)
		size   int64
		want   error
		words  string
	}{
		"directory":              {change: func(*provisioner.VolumeSpec) {}, size: 16 * mib},
		"without saying so":      {change: func(s *provisioner.VolumeSpec) { s.Parameters = nil }, size: 16 * mib},
		"thick":                  {change: func(s *provisioner.VolumeSpec) { s.Parameters["provisioning"] = "thick" }, size: 16 * mib},
		"small":                  {change: func(s *provisioner.VolumeSpec) { s.CapacityBytes = 1 }, size: least},
		"smaller than the least": {change: func(s *provisioner.VolumeSpec) { s.CapacityBytes, s.LimitBytes = 1, least-1 }, want: provisioner.ErrOutOfRange, words: "more than the limit"},
		"device":                 {change: func(s *provisioner.VolumeSpec) { s.Mode, s.Parameters["kind"] = provisioner.Block, "device" }, size: 16 * mib},
		"a directory, raw":       {change: func(s *provisioner.VolumeSpec) { s.Mode = provisioner.Block }, want: provisioner.ErrInvalid, words: "a volume of mode Block is a device"},
		"a device, mounted":      {change: func(s *provisioner.VolumeSpec) { s.Parameters["kind"] = "device" }, want: provisioner.ErrInvalid, words: "is a directory"},
		"another kind":           {change: func(s *provisioner.VolumeSpec) { s.Parameters["kind"] = "tape" }, want: provisioner.ErrInvalid, words: `"tape"`},
		"limits":                 {change: func(s *provisioner.VolumeSpec) { s.Mutable = map[string]string{"iops": "100"} }, want: provisioner.ErrInvalid, words: "limits do not apply"},
		"no limits":              {change: func(s *provisioner.VolumeSpec) { s.Mutable = map[string]string{"iops": "0"} }, size: 16 * mib},
		"where there are none":   {plain: true, change: func(*provisioner.VolumeSpec) {}, want: provisioner.ErrInvalid, words: `unknown parameter "kind"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := contained(t, &dataPath{})
			if tc.plain {
				s = openStorage(t, Options{})
			}
			want := directory("vol")
			tc.change(&want)
			v, err := s.Create(t.Context(), want)
			if !errors.Is(err, tc.want) || err != nil && !strings.Contains(err.Error(), tc.words) {
				t.Fatalf("error %v, want %v with %q", err, tc.want, tc.words)
			}
			if err != nil {
				return
			}
			if fi, err := os.Stat(s.imagePath("vol")); err != nil || fi.Size() != tc.size || v.CapacityBytes != tc.size {
				t.Errorf("made %+v, and %v, %v, want %d bytes", v, fi, err, tc.size)
			}
			if again, err := s.Create(t.Context(), want); err != nil || again.ID != v.ID {
				t.Errorf("made again: %+v, %v", again, err)
			}
			other := want
			other.Mode, other.Parameters = provisioner.Block, nil
			if want.Mode == provisioner.Block {
				other.Mode = provisioner.Filesystem
			}
			if _, err := s.Create(t.Context(), other); !errors.Is(err, provisioner.ErrExists) {
				t.Errorf("made as the other kind: %v", err)
			}
		})
	}
}

// A file system is reached where it is, never through the target: a node that has it
// open, by its mark, keeps it.
func TestFilesystemIsNotTheTargets(t *testing.T) {
	s, ctx := contained(t, &dataPath{}), t.Context()
	v := create(t, s, directory("vol"))
	a, err := s.Attach(ctx, provisioner.AttachSpec{VolumeID: v.ID, Node: "n"})
	want := map[string]string{records.ContextFilesystem: s.imagePath("vol"), records.ContextNode: "n"}
	if d := cmp.Diff(want, a.PublishContext); d != "" || err != nil {
		t.Fatal(err, d)
	}
	if d := cmp.Diff(map[string]string{records.ContextFilesystem: "vol.img"}, v.Context); d != "" {
		t.Error(d)
	}
	if _, err := (Grants{Dir: s.dir}).Grant("vol", "n"); !errors.Is(err, blocktarget.ErrDenied) {
		t.Errorf("the target lets a node in: %v", err)
	}
	if err := s.Fence(ctx, "vol", 1); !errors.Is(err, provisioner.ErrUnsupported) {
		t.Errorf("fenced: %v", err)
	}
	if err := s.Modify(ctx, "vol", map[string]string{ParameterIOPS: "100"}); !errors.Is(err, provisioner.ErrInvalid) {
		t.Errorf("limited: %v", err)
	}
	if err := records.Mark(s.dir, "vol", "n"); err != nil {
		t.Fatal(err)
	}
	if err := s.Detach(ctx, "vol", "n"); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Errorf("taken from a node that has it open: %v", err)
	}
	if err := errors.Join(records.Unmark(s.dir, "vol", "n"), s.Detach(ctx, "vol", "n"), s.Delete(ctx, "vol")); err != nil {
		t.Error(err)
	}
}

// A copy of a file system in use waits for its standstill, also where the file system
// below can share data: what was written is not in the image before.
func TestFilesystemStandsStillForACopy(t *testing.T) {
	d := &dataPath{}
	s, ctx := contained(t, d), t.Context()
	sharing(s)
	for _, name := range []string{"vol", "quiet"} {
		create(t, s, directory(name))
	}
	if _, err := s.Attach(ctx, provisioner.AttachSpec{VolumeID: "vol", Node: "n"}); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"vol", "quiet"} {
		copied := directory("copy-of-" + from)
		copied.CapacityBytes = 32 * mib
		v, err := s.CreateFrom(ctx, copied, provisioner.Source{VolumeID: from})
		if err != nil || v.CapacityBytes != 32*mib || v.Context[records.ContextFilesystem] == "" {
			t.Errorf("copy of %s: %+v, %v", from, v, err)
		}
	}
	if diff := cmp.Diff([][]string{{"vol"}}, d.paused); diff != "" {
		t.Error(diff)
	}
	if _, err := s.Platform().Snapshots.Create(ctx, provisioner.SnapshotSpec{Name: "snap", VolumeID: "vol"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Platform().Blocks.Allocated(ctx, "snap", 0, nil); !errors.Is(err, provisioner.ErrInvalid) {
		t.Errorf("blocks of a file system's snapshot: %v", err)
	}
	raw := spec("raw")
	if _, err := s.CreateFrom(ctx, raw, provisioner.Source{SnapshotID: "snap"}); !errors.Is(err, provisioner.ErrInvalid) {
		t.Errorf("a device made of a file system's snapshot: %v", err)
	}
}

func TestRoomForKinds(t *testing.T) {
	s := contained(t, &dataPath{})
	for kind, least := range map[string]int64{"": Granularity, records.KindDevice: Granularity, records.KindDirectory: hostdev.LeastBytes("ext4")} {
		parameters := map[string]string{}
		if kind != "" {
			parameters[records.ParameterKind] = kind
		}
		got, err := s.Platform().Room.Capacity(context.Background(), parameters, nil)
		if err != nil || got.Smallest != least {
			t.Errorf("room for kind %q: %+v, %v, want volumes from %d bytes", kind, got, err, least)
		}
	}
}
