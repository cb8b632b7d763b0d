package devices

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestRestart: another process of the same boot knows which device a volume had, so that one that is
// away is waited for as before, and forgets it when the volume is closed. Another boot had other devices.
func TestRestart(t *testing.T) {
	roots, put := hostTree(t)
	put("sys/bus/pci/devices/0000:30:00.0/driver/uevent", "")
	if err := os.RemoveAll(filepath.Join(roots.Sysfs, "bus/pci/devices/0000:30:00.0/driver")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../drivers/virtio-pci", filepath.Join(roots.Sysfs, "bus/pci/devices/0000:30:00.0/driver")); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "devices")
	start := func(boot string) *Host {
		h := New(&hostdev.Finder{Roots: roots}, 20*time.Millisecond)
		if err := h.Remember(dir, boot, testr.New(t)); err != nil {
			t.Fatal(err)
		}
		return h
	}
	shared := provisioner.OpenSpec{
		VolumeID: "v2", Mode: provisioner.Filesystem,
		PublishContext: map[string]string{"nv-pciDeviceAddress": "30:00.0", "nv-virtioFsTag": "tag"},
	}
	before := start("boot")
	want := map[string]provisioner.Device{}
	for _, spec := range []provisioner.OpenSpec{openSpec("3b:00.2", "1"), shared} {
		d, err := before.Open(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		want[spec.VolumeID] = d
	}
	after := start("boot")
	for volume, device := range want {
		if got, err := after.Lookup(t.Context(), volume); err != nil || got != device {
			t.Errorf("%s is %+v, %v, want %+v", volume, got, err, device)
		}
	}

	// Gone, while no process was there to see it.
	const size = "sys/bus/pci/drivers/nvme/0000:3b:00.2/nvme/nvme0/nvme0n1/size"
	put(size, "0\n")
	after = start("boot")
	if _, err := after.Lookup(t.Context(), "v1"); !errors.Is(err, hostdev.ErrAbsent) {
		t.Errorf("a device that was gone at the start: %v, want it to be absent, and not one that is not known", err)
	}
	put(size, "2048\n")
	if got, err := after.Lookup(t.Context(), "v1"); err != nil || got != want["v1"] {
		t.Errorf("once it is back: %+v, %v", got, err)
	}
	if got, err := after.Rescan(t.Context(), "v1", 1); err != nil || got != 2048*512 {
		t.Errorf("its size is %d, %v", got, err)
	}

	if err := after.Close(t.Context(), "v2", ""); err != nil {
		t.Error(err)
	}
	unknown(t, start("boot"), "v2")
	unknown(t, start("another"), "v1")
	unknown(t, start("boot"), "v1") // it went with the other boot
}

// unknown expects that a volume is not open, and not absent.
func unknown(t *testing.T, h *Host, volume string) {
	t.Helper()
	if _, err := h.Lookup(t.Context(), volume); !errors.Is(err, provisioner.ErrNotFound) || errors.Is(err, hostdev.ErrAbsent) {
		t.Errorf("%s: %v, want it not to be known", volume, err)
	}
}

// TestRecordsThatCannotBeKept: volumes come and go all the same; a restart knows less of them.
func TestRecordsThatCannotBeKept(t *testing.T) {
	roots, _ := hostTree(t)
	dir := filepath.Join(t.TempDir(), "devices")
	h := New(&hostdev.Finder{Roots: roots}, time.Minute)
	if err := h.Remember(dir, "boot", testr.New(t)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // no directory
		t.Fatal(err)
	}
	if _, err := h.Open(t.Context(), openSpec("3b:00.2", "1")); err != nil {
		t.Errorf("open: %v", err)
	}
	if _, err := h.Lookup(t.Context(), "v1"); err != nil {
		t.Errorf("lookup: %v", err)
	}
	if err := h.Close(t.Context(), "v1", ""); err != nil {
		t.Errorf("close: %v", err)
	}
	unknown(t, h, "v1")
	if err := New(&hostdev.Finder{Roots: roots}, time.Minute).Remember(dir, "boot", testr.New(t)); err == nil {
		t.Error("what cannot be read is taken for empty")
	}
}
