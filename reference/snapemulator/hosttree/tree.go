// Package hosttree is the host's view of an emulator: a tree of sysfs files and
// device nodes, made of what the model says, and the bindings that the host
// writes into it.
package hosttree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moor-storage/moor/reference/snapemulator/model"
)

// marker is the file by which a root is known to be the emulator's own, so
// that it never cleans a directory of others, least of all /dev.
const marker = ".moor-snapemu"

// Tree is the host's view: sysfs below one root, device files below
// another. It holds no truth but the driver bindings that the host chose.
type Tree struct {
	sysfs, dev string
	// unbound holds the PCI addresses that the host took from the driver.
	unbound map[string]bool
	// plugged holds the hot-plugged functions that are in the tree.
	plugged map[*model.Function]bool
	// held are the functions whose view stays as an earlier emulator left it.
	held map[*model.Function]bool
	// drawn is how the tree shows each function: one that has not changed costs no system call.
	drawn map[*model.Function]view
}

// Hold leaves the view of these functions, and of no others, as it is.
func (t *Tree) Hold(held map[*model.Function]bool) {
	t.held = held
	for f := range held {
		delete(t.drawn, f)
	}
}

// fullAddress is the PCI address with its domain.
func fullAddress(f *model.Function) string { return "0000:" + f.BDF }

// ctrlIndex numbers the controllers of the host by function: nvme0 is the
// physical function, nvme1 the first virtual one. It never changes, so a name
// seen once means the same function for ever.
func ctrlIndex(f *model.Function) int { return f.Index }

// NodeName is the name of a namespace's device file.
func NodeName(f *model.Function, nsid uint64) string {
	return fmt.Sprintf("nvme%dn%d", ctrlIndex(f), nsid)
}

// New removes what an earlier emulator left, but for the functions that are held, and makes
// the functions.
func New(sysfs, dev string, m *model.Model, held map[*model.Function]bool) (*Tree, error) {
	t := &Tree{sysfs: sysfs, dev: dev, unbound: map[string]bool{}, plugged: map[*model.Function]bool{}, held: held, drawn: map[*model.Function]view{}}
	if err := errors.Join(claim(sysfs), claim(dev)); err != nil {
		return nil, err
	}
	if len(held) == 0 {
		if err := t.Clear(); err != nil {
			return nil, fmt.Errorf("remove what an earlier emulator left: %w", err)
		}
	}
	if sysfs == "" {
		return t, nil
	}
	for _, f := range m.AllFunctions() {
		if f.Hotplugged() {
			continue // render makes those that are in the host
		}
		if err := t.makeFunction(f); err != nil {
			return nil, fmt.Errorf("make function %s in %s: %w", f.BDF, sysfs, err)
		}
	}
	if err := t.makeDriver(); err != nil {
		return nil, fmt.Errorf("make the nvme driver in %s: %w", sysfs, err)
	}
	if err := t.Render(m, nil); err != nil {
		return nil, err
	}
	return t, nil
}

// claim marks root as the emulator's. A root that holds nvme devices or a PCI
// tree and no mark belongs to others.
func claim(root string) error {
	if root == "" {
		return nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return fmt.Errorf("make the root %s: %w", root, err)
	}
	mark := filepath.Join(root, marker)
	if _, err := os.Lstat(mark); err == nil {
		return nil
	}
	for _, pattern := range []string{"nvme*", "bus"} {
		if found, _ := filepath.Glob(filepath.Join(root, pattern)); len(found) > 0 {
			return fmt.Errorf("root %s holds %s and was not made by an emulator: choose another directory", root, filepath.Base(found[0]))
		}
	}
	return os.WriteFile(mark, nil, 0o644)
}

// Clear removes all that an emulator makes in its roots.
func (t *Tree) Clear() error {
	var errs error
	if t.sysfs != "" {
		for _, name := range []string{"bus", "block", "class", "fs", ".going"} {
			errs = errors.Join(errs, os.RemoveAll(filepath.Join(t.sysfs, name)))
		}
	}
	if t.dev != "" {
		nodes, _ := filepath.Glob(filepath.Join(t.dev, "nvme*"))
		for _, n := range nodes {
			errs = errors.Join(errs, os.Remove(n))
		}
	}
	return errs
}

func (t *Tree) pciDir(f *model.Function) string {
	return filepath.Join(t.sysfs, "bus/pci/devices", fullAddress(f))
}

func (t *Tree) driverDir() string { return filepath.Join(t.sysfs, "bus/pci/drivers/nvme") }

// driverOf is the name of the driver that takes the function.
func driverOf(f *model.Function) string {
	if f.VirtioFS {
		return "virtio-pci"
	}
	return "nvme"
}

// makeFunction writes a function's own files: what the kernel shows of a PCI
// device whether or not a driver has it.
func (t *Tree) makeFunction(f *model.Function) error {
	dir := t.pciDir(f)
	files := map[string]string{
		"vendor": "0x15b3\n", "device": "0x6001\n", "class": "0x010802\n",
		"subsystem_vendor": "0x15b3\n", "subsystem_device": "0x6001\n",
		"numa_node": "-1\n", "enable": "1\n",
		// The kernel shows "(null)" here; a plain file would keep the rest of
		// it behind a shorter word written over it.
		"driver_override": "",
	}
	if f.VirtioFS { // PCI ids of virtio 1.3, 4.1.2.1: 0x1040 and the device's 26
		files["vendor"], files["device"], files["class"] = "0x1af4\n", "0x105a\n", "0x018000\n"
	}
	links := map[string]string{}
	if f.VFIndex < 0 {
		files["vpd"] = vpd(f.VUID)
	}
	if f.VFIndex < 0 && len(f.VFs) > 0 {
		total := strconv.Itoa(len(f.VFs)) + "\n"
		files["sriov_totalvfs"], files["sriov_numvfs"], files["sriov_drivers_autoprobe"] = total, total, "1\n"
		for _, vf := range f.VFs {
			links[fmt.Sprintf("virtfn%d", vf.VFIndex)] = "../" + fullAddress(vf)
		}
	}
	if f.PF != nil {
		links["physfn"] = "../" + fullAddress(f.PF)
	}
	if err := writeAll(dir, files); err != nil {
		return err
	}
	for name, target := range links {
		if err := link(target, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// vpd is a PCI Vital Product Data image that carries the VUID under the
// keyword VU: PCI Local Bus 3.0, appendix I.
func vpd(vuid string) string {
	id := "BlueField NVMe SNAP Controller"
	fields := "VU" + string(rune(len(vuid))) + vuid
	fields += "RV\x01\x00"
	return "\x82" + string([]byte{byte(len(id)), 0}) + id +
		"\x90" + string([]byte{byte(len(fields)), 0}) + fields + "\x78"
}

func (t *Tree) makeDriver() error {
	if err := writeAll(t.driverDir(), map[string]string{"bind": "", "unbind": "", "new_id": ""}); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(t.sysfs, sharesDir), 0o755); err != nil {
		return err
	}
	return writeAll(filepath.Join(t.sysfs, "bus/pci"), map[string]string{"drivers_probe": "", "rescan": ""})
}

func writeAll(dir string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// link makes the symbolic link at path, or leaves it if it is there.
func link(target, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(target, path); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// firstLine returns the first line of a file, or nothing. What a shorter write
// left of an older one stands in the lines after it.
func firstLine(path string) string {
	raw, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(raw), "\n")
	return strings.TrimSpace(line)
}
