package devices

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/reference/localvendor"
	"github.com/moor-storage/moor/reference/localvendor/files"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// sharedSpec asks for a directory.
func sharedSpec(name string) provisioner.VolumeSpec {
	out := imageSpec(name)
	out.Mode, out.AccessModes = provisioner.Filesystem, []provisioner.AccessMode{provisioner.ReadWriteMany}
	return out
}

// attachedDirectory makes a directory and attaches it to a node.
func attachedDirectory(t *testing.T, s vendor, name, node string) provisioner.OpenSpec {
	t.Helper()
	v := makeVolume(t, s, sharedSpec(name))
	a, err := s.Attach(t.Context(), provisioner.AttachSpec{VolumeID: v.ID, Node: node})
	if err != nil {
		t.Fatal(err)
	}
	return provisioner.OpenSpec{
		VolumeID: "claim-" + name, Mode: provisioner.Filesystem, AccessModes: v.AccessModes,
		PublishContext: a.PublishContext, VolumeContext: v.Context,
	}
}

func TestDirectoriesKeepTheHostContract(t *testing.T) {
	provisionertest.TestHost(t, func(t *testing.T) provisionertest.HostUnderTest {
		s := openVendor(t, localvendor.Options{})
		return provisionertest.HostUnderTest{
			Host: NewHost(newFakeSNAP(), s.dir, t.TempDir()),
			Prepare: func(t *testing.T, name string) provisioner.OpenSpec {
				return attachedDirectory(t, s, name, "dpu-1")
			},
		}
	})
}

// TestDirectoryLife: two nodes have it at once, each has to close it before it is
// taken from that node, and nothing is left of it in the end.
func TestDirectoryLife(t *testing.T) {
	s := openVendor(t, localvendor.Options{})
	first := attachedDirectory(t, s, "vol", "dpu-1")
	second := attachedDirectory(t, s, "vol", "dpu-2")
	snap := newFakeSNAP()
	one, two := NewHost(snap, s.dir, t.TempDir()), NewHost(newFakeSNAP(), s.dir, t.TempDir())
	for h, o := range map[*Host]provisioner.OpenSpec{one: first, two: second} {
		d, err := h.Open(t.Context(), o)
		if err != nil || d.Mode != provisioner.Filesystem || len(d.Name) != 16 {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if root := snap.fsdevs[snaprpc.FSDevName("claim-vol")]; root != s.path("vol.dir") {
		t.Fatalf("the device shows %q", root)
	}
	if err := s.Delete(t.Context(), "vol"); !errors.Is(err, provisioner.ErrInUse) {
		t.Fatalf("deleted while it is attached: %v", err)
	}
	if err := s.Detach(t.Context(), "vol", "dpu-1"); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("taken from a node that has it open: %v", err)
	}
	if err := one.Close(t.Context(), first.VolumeID, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Open(t.Context(), first); !errors.Is(err, provisioner.ErrPrecondition) {
		t.Fatalf("opened while it is being taken away: %v", err)
	}
	if err := s.Detach(t.Context(), "vol", "dpu-1"); err != nil {
		t.Fatal(err)
	}
	if err := two.Close(t.Context(), second.VolumeID, snaprpc.FSDevName("claim-vol")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Detach(t.Context(), "vol", ""), s.Delete(t.Context(), "vol")); err != nil {
		t.Fatal(err)
	}
	wantOnlyFiles(t, s.dir, ".lock")
	wantOnlyFiles(t, one.stateDir)
}

// TestDirectoryAfterACrash: wherever the plugin ended, what it left is listed,
// keeps the volume from being taken away, and goes with a close.
func TestDirectoryAfterACrash(t *testing.T) {
	for name, left := range map[string]func(h *Host, snap *fakeSNAP, o opened) error{
		"before the mark": func(h *Host, _ *fakeSNAP, o opened) error {
			return files.Save(h.openedPath(snaprpc.FSDevName(o.VolumeID)), "device", o)
		},
		"before the device": func(h *Host, _ *fakeSNAP, o opened) error { return h.begin(o, snaprpc.FSDevName(o.VolumeID)) },
		"after the device, and SNAP restarted": func(h *Host, snap *fakeSNAP, o opened) error {
			clear(snap.fsdevs)
			return h.begin(o, snaprpc.FSDevName(o.VolumeID))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, snap, state := openVendor(t, localvendor.Options{}), newFakeSNAP(), t.TempDir()
			spec := attachedDirectory(t, s, "vol", "dpu-1")
			o, err := directoryOf(spec)
			if err != nil {
				t.Fatal(err)
			}
			if err := left(NewHost(snap, s.dir, state), snap, o); err != nil {
				t.Fatal(err)
			}
			h := NewHost(snap, s.dir, state)
			all, err := h.List(t.Context())
			if diff := cmp.Diff([]provisioner.Device{fsDevice("claim-vol", snaprpc.FSDevName("claim-vol"))}, all); diff != "" || err != nil {
				t.Fatal(diff, err)
			}
			if _, err := h.Lookup(t.Context(), "claim-vol"); !errors.Is(err, provisioner.ErrNotFound) {
				t.Fatalf("there is no device, and yet: %v", err)
			}
			if err := h.Close(t.Context(), "claim-vol", all[0].Name); err != nil {
				t.Fatal(err)
			}
			if err := s.Detach(t.Context(), "vol", "dpu-1"); err != nil {
				t.Fatal(err)
			}
			wantOnlyFiles(t, state)
		})
	}
}

func TestDirectoryRefusals(t *testing.T) {
	s := openVendor(t, localvendor.Options{})
	attachedDirectory(t, s, "vol", "dpu-1")
	thick, copied := sharedSpec("thick"), sharedSpec("copy")
	thick.Parameters = map[string]string{records.ParameterProvisioning: records.Thick}
	p := s.Platform()
	for name, tc := range map[string]struct {
		act  func() error
		want error
	}{
		"thick": {func() error { _, err := s.Create(t.Context(), thick); return err }, provisioner.ErrInvalid},
		"a copy": {func() error {
			_, err := s.CreateFrom(t.Context(), copied, provisioner.Source{VolumeID: "vol"})
			return err
		}, provisioner.ErrUnsupported},
		"snapshot": {func() error {
			_, err := p.Snapshots.Create(t.Context(), provisioner.SnapshotSpec{Name: "s", VolumeID: "vol"})
			return err
		}, provisioner.ErrUnsupported},
		"another mode": {func() error { _, err := s.Create(t.Context(), imageSpec("vol")); return err }, provisioner.ErrExists},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.act(); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
		})
	}
	if size, err := s.Expand(t.Context(), "vol", 64*kitMiB, 0); err != nil || size != 64*kitMiB {
		t.Fatalf("a directory has no end, and yet: %d, %v", size, err)
	}
	h, err := p.Health.Get(t.Context(), "vol")
	if err != nil || len(h.Problems) != 0 {
		t.Fatalf("%+v, %v", h, err)
	}
	if err := os.Remove(s.path("vol.dir")); err != nil {
		t.Fatal(err)
	}
	if h, err = p.Health.Get(t.Context(), "vol"); err != nil || len(h.Problems) != 1 {
		t.Fatalf("of a directory that is gone: %+v, %v", h, err)
	}
}

// TestDirectoryOutside: no publish context leads out of the target directory, and
// a device of that name over another place is not taken for the volume's.
func TestDirectoryOutside(t *testing.T) {
	s, snap := openVendor(t, localvendor.Options{}), newFakeSNAP()
	h := NewHost(snap, s.dir, t.TempDir())
	good := attachedDirectory(t, s, "vol", "dpu-1")
	for name, directory := range map[string]string{"none": "", "another name": "/etc", "another volume": "/x/other.dir"} {
		t.Run(name, func(t *testing.T) {
			o := good
			o.PublishContext = map[string]string{records.ContextDirectory: directory, records.ContextNode: "dpu-1"}
			if _, err := h.Open(t.Context(), o); err == nil || len(snap.fsdevs) != 0 {
				t.Fatalf("opened %q: %v", directory, err)
			}
		})
	}
	snap.fail["list fsdevs"] = []error{&snaprpc.Error{Code: snaprpc.CodeMethodNotFound}, &snaprpc.Error{Code: snaprpc.CodeMethodNotFound}}
	if all, err := h.List(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("a service without virtio-fs: %+v, %v", all, err)
	}
	delete(snap.fail, "list fsdevs")
	snap.fsdevs[snaprpc.FSDevName(good.VolumeID)] = filepath.Join(s.dir, "other.dir")
	if _, err := h.Open(t.Context(), good); !errors.Is(err, provisioner.ErrExists) {
		t.Fatalf("took another's device: %v", err)
	}
}
