package ephemeral

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// host opens and closes as a test says.
type host struct {
	provisioner.Host
	open, close error
	log         []string
}

func (h *host) Open(_ context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	h.log = append(h.log, "open "+spec.VolumeID)
	return provisioner.Device{VolumeID: spec.VolumeID, Directory: "/" + spec.VolumeID}, h.open
}

func (h *host) Close(_ context.Context, id, _ string) error {
	h.log = append(h.log, "close "+id)
	return h.close
}

func volumes(t *testing.T) (Volumes, *host) {
	t.Helper()
	dir, h := t.TempDir(), &host{}
	s, err := localvendor.Open(localvendor.Options{TargetDir: dir, FSType: "ext4"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return Volumes{Storage: s, Host: h, TargetDir: dir, Node: "n"}, h
}

func spec(name string) provisioner.VolumeSpec {
	return provisioner.VolumeSpec{Name: name, CapacityBytes: 16 << 20, Mode: provisioner.Filesystem, AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce}}
}

// left are the images in the storage.
func left(t *testing.T, v Volumes) []string {
	t.Helper()
	entries, err := os.ReadDir(v.TargetDir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".img") {
			out = append(out, e.Name())
		}
	}
	return out
}

func TestLife(t *testing.T) {
	v, h := volumes(t)
	name := "csi-" + strings.Repeat("0", 64) // too long for an ID
	id := records.ID(name)
	for range 2 {
		d, err := v.Make(t.Context(), spec(name))
		if err != nil || d.Directory != "/"+id {
			t.Fatalf("made %+v, %v", d, err)
		}
	}
	if err := v.Storage.Delete(t.Context(), id); !errors.Is(err, provisioner.ErrInUse) {
		t.Errorf("deleted while the pod has it: %v", err)
	}
	for range 2 {
		if err := v.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"open " + id, "open " + id, "close " + id}, h.log); d != "" {
		t.Error(d)
	}
	if l := left(t, v); len(l) != 0 {
		t.Errorf("left: %v", l)
	}
}

// After a final error nothing is left; an uncertain one is repeated with what is there.
func TestMakeThatFails(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*host, *provisioner.VolumeSpec)
		want    error
		left    int
	}{
		"final":     {func(h *host, _ *provisioner.VolumeSpec) { h.open = provisioner.ErrPrecondition }, provisioner.ErrPrecondition, 0},
		"uncertain": {func(h *host, _ *provisioner.VolumeSpec) { h.open = provisioner.ErrUnavailable }, provisioner.ErrUnavailable, 1},
		"cannot remove": {func(h *host, _ *provisioner.VolumeSpec) {
			h.open, h.close = provisioner.ErrInvalid, errors.New("stuck")
		}, provisioner.ErrBusy, 1},
		"raw block":   {func(_ *host, s *provisioner.VolumeSpec) { s.Mode = provisioner.Block }, provisioner.ErrInvalid, 0},
		"a parameter": {func(_ *host, s *provisioner.VolumeSpec) { s.Parameters = map[string]string{"color": "blue"} }, provisioner.ErrInvalid, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v, h := volumes(t)
			s := spec("one")
			tc.prepare(h, &s)
			if _, err := v.Make(t.Context(), s); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
			if l := left(t, v); len(l) != tc.left {
				t.Errorf("left: %v, want %d", l, tc.left)
			}
		})
	}
}

// A volume of a claim is neither taken for an ephemeral one nor removed as one.
func TestVolumesOfClaimsAreLeftAlone(t *testing.T) {
	v, h := volumes(t)
	if _, err := v.Storage.Create(t.Context(), spec("claim")); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Make(t.Context(), spec("claim")); !errors.Is(err, provisioner.ErrExists) {
		t.Errorf("made of a claim's volume: %v", err)
	}
	if err := v.Remove(t.Context(), "claim"); err != nil || len(h.log) != 0 || len(left(t, v)) != 1 {
		t.Errorf("remove: %v, calls %v, images %v", err, h.log, left(t, v))
	}
	if err := os.WriteFile(filepath.Join(v.TargetDir, "damaged.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := v.Remove(t.Context(), "damaged"); err != nil {
		t.Errorf("remove what may be a claim's: %v", err)
	}
	if _, err := v.Make(t.Context(), spec("inline")); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Storage.Create(t.Context(), spec("inline")); !errors.Is(err, provisioner.ErrExists) {
		t.Errorf("a claim got an inline volume: %v", err)
	}
}
