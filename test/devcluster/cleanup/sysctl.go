package cleanup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moor-storage/moor/test/devcluster/layout"
)

// kernelSettings are what a kubelet changes for the whole machine
// (pkg/kubelet/cm, setupKernelTunables).
var kernelSettings = []string{"vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}

// settings is the record of the values before a bed.
type settings struct{ root, file string }

func realSettings() settings {
	return settings{root: "/proc/sys", file: filepath.Join(layout.DataDir, "sysctl.json")}
}

// SaveKernelSettings records the settings which kubelets change, once: a record
// that exists is older and right.
func SaveKernelSettings() error { return realSettings().save() }

func (s settings) save() error {
	if _, err := os.Stat(s.file); err == nil {
		return nil
	}
	text, err := json.Marshal(s.current())
	if err != nil {
		return fmt.Errorf("encode kernel settings: %w", err)
	}
	if err := os.WriteFile(s.file+".new", text, 0o644); err != nil {
		return fmt.Errorf("record kernel settings: %w", err)
	}
	if err := os.Rename(s.file+".new", s.file); err != nil {
		return fmt.Errorf("record kernel settings: %w", err)
	}
	return nil
}

func (s settings) current() map[string]string {
	values := map[string]string{}
	for _, name := range kernelSettings {
		if text, err := os.ReadFile(filepath.Join(s.root, name)); err == nil {
			values[name] = strings.TrimSpace(string(text))
		}
	}
	return values
}

// changed returns the recorded values that differ from those in force.
func (s settings) changed() (map[string]string, error) {
	text, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of kernel settings: %w", err)
	}
	saved := map[string]string{}
	if err := json.Unmarshal(text, &saved); err != nil {
		return nil, fmt.Errorf("read the record of kernel settings %s: %w", s.file, err)
	}
	now := s.current()
	for name, value := range saved {
		if now[name] == value {
			delete(saved, name)
		}
	}
	return saved, nil
}

func (s settings) restore() []error {
	values, err := s.changed()
	if err != nil {
		return []error{err}
	}
	var errs []error
	for name, value := range values {
		if err := os.WriteFile(filepath.Join(s.root, name), []byte(value), 0); err != nil {
			errs = append(errs, fmt.Errorf("restore kernel setting %s to %s: %w", name, value, err))
		}
	}
	return errs
}
