package localvendor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/reference/localvendor/records"
	"github.com/moor-storage/moor/test/kit/needs"
)

const mib = 1 << 20

func openStorage(t *testing.T, o Options) *Storage {
	t.Helper()
	if o.TargetDir == "" {
		o.TargetDir = t.TempDir()
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func spec(name string) provisioner.VolumeSpec {
	return provisioner.VolumeSpec{
		Name: name, CapacityBytes: 4 * mib, Mode: provisioner.Block,
		AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce},
	}
}

func create(t *testing.T, s *Storage, v provisioner.VolumeSpec) provisioner.Volume {
	t.Helper()
	got, err := s.Create(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestKeepsTheContract(t *testing.T) {
	t.Run("Volumes", func(t *testing.T) {
		provisionertest.TestVolumes(t, func(t *testing.T) provisioner.Volumes { return openStorage(t, Options{}) })
	})
	t.Run("Attachments", func(t *testing.T) {
		provisionertest.TestAttachments(t, func(t *testing.T) (provisioner.Volumes, provisioner.Attachments) {
			s := openStorage(t, Options{})
			return s, s
		})
	})
}

func TestSize(t *testing.T) {
	cases := map[string]struct {
		want, limit, got int64
		err              error
	}{
		"exact":                   {want: 4 * mib, got: 4 * mib},
		"rounded up":              {want: 4*mib + 1, got: 5 * mib},
		"one byte":                {want: 1, got: mib},
		"none":                    {got: DefaultBytes},
		"none, with a limit":      {limit: 3*mib + 5, got: 3 * mib},
		"rounding breaks a limit": {want: 4*mib + 1, limit: 4*mib + 2, err: provisioner.ErrOutOfRange},
		"limit below the step":    {limit: 100, err: provisioner.ErrOutOfRange},
		"inverted":                {want: 2 * mib, limit: mib, err: provisioner.ErrInvalid},
		"negative":                {want: -1, err: provisioner.ErrInvalid},
		"too large":               {want: DefaultMaxBytes + 1, err: provisioner.ErrOutOfRange},
		"as large as can be":      {want: DefaultMaxBytes, got: DefaultMaxBytes},
		"overflow":                {want: 1<<63 - 1, err: provisioner.ErrOutOfRange},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := sizeOf(c.want, c.limit, DefaultMaxBytes)
			if got != c.got || !errors.Is(err, c.err) {
				t.Fatalf("got %d, %v; want %d, %v", got, err, c.got, c.err)
			}
		})
	}
}

func TestImageHasTheSizePromised(t *testing.T) {
	for _, how := range []string{records.Thin, records.Thick} {
		t.Run(how, func(t *testing.T) {
			s, want := openStorage(t, Options{}), spec("one")
			want.CapacityBytes, want.Parameters = 4*mib+1, map[string]string{records.ParameterProvisioning: how}
			v, err := s.Create(t.Context(), want)
			if errors.Is(err, provisioner.ErrUnsupported) {
				needs.Missing(t, "%v: let TMPDIR be on a file system with fallocate", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			fi, err := os.Stat(s.imagePath(v.ID))
			if err != nil {
				t.Fatal(err)
			}
			allocated := fi.Sys().(*syscall.Stat_t).Blocks * 512
			if fi.Size() != v.CapacityBytes || v.CapacityBytes != 5*mib {
				t.Fatalf("image of %d bytes for a volume of %d, want 5 MiB", fi.Size(), v.CapacityBytes)
			}
			if (how == records.Thick) != (allocated >= v.CapacityBytes) {
				t.Fatalf("%s image takes %d of %d bytes", how, allocated, fi.Size())
			}
		})
	}
}

func TestParametersAndRoom(t *testing.T) {
	cases := map[string]struct {
		params map[string]string
		size   int64
		err    error
		word   string
	}{
		"thin":              {params: map[string]string{"provisioning": "thin"}},
		"unknown":           {params: map[string]string{"color": "red"}, err: provisioner.ErrInvalid, word: `"color"`},
		"wrong value":       {params: map[string]string{"provisioning": "fat"}, err: provisioner.ErrInvalid, word: "thick"},
		"thick beyond room": {params: map[string]string{"provisioning": "thick"}, size: 1 << 59, err: provisioner.ErrExhausted, word: "room"},
		"thin beyond room":  {size: 1 << 59, err: provisioner.ErrExhausted, word: "room"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, want := openStorage(t, Options{MaxBytes: 1 << 60}), spec("one")
			want.Parameters = c.params
			if c.size > 0 {
				want.CapacityBytes = c.size
			}
			_, err := s.Create(t.Context(), want)
			if !errors.Is(err, c.err) || (err != nil && !strings.Contains(err.Error(), c.word)) {
				t.Fatalf("got %v, want %v with the word %s", err, c.err, c.word)
			}
			if err != nil {
				wantFiles(t, s.dir, ".lock")
			}
		})
	}
}

func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("files (-want +got):\n%s", diff)
	}
}

func TestSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	s := openStorage(t, Options{TargetDir: dir})
	v := create(t, s, spec("one"))
	if _, err := s.Attach(t.Context(), provisioner.AttachSpec{VolumeID: v.ID, Node: "a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{TargetDir: dir}); !errors.Is(err, provisioner.ErrInUse) {
		t.Fatalf("a second owner of the directory got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStorage(t, Options{TargetDir: dir})
	if got := create(t, s, spec("one")); !cmp.Equal(got, v) {
		t.Fatalf("got %+v, want %+v", got, v)
	}
	_, err := s.Attach(t.Context(), provisioner.AttachSpec{VolumeID: v.ID, Node: "b"})
	if !errors.Is(err, provisioner.ErrInUse) {
		t.Fatalf("attach elsewhere after a restart: %v", err)
	}
}

// TestInterrupted puts the directory in each state that a crash can leave, and
// expects a repeat of the call to finish.
func TestInterrupted(t *testing.T) {
	t.Run("create after the image", func(t *testing.T) {
		s := openStorage(t, Options{})
		if err := os.WriteFile(s.imagePath("one"), []byte("old data"), 0o600); err != nil {
			t.Fatal(err)
		}
		v := create(t, s, spec("one"))
		raw, err := os.ReadFile(s.imagePath(v.ID))
		if err != nil || len(raw) != 4*mib || slices.ContainsFunc(raw, func(b byte) bool { return b != 0 }) {
			t.Fatalf("the new volume is not empty or not whole: %d bytes, %v", len(raw), err)
		}
	})
	t.Run("delete after the record", func(t *testing.T) {
		s := openStorage(t, Options{})
		v := create(t, s, spec("one"))
		if err := os.Remove(s.recordPath(v.ID)); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), v.ID); err != nil {
			t.Fatal(err)
		}
		wantFiles(t, s.dir, ".lock")
	})
	t.Run("image lost", func(t *testing.T) {
		s := openStorage(t, Options{})
		v := create(t, s, spec("one"))
		if err := os.Remove(s.imagePath(v.ID)); err != nil {
			t.Fatal(err)
		}
		_, err := s.Attach(t.Context(), provisioner.AttachSpec{VolumeID: v.ID, Node: "a"})
		if !errors.Is(err, provisioner.ErrPrecondition) {
			t.Fatalf("attach without an image: %v", err)
		}
	})
	t.Run("record damaged", func(t *testing.T) {
		s := openStorage(t, Options{})
		v := create(t, s, spec("one"))
		if err := os.WriteFile(s.recordPath(v.ID), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		for verb, err := range map[string]error{
			"create": second(s.Create(t.Context(), spec("one"))),
			"get":    second(s.Get(t.Context(), v.ID)),
			"delete": s.Delete(t.Context(), v.ID),
			"detach": s.Detach(t.Context(), v.ID, ""),
		} {
			if !errors.Is(err, provisioner.ErrPrecondition) {
				t.Errorf("%s: got %v, want ErrPrecondition", verb, err)
			}
		}
		if _, err := os.Stat(s.imagePath(v.ID)); err != nil {
			t.Fatalf("the data is gone: %v", err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestNamesStayInTheDirectory(t *testing.T) {
	s := openStorage(t, Options{})
	outside := filepath.Join(filepath.Dir(s.dir), "victim.img")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	v := create(t, s, spec("../victim"))
	if err := s.Delete(t.Context(), "../victim"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Fatalf("a file outside was removed: %v", err)
	}
	wantFiles(t, s.dir, ".lock", v.ID+".img", v.ID+".json")
	if other := create(t, s, spec("..-victim")); other.ID == v.ID {
		t.Fatal("two names share an ID")
	}
}

func TestManyNodes(t *testing.T) {
	s := openStorage(t, Options{ManyNodes: true})
	v := create(t, s, spec("one"))
	for _, node := range []string{"a", "b", "a"} {
		if _, err := s.Attach(t.Context(), provisioner.AttachSpec{VolumeID: v.ID, Node: node}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Detach(t.Context(), v.ID, "a"); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), v.ID); !errors.Is(err, provisioner.ErrInUse) {
		t.Fatalf("delete while the second node has it: %v", err)
	}
}

func TestUnknownNode(t *testing.T) {
	s := openStorage(t, Options{NodeExists: func(n string) bool { return n == "a" }})
	v := create(t, s, spec("one"))
	_, err := s.Attach(t.Context(), provisioner.AttachSpec{VolumeID: v.ID, Node: "b"})
	if !errors.Is(err, provisioner.ErrNotFound) {
		t.Fatalf("got %v", err)
	}
}
