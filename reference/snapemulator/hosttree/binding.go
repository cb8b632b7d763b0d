package hosttree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"

	"github.com/moor-storage/moor/reference/snapemulator/model"
)

// IsBound reports whether the host's nvme driver has the function. At the
// start it has all of them.
func (t *Tree) IsBound(f *model.Function) bool { return !t.unbound[fullAddress(f)] }

// Watch calls changed when the host writes into the driver's files, until ctx
// ends.
func (t *Tree) Watch(ctx context.Context, changed func()) error {
	if t.sysfs == "" {
		<-ctx.Done()
		return nil
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the driver files below %s: %w", t.sysfs, err)
	}
	defer w.Close()
	for _, dir := range []string{t.driverDir(), filepath.Join(t.sysfs, "bus/pci")} {
		if err := w.Add(dir); err != nil {
			return fmt.Errorf("watch %s: %w", dir, err)
		}
	}
	changed() // what was written before the watch began
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev, open := <-w.Events:
			if !open {
				return nil
			}
			if ev.Has(fsnotify.Write) {
				changed()
			}
		case _, open := <-w.Errors:
			if !open {
				return nil
			}
			changed() // events were lost: look at the files themselves
		}
	}
}

// ReadBindings takes the addresses that the host wrote into unbind, bind and
// drivers_probe and reports whether a binding changed. The order of writes to
// different files is lost; a host unbinds before it binds.
func (t *Tree) ReadBindings() bool {
	if t.sysfs == "" {
		return false
	}
	changed := false
	for _, addr := range consume(filepath.Join(t.driverDir(), "unbind")) {
		if t.known(addr) && !t.unbound[addr] {
			t.unbound[addr], changed = true, true
		}
	}
	binds := append(consume(filepath.Join(t.driverDir(), "bind")), consume(filepath.Join(t.sysfs, "bus/pci/drivers_probe"))...)
	for _, addr := range binds {
		if t.unbound[addr] && t.allowed(addr) {
			delete(t.unbound, addr)
			changed = true
		}
	}
	return changed
}

// allowed reports whether the nvme driver may take the address: its
// driver_override is empty or names this driver.
func (t *Tree) allowed(addr string) bool {
	driver := firstLine(filepath.Join(t.sysfs, "bus/pci/devices", addr, "driver_override"))
	return driver == "" || driver == "nvme"
}

func (t *Tree) known(addr string) bool {
	if strings.ContainsRune(addr, '/') {
		return false
	}
	_, err := os.Stat(filepath.Join(t.sysfs, "bus/pci/devices", addr))
	return err == nil
}

// consume returns the words in the file and empties it.
func consume(path string) []string {
	raw, err := os.ReadFile(path)
	words := strings.Fields(string(raw))
	if err != nil || len(words) == 0 {
		return nil
	}
	// If the file cannot be emptied, the words are seen again: harmless.
	_ = os.Truncate(path, 0)
	return words
}
