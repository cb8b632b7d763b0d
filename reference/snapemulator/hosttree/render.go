package hosttree

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/moor-storage/moor/reference/snapemulator/datapath"
	"github.com/moor-storage/moor/reference/snapemulator/model"
)

// Render brings the tree to the functions' bindings and the namespaces shown.
func (t *Tree) Render(m *model.Model, all []*Shown) error {
	errs := t.renderPlugged(m)
	for _, f := range m.AllFunctions() {
		if !f.OnHost() || (f.Hotplugged() && !t.plugged[f]) || t.held[f] {
			continue
		}
		var mine []*Shown
		for _, s := range all {
			if s.Function == f {
				mine = append(mine, s)
			}
		}
		want := t.viewOf(f, mine)
		if have, ok := t.drawn[f]; ok && have.equal(want) {
			continue
		}
		delete(t.drawn, f)
		if err := errors.Join(t.renderBinding(f), t.renderFunction(f, mine)); err != nil {
			errs = errors.Join(errs, fmt.Errorf("show function %s: %w", f.BDF, err))
			continue
		}
		t.drawn[f] = want
	}
	return errs
}

// view is all that the tree of a function is made of.
type view struct {
	bound bool
	// controller are its files; nil if none is shown.
	controller map[string]string
	namespaces map[string]namespaceView
}

type namespaceView struct {
	device datapath.Device
	size   string
}

func (t *Tree) viewOf(f *model.Function, mine []*Shown) view {
	v := view{bound: t.IsBound(f), namespaces: map[string]namespaceView{}}
	if f.Controller != nil && f.Controller.Resumed {
		v.controller = controllerFiles(f)
	}
	for _, s := range mine {
		v.namespaces[NodeName(f, s.Namespace.NSID)] = namespaceView{device: s.Device, size: sectorsOf(s.Namespace.Bdev)}
	}
	return v
}

func (v view) equal(o view) bool {
	return v.bound == o.bound && maps.Equal(v.controller, o.controller) && maps.Equal(v.namespaces, o.namespaces)
}

// renderPlugged makes the functions that were plugged in, and removes those
// that are out of the host again.
func (t *Tree) renderPlugged(m *model.Model) error {
	if t.sysfs == "" && t.dev == "" {
		return nil
	}
	var errs error
	there := map[*model.Function]bool{}
	for _, f := range m.Functions {
		if !f.Hotplugged() || !f.OnHost() {
			continue
		}
		there[f] = true
		if !t.plugged[f] && t.sysfs != "" {
			errs = errors.Join(errs, t.makeFunction(f))
		}
		t.plugged[f] = true
	}
	for f := range t.plugged {
		if !there[f] {
			errs = errors.Join(errs, t.unplug(f))
			delete(t.plugged, f)
		}
	}
	return errs
}

// unplug removes all of a function that has left the host.
func (t *Tree) unplug(f *model.Function) error {
	delete(t.drawn, f)
	errs := t.removeNodes(f, nil)
	if t.sysfs == "" {
		return errs
	}
	delete(t.unbound, fullAddress(f))
	return errors.Join(errs, t.removeExtra(t.ctrlDir(f), f, nil),
		removeFile(filepath.Join(t.sysfs, "bus/pci/drivers", driverOf(f), fullAddress(f))), t.vanish(t.pciDir(f)))
}

// renderBinding makes or removes the two links between device and driver.
func (t *Tree) renderBinding(f *model.Function) error {
	if t.sysfs == "" {
		return nil
	}
	fromDriver := filepath.Join(t.sysfs, "bus/pci/drivers", driverOf(f), fullAddress(f))
	fromDevice := filepath.Join(t.pciDir(f), "driver")
	if !t.IsBound(f) {
		return errors.Join(removeFile(fromDriver), removeFile(fromDevice))
	}
	return errors.Join(link("../../devices/"+fullAddress(f), fromDriver), link("../../drivers/"+driverOf(f), fromDevice))
}

// renderFunction shows the controller of f, if the host's driver has one to
// talk to, and the namespaces of it.
func (t *Tree) renderFunction(f *model.Function, mine []*Shown) error {
	want := map[string]*Shown{}
	for _, s := range mine {
		want[NodeName(f, s.Namespace.NSID)] = s
	}
	if t.sysfs != "" {
		if err := t.renderController(f, want); err != nil {
			return err
		}
	}
	return t.removeNodes(f, want)
}

func (t *Tree) ctrlDir(f *model.Function) string {
	return filepath.Join(t.pciDir(f), "nvme", fmt.Sprintf("nvme%d", ctrlIndex(f)))
}

func (t *Tree) renderController(f *model.Function, want map[string]*Shown) error {
	dir := t.ctrlDir(f)
	c := f.Controller
	if c == nil || !c.Resumed || !t.IsBound(f) {
		if err := t.removeExtra(dir, f, nil); err != nil {
			return err
		}
		return t.vanish(filepath.Join(t.pciDir(f), "nvme"))
	}
	if err := writeAll(dir, controllerFiles(f)); err != nil {
		return err
	}
	if err := t.removeExtra(dir, f, want); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if err := t.addNamespace(dir, name, want[name]); err != nil {
			return fmt.Errorf("show %s: %w", name, err)
		}
	}
	return nil
}

func controllerFiles(f *model.Function) map[string]string {
	s := f.Controller.Subsystem
	return map[string]string{
		"model": s.ModelNumber + "\n", "serial": s.SerialNumber + "\n", "subsysnqn": s.NQN + "\n",
		"state": "live\n", "transport": "pcie\n", "address": fullAddress(f) + "\n", "numa_node": "-1\n",
		"cntlid": fmt.Sprintf("%d\n", f.VHCAID),
	}
}

// addNamespace makes the device file and then the directory, whole: who sees
// the directory sees all its files, and finds the device.
func (t *Tree) addNamespace(dir, name string, s *Shown) error {
	final := filepath.Join(dir, name)
	b := s.Namespace.Bdev
	if _, err := os.Stat(final); err == nil {
		return replaceIfOther(filepath.Join(final, "size"), sectorsOf(b))
	}
	if t.dev != "" {
		if err := s.Device.Node(filepath.Join(t.dev, name)); err != nil {
			return fmt.Errorf("make the device file: %w", err)
		}
	}
	files := map[string]string{
		"nsid": fmt.Sprintf("%d\n", s.Namespace.NSID),
		"size": sectorsOf(b),
		"uuid": s.Namespace.UUID + "\n", "wwid": "uuid." + s.Namespace.UUID + "\n",
		"nguid": "00000000-0000-0000-0000-000000000000\n", "ro": "0\n",
	}
	if b.ReadOnly {
		files["ro"] = "1\n"
	}
	if n := s.Device.Number(); n != "" {
		files["dev"] = n + "\n"
	}
	whole := filepath.Join(t.sysfs, ".going", name)
	queue := filepath.Join(whole, "queue")
	if err := errors.Join(os.RemoveAll(whole), writeAll(whole, files),
		writeAll(queue, map[string]string{"logical_block_size": fmt.Sprintf("%d\n", b.BlockSize)})); err != nil {
		return err
	}
	if err := os.Rename(whole, final); err != nil {
		return err
	}
	return t.linkBlock(name, final)
}

// sectorsOf is a bdev's size as sysfs has it: in sectors of 512 bytes whatever
// the block size is.
func sectorsOf(b *model.Bdev) string { return fmt.Sprintf("%d\n", b.Size()/512) }

// replaceIfOther gives an attribute another content, in one step: who reads it
// never sees half of it.
func replaceIfOther(path, content string) error {
	if have, err := os.ReadFile(path); err == nil && string(have) == content {
		return nil
	}
	whole := path + ".new"
	if err := os.WriteFile(whole, []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(whole, path)
}

// linkBlock makes the entries of the device in block and class/block.
func (t *Tree) linkBlock(name, dir string) error {
	rel, err := filepath.Rel(t.sysfs, dir)
	if err != nil {
		return err
	}
	return errors.Join(link("../"+rel, filepath.Join(t.sysfs, "block", name)),
		link("../../"+rel, filepath.Join(t.sysfs, "class/block", name)))
}

// removeExtra takes away the namespace directories of f that are not wanted.
func (t *Tree) removeExtra(dir string, f *model.Function, want map[string]*Shown) error {
	found, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("nvme%dn*", ctrlIndex(f))))
	if err != nil {
		return err
	}
	for _, path := range found {
		name := filepath.Base(path)
		if want[name] != nil {
			continue
		}
		if err := errors.Join(removeFile(filepath.Join(t.sysfs, "block", name)),
			removeFile(filepath.Join(t.sysfs, "class/block", name)), t.vanish(path)); err != nil {
			return err
		}
	}
	return nil
}

// vanish removes a directory in one step, as the kernel does.
func (t *Tree) vanish(path string) error {
	going := filepath.Join(t.sysfs, ".going")
	if err := os.MkdirAll(going, 0o755); err != nil {
		return err
	}
	grave := filepath.Join(going, "removed")
	if err := os.RemoveAll(grave); err != nil {
		return err
	}
	if err := os.Rename(path, grave); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	return os.RemoveAll(grave)
}

// removeNodes removes the device files of f that are not wanted, and makes
// those that are where there is no sysfs to do it with.
func (t *Tree) removeNodes(f *model.Function, want map[string]*Shown) error {
	if t.dev == "" {
		return nil
	}
	found, err := filepath.Glob(filepath.Join(t.dev, fmt.Sprintf("nvme%dn*", ctrlIndex(f))))
	if err != nil {
		return err
	}
	for _, path := range found {
		if want[filepath.Base(path)] == nil {
			if err := removeFile(path); err != nil {
				return err
			}
		}
	}
	for name, s := range want {
		path := filepath.Join(t.dev, name)
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		if err := s.Device.Node(path); err != nil {
			return fmt.Errorf("make the device file %s: %w", path, err)
		}
	}
	return nil
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Shown is a namespace that the host can reach, and its device.
type Shown struct {
	model.Visible
	Device datapath.Device
}
