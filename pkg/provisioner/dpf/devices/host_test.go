package devices

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
)

// hostTree shows namespace 1 of 0000:3b:00.2 as nvme0n1.
func hostTree(t *testing.T) (hostdev.Roots, func(path, content string)) {
	t.Helper()
	root := t.TempDir()
	put := func(path, content string) {
		full := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ns := "sys/bus/pci/drivers/nvme/0000:3b:00.2/nvme/nvme0/nvme0n1/"
	put(ns+"nsid", "1\n")
	put(ns+"size", "2048\n")
	put("dev/nvme0n1", "")
	return hostdev.Roots{Sysfs: filepath.Join(root, "sys"), Dev: filepath.Join(root, "dev")}, put
}

func openSpec(address, nsid string) provisioner.OpenSpec {
	return provisioner.OpenSpec{
		VolumeID: "v1", Mode: provisioner.Block,
		PublishContext: map[string]string{"nv-pciDeviceAddress": address, "nv-nvmeNsID": nsid},
	}
}

func TestHostOpenCloseLookupList(t *testing.T) {
	roots, put := hostTree(t)
	h := New(&hostdev.Finder{Roots: roots}, time.Minute)
	if _, err := h.Lookup(t.Context(), "v1"); !errors.Is(err, provisioner.ErrNotFound) {
		t.Errorf("lookup before open: %v", err)
	}
	want := provisioner.Device{VolumeID: "v1", Name: "nvme0n1", Path: filepath.Join(roots.Dev, "nvme0n1"), Mode: provisioner.Block}
	for range 2 {
		got, err := h.Open(t.Context(), openSpec("3B:00.2", "1"))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	}
	if got, err := h.Lookup(t.Context(), "v1"); err != nil || got != want {
		t.Errorf("lookup %+v, %v", got, err)
	}
	if list, err := h.List(t.Context()); err != nil || len(list) != 1 || list[0] != want {
		t.Errorf("list %+v, %v", list, err)
	}
	put("sys/bus/pci/drivers/nvme/0000:3b:00.2/nvme/nvme0/nvme0n1/size", "0\n")
	if _, err := h.Lookup(t.Context(), "v1"); !errors.Is(err, provisioner.ErrNotFound) || !errors.Is(err, hostdev.ErrAbsent) {
		t.Errorf("lookup of a device that is gone: %v", err)
	}
	if _, err := h.Lookup(t.Context(), "v2"); !errors.Is(err, provisioner.ErrNotFound) || errors.Is(err, hostdev.ErrAbsent) {
		t.Errorf("lookup of a device that was not opened: %v", err)
	}
	if list, err := h.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("list %+v, %v", list, err)
	}
	for range 2 {
		if err := h.Close(t.Context(), "v1", ""); err != nil {
			t.Error(err)
		}
	}
}

// TestHostContract runs the suite that every provisioner.Host passes.
func TestHostContract(t *testing.T) {
	provisionertest.TestHost(t, func(t *testing.T) provisionertest.HostUnderTest {
		roots, put := hostTree(t)
		function := 0
		return provisionertest.HostUnderTest{
			Host: New(&hostdev.Finder{Roots: roots}, time.Minute),
			Prepare: func(_ *testing.T, name string) provisioner.OpenSpec {
				function++
				disk := fmt.Sprintf("nvme%dn1", function)
				ns := fmt.Sprintf("sys/bus/pci/drivers/nvme/0000:5e:00.%d/nvme/nvme%d/%s/", function, function, disk)
				put(ns+"nsid", "1\n")
				put(ns+"size", "8\n")
				put("dev/"+disk, "")
				spec := openSpec(fmt.Sprintf("5e:00.%d", function), "1")
				spec.VolumeID = name
				return spec
			},
		}
	})
}

// TestHostGivesTheVolumeBackInSeconds: on a host that returns in the middle of
// its own failover the device is gone for good, and until Open says so the
// kubelet cannot let go of the volume.
func TestHostGivesTheVolumeBackInSeconds(t *testing.T) {
	roots, _ := hostTree(t)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := New(&hostdev.Finder{Roots: roots}, 0).Open(t.Context(), openSpec("3b:00.2", "7"))
		if took := time.Since(began); !provisioner.Uncertain(err) || took > 10*time.Second {
			t.Errorf("after %s: %v; within 10s the kubelet has to be free to try again, or to let go", took, err)
		}
	})
}

func withVUID(spec provisioner.OpenSpec, vuid string) provisioner.OpenSpec {
	spec.PublishContext["nv-funcVUID"] = vuid
	return spec
}

func TestHostOpenErrors(t *testing.T) {
	roots, put := hostTree(t)
	for _, domain := range []string{"0000", "0004"} {
		put("sys/bus/pci/devices/"+domain+":3b:00.2/vpd", "\x90\x06\x00VU\x03MT1\x78")
	}
	h := New(&hostdev.Finder{Roots: roots}, 20*time.Millisecond)
	for name, tc := range map[string]struct {
		spec  provisioner.OpenSpec
		want  error
		words string
	}{
		"no publish context":  {provisioner.OpenSpec{VolumeID: "v1"}, provisioner.ErrInvalid, "nv-pciDeviceAddress"},
		"nonsense address":    {openSpec("somewhere", "1"), provisioner.ErrInvalid, "somewhere"},
		"no address yet":      {openSpec("00:00.0", "1"), provisioner.ErrInvalid, "no address yet"},
		"no namespace":        {openSpec("3b:00.2", ""), provisioner.ErrInvalid, "nv-nvmeNsID"},
		"function not there":  {openSpec("5e:00.0", "1"), provisioner.ErrUnavailable, "0000:5e:00.0"},
		"namespace not there": {openSpec("3b:00.2", "7"), provisioner.ErrUnavailable, "namespace 7"},
		"two with its VUID":   {withVUID(openSpec("3b:00.2", "1"), "MT1"), provisioner.ErrPrecondition, "have the same VUID MT1"},
		"another's VUID":      {withVUID(openSpec("3b:00.2", "1"), "MT2"), provisioner.ErrUnavailable, "not the one with VUID MT2"},
		"another's, by virtio-fs": {
			withVUID(provisioner.OpenSpec{VolumeID: "v1", PublishContext: map[string]string{"nv-pciDeviceAddress": "3b:00.2", "nv-virtioFsTag": "tag"}}, "MT1"),
			provisioner.ErrPrecondition, "have the same VUID MT1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.Open(t.Context(), tc.spec)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.words) {
				t.Errorf("error %v, want %v with %q", err, tc.want, tc.words)
			}
		})
	}
}
