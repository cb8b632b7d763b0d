// Package record keeps, in files of the state directory, which machines and
// processes a bed has, so that any later command knows them. Each has a file of
// its own, replaced atomically, hence no lock is needed.
package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/procs"
)

// Process is a program that the bed runs in one of its machines.
type Process struct {
	// Name is unique in the bed and names the log.
	Name string `json:"name"`
	// Machine is "hub", "host-1", "dpu-1" and so on.
	Machine string `json:"machine"`
	// Argv is the program, found in PATH or absolute, and its arguments.
	Argv []string `json:"argv"`
	// Env is added to a minimal environment of PATH and HOME.
	Env []string `json:"env,omitempty"`
}

// Running is a Process that was started.
type Running struct {
	Process
	// Identity is the program itself, Wrapper the nsenter that waits for it.
	Identity procs.Identity `json:"identity"`
	Wrapper  procs.Identity `json:"wrapper"`
	Started  time.Time      `json:"started"`
}

// Machine is a machine of namespaces.
type Machine struct {
	Name string `json:"name"`
	// Identity is process 1 of the machine, as this machine numbers it.
	Identity procs.Identity `json:"identity"`
	IP       string         `json:"ip"`
	Booted   time.Time      `json:"booted"`
}

const (
	processes = "processes"
	machines  = "machines"
)

// SaveProcess records a process under its name.
func SaveProcess(p Running) error { return Save(filepath.Join(processes, p.Name), p) }

// SaveMachine records a machine under its name.
func SaveMachine(m Machine) error { return Save(filepath.Join(machines, m.Name), m) }

// RemoveProcess forgets a process; one that is not on record is no error.
func RemoveProcess(name string) error {
	err := os.Remove(filepath.Join(layout.StateDir, processes, name+".json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of process %s: %w", name, err)
	}
	return nil
}

// LoadProcess reads the record of a process. The error wraps fs.ErrNotExist
// when none of that name was ever started.
func LoadProcess(name string) (Running, error) {
	return Load[Running](filepath.Join(processes, name))
}

// LoadMachine reads the record of a machine. The error wraps fs.ErrNotExist
// when the bed has none of that name.
func LoadMachine(name string) (Machine, error) {
	return Load[Machine](filepath.Join(machines, name))
}

// Processes lists all records in the order of their first start.
func Processes() ([]Running, error) {
	all, err := list[Running](processes)
	slices.SortFunc(all, func(a, b Running) int { return a.Started.Compare(b.Started) })
	return all, err
}

// Machines lists all records by name.
func Machines() ([]Machine, error) {
	all, err := list[Machine](machines)
	slices.SortFunc(all, func(a, b Machine) int { return cmp.Compare(a.Name, b.Name) })
	return all, err
}

// Save writes a record, replacing an older one in a single step.
func Save(name string, value any) error {
	path := filepath.Join(layout.StateDir, name+".json")
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode record %s: %w", name, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the directory of record %s: %w", name, err)
	}
	temp := fmt.Sprintf("%s.%d.new", path, os.Getpid())
	if err := os.WriteFile(temp, text, 0o644); err != nil {
		return fmt.Errorf("write record %s: %w", name, err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("write record %s: %w", name, err)
	}
	return nil
}

// Load reads a record that Save wrote.
func Load[T any](name string) (T, error) {
	var value T
	text, err := os.ReadFile(filepath.Join(layout.StateDir, name+".json"))
	if err != nil {
		return value, fmt.Errorf("read record %s: %w", name, err)
	}
	if err := json.Unmarshal(text, &value); err != nil {
		return value, fmt.Errorf("read record %s: %w", name, err)
	}
	return value, nil
}

// list skips what cannot be read: a record half written by a process that was
// killed has its final name never.
func list[T any](dir string) ([]T, error) {
	entries, err := os.ReadDir(filepath.Join(layout.StateDir, dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list records in %s: %w", dir, err)
	}
	var all []T
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		if value, err := Load[T](filepath.Join(dir, name)); err == nil {
			all = append(all, value)
		}
	}
	return all, nil
}
