package devices

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// TestHostWithSeveralDomains: two cards have functions at the address of which the DPU
// tells. The volume's is opened, and when it is gone the other card's is not taken for it,
// also after a restart of the plugin.
func TestHostWithSeveralDomains(t *testing.T) {
	roots, put := hostTree(t)
	vpd := func(vuid string) string { return "\x90\x06\x00VU\x03" + vuid + "\x78" }
	const other = "sys/bus/pci/drivers/nvme/0004:3b:00.2/nvme/nvme4/nvme4n1/"
	put("sys/bus/pci/devices/0000:3b:00.2/vpd", vpd("MTB"))
	put("sys/bus/pci/devices/0004:3b:00.2/vpd", vpd("MTA"))
	put(other+"nsid", "1\n")
	put(other+"size", "2048\n")
	put("dev/nvme4n1", "")
	h := New(&hostdev.Finder{Roots: roots}, 20*time.Millisecond)
	spec := withVUID(openSpec("3b:00.2", "1"), "MTA")
	want := provisioner.Device{VolumeID: "v1", Name: "nvme4n1", Path: filepath.Join(roots.Dev, "nvme4n1"), Mode: provisioner.Block}
	if got, err := h.Open(t.Context(), spec); err != nil || got != want {
		t.Fatalf("open: %+v, %v", got, err)
	}
	if got, err := h.Lookup(t.Context(), "v1"); err != nil || got != want {
		t.Fatalf("lookup: %+v, %v", got, err)
	}
	if size, err := h.Rescan(t.Context(), "v1", 1); err != nil || size != 1<<20 {
		t.Fatalf("size: %d, %v", size, err)
	}
	for _, gone := range []string{"bus/pci/devices/0004:3b:00.2", "bus/pci/drivers/nvme/0004:3b:00.2"} {
		if err := os.RemoveAll(filepath.Join(roots.Sysfs, gone)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := h.Lookup(t.Context(), "v1"); !errors.Is(err, provisioner.ErrNotFound) {
		t.Errorf("lookup of what is gone: %+v, %v", got, err)
	}
	if got, err := New(&hostdev.Finder{Roots: roots}, 20*time.Millisecond).Open(t.Context(), spec); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Errorf("open of what is gone: %+v, %v", got, err)
	}
}
