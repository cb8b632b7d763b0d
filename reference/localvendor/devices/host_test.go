package devices

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

func TestDeviceNames(t *testing.T) {
	long := strings.Repeat("x", 64)
	for _, id := range []string{"pvc-1", long, "a/b", "_x", strings.Repeat("y", 59), strings.Repeat("y", 60)} {
		name := records.Device(id)
		if len(name) > records.MaxDeviceName {
			t.Errorf("device %q of %q is too long", name, id)
		}
		got, hashed, ok := records.VolumeOf(name)
		if !ok || (!hashed && got != id) {
			t.Errorf("device %q of %q reads back as %q, hashed %t, ours %t", name, id, got, hashed, ok)
		}
	}
	for _, foreign := range []string{"nvme0n1", "aio_", "aio_a b", "malloc_aio_x"} {
		if id, _, ok := records.VolumeOf(foreign); ok {
			t.Errorf("bdev %q passes for volume %q", foreign, id)
		}
	}
}

func TestHostListsLongNames(t *testing.T) {
	s, snap, state := openVendor(t, localvendor.Options{}), newFakeSNAP(), t.TempDir()
	want := attachedImage(t, s, "one")
	want.VolumeID = strings.Repeat("long-", 40)
	d, err := NewHost(snap, s.dir, state).Open(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	snap.bdevs["aio_foreign"] = aioBdev("aio_foreign", "/elsewhere/foreign.img")
	snap.bdevs["nvme0n1"] = snaprpc.Bdev{Name: "nvme0n1"}
	h := NewHost(snap, s.dir, state) // as after a restart
	got, err := h.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]provisioner.Device{d}, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if err := h.Close(t.Context(), want.VolumeID, d.Name); err != nil {
		t.Fatal(err)
	}
	wantOnlyFiles(t, state)
	if err := h.Close(t.Context(), "foreign", ""); err != nil || len(snap.bdevs) != 2 {
		t.Fatalf("close of a foreign device: %v, left %d bdevs, want 2", err, len(snap.bdevs))
	}
}

func TestHostReadOnly(t *testing.T) {
	s := openVendor(t, localvendor.Options{})
	base := attachedImage(t, s, "one")
	cases := map[string]struct {
		change func(*provisioner.OpenSpec)
		want   bool
	}{
		"read write": {change: func(o *provisioner.OpenSpec) {
			o.AccessModes = []provisioner.AccessMode{provisioner.ReadWriteOnce, provisioner.ReadOnlyMany}
		}},
		"no modes":       {change: func(*provisioner.OpenSpec) {}},
		"read only many": {want: true, change: func(o *provisioner.OpenSpec) { o.AccessModes = []provisioner.AccessMode{provisioner.ReadOnlyMany} }},
		"attached so": {want: true, change: func(o *provisioner.OpenSpec) {
			o.PublishContext = map[string]string{records.ContextPath: base.PublishContext[records.ContextPath], records.ContextReadOnly: "true"}
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			snap, o := newFakeSNAP(), base
			c.change(&o)
			if _, err := NewHost(snap, s.dir, t.TempDir()).Open(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			want := []snaprpc.AIOSpec{{
				Name: "aio_claim-one", Filename: s.path("one.img"), BlockSize: 512, ReadOnly: c.want,
			}}
			if diff := cmp.Diff(want, snap.specs); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestHostRefuses(t *testing.T) {
	cases := map[string]struct {
		change func(*provisioner.OpenSpec, *fakeSNAP, vendor)
		err    error
	}{
		"a file system of an image": {err: provisioner.ErrInvalid, change: func(o *provisioner.OpenSpec, _ *fakeSNAP, _ vendor) {
			o.Mode = provisioner.Filesystem
		}},
		"no image named": {err: provisioner.ErrInvalid, change: func(o *provisioner.OpenSpec, _ *fakeSNAP, _ vendor) {
			o.PublishContext, o.VolumeContext = nil, nil
		}},
		"not an image": {err: provisioner.ErrInvalid, change: func(o *provisioner.OpenSpec, _ *fakeSNAP, _ vendor) {
			o.PublishContext = map[string]string{records.ContextPath: "/etc/shadow"}
		}},
		"an image outside": {err: provisioner.ErrPrecondition, change: func(o *provisioner.OpenSpec, _ *fakeSNAP, _ vendor) {
			o.PublishContext = map[string]string{records.ContextPath: "/other/dir/two.img"}
		}},
		"a device over another file": {err: provisioner.ErrExists, change: func(_ *provisioner.OpenSpec, f *fakeSNAP, s vendor) {
			f.bdevs["aio_claim-one"] = aioBdev("aio_claim-one", s.path("two.img"))
		}},
		"snap away": {err: provisioner.ErrUnavailable, change: func(_ *provisioner.OpenSpec, f *fakeSNAP, _ vendor) {
			f.fail["list"] = []error{snaprpc.ErrUnavailable}
		}},
		"snap away at create": {err: provisioner.ErrUnavailable, change: func(_ *provisioner.OpenSpec, f *fakeSNAP, _ vendor) {
			f.fail["create"] = []error{snaprpc.ErrUnavailable}
		}},
		"no memory": {err: provisioner.ErrExhausted, change: func(_ *provisioner.OpenSpec, f *fakeSNAP, _ vendor) {
			f.fail["create"] = []error{&snaprpc.Error{Code: snaprpc.CodeNoMemory, Message: "Cannot allocate memory"}}
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, snap := openVendor(t, localvendor.Options{}), newFakeSNAP()
			o := attachedImage(t, s, "one")
			c.change(&o, snap, s)
			_, err := NewHost(snap, s.dir, t.TempDir()).Open(t.Context(), o)
			if !errors.Is(err, c.err) {
				t.Fatalf("got %v, want %v", err, c.err)
			}
		})
	}
}

func TestHostCloseErrors(t *testing.T) {
	s, snap := openVendor(t, localvendor.Options{}), newFakeSNAP()
	h, o := NewHost(snap, s.dir, t.TempDir()), attachedImage(t, s, "one")
	d, err := h.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	snap.fail["delete"] = []error{
		&snaprpc.Error{Code: snaprpc.CodeBusy, Message: "Device or resource busy"}, snaprpc.ErrUnavailable,
	}
	if err := h.Close(t.Context(), o.VolumeID, d.Name); !errors.Is(err, provisioner.ErrInUse) {
		t.Fatalf("close of a claimed device: %v", err)
	}
	if err := h.Close(t.Context(), o.VolumeID, d.Name); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("close without an answer: %v", err)
	}
	if err := h.Close(t.Context(), o.VolumeID, d.Name); err != nil {
		t.Fatal(err)
	}
}
