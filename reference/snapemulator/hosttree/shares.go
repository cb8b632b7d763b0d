package hosttree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/moor-storage/moor/reference/snapemulator/model"
)

// sharesDir is where the kernel tells of its virtio-fs devices
// (Documentation/ABI/testing/sysfs-fs-virtiofs).
const sharesDir = "fs/virtiofs"

func (t *Tree) shareDir(f *model.Function) string {
	return filepath.Join(t.sysfs, sharesDir, strconv.Itoa(f.Index))
}

// ShowShare tells the host of a file system that it can mount: its directory
// appears whole.
func (t *Tree) ShowShare(d *model.FSDevice) error {
	if t.sysfs == "" {
		return nil
	}
	device := fmt.Sprintf("virtio%d", d.Function.Index)
	whole := filepath.Join(t.sysfs, ".going", "share")
	if err := errors.Join(os.RemoveAll(whole), os.MkdirAll(filepath.Join(t.pciDir(d.Function), device), 0o755),
		writeAll(whole, map[string]string{"tag": d.Tag + "\n"}),
		link(filepath.Join("../../../bus/pci/devices", fullAddress(d.Function), device), filepath.Join(whole, "device"))); err != nil {
		return fmt.Errorf("tell the host of file system %s: %w", d.Tag, err)
	}
	return errors.Join(t.vanish(t.shareDir(d.Function)), os.Rename(whole, t.shareDir(d.Function)))
}

// HideShare takes away what was on the function.
func (t *Tree) HideShare(f *model.Function) error {
	if t.sysfs == "" {
		return nil
	}
	return t.vanish(t.shareDir(f))
}
