package devices

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestHostOfAFilesystem: it is open once its function has the driver of virtio,
// and lost when the function goes.
func TestHostOfAFilesystem(t *testing.T) {
	roots, put := hostTree(t)
	put("sys/bus/pci/devices/0000:30:00.0/vendor", "0x1af4\n")
	h := New(&hostdev.Finder{Roots: roots}, 50*time.Millisecond)
	spec := provisioner.OpenSpec{
		VolumeID: "v1", Mode: provisioner.Filesystem,
		PublishContext: map[string]string{"nv-pciDeviceAddress": "30:00.0", "nv-virtioFsTag": "tag"},
	}
	if _, err := h.Open(t.Context(), spec); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("open without a driver: %v", err)
	}
	link := filepath.Join(roots.Sysfs, "bus/pci/devices/0000:30:00.0/driver")
	if err := os.Symlink("../../drivers/virtio-pci", link); err != nil {
		t.Fatal(err)
	}
	want := provisioner.Device{VolumeID: "v1", Name: "tag", Tag: "tag", Mode: provisioner.Filesystem}
	for range 2 {
		got, err := h.Open(t.Context(), spec)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Fatal(d, err)
		}
	}
	if got, err := h.Lookup(t.Context(), "v1"); err != nil || got != want {
		t.Fatalf("lookup %+v, %v", got, err)
	}
	block := spec
	block.Mode = provisioner.Block
	if _, err := h.Open(t.Context(), block); !errors.Is(err, provisioner.ErrInvalid) {
		t.Fatalf("open as a block device: %v", err)
	}
	if err := os.RemoveAll(filepath.Dir(link)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Lookup(t.Context(), "v1"); !errors.Is(err, provisioner.ErrNotFound) || !errors.Is(err, hostdev.ErrAbsent) {
		t.Fatalf("lookup of what is gone: %v", err)
	}
}

// TestSharedFunctionIsBound: a function without a driver is given to virtio's.
func TestSharedFunctionIsBound(t *testing.T) {
	roots, put := hostTree(t)
	put("sys/bus/pci/devices/0000:30:00.0/driver_override", "")
	put("sys/bus/pci/drivers/virtio-pci/bind", "")
	h := New(&hostdev.Finder{Roots: roots, BindShared: true}, 50*time.Millisecond)
	_, err := h.Open(t.Context(), provisioner.OpenSpec{
		VolumeID: "v1", PublishContext: map[string]string{"nv-pciDeviceAddress": "30:00.0", "nv-virtioFsTag": "tag"},
	})
	if !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("got %v: a tree of files binds nothing", err)
	}
	for path, want := range map[string]string{"devices/0000:30:00.0/driver_override": "virtio-pci", "drivers/virtio-pci/bind": "0000:30:00.0"} {
		if got, err := os.ReadFile(filepath.Join(roots.Sysfs, "bus/pci", path)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v", path, got, err)
		}
	}
}
