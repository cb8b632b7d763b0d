// Package cgroup gives every machine of the bed a cgroup of its own in every
// hierarchy, version 1, version 2 or both, and finds and removes them again.
// Membership in them is how the cleaner knows the bed's processes after a
// crash.
package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moor-storage/moor/test/devcluster/layout"
)

// leaf is the cgroup, below a machine's own, of the processes that are not in
// pods. Version 2 allows processes only in leaves.
const leaf = "sys"

// Hierarchy is one mounted cgroup hierarchy.
type Hierarchy struct {
	Mount       string
	Unified     bool
	Controllers []string
}

// Hierarchies lists the mounted hierarchies of this machine.
func Hierarchies() ([]Hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list cgroup hierarchies: %w", err)
	}
	defer f.Close()
	return Parse(f)
}

// Parse reads the hierarchies from the text of a mountinfo file. A hierarchy
// mounted twice is returned once.
func Parse(mountinfo io.Reader) ([]Hierarchy, error) {
	var found []Hierarchy
	seen := map[string]bool{}
	scanner := bufio.NewScanner(mountinfo)
	for scanner.Scan() {
		left, right, ok := strings.Cut(scanner.Text(), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 3 || !strings.HasPrefix(l[4], "/sys/fs/cgroup") {
			continue
		}
		if (r[0] != "cgroup" && r[0] != "cgroup2") || seen[l[2]] {
			continue
		}
		seen[l[2]] = true
		found = append(found, Hierarchy{Mount: l[4], Unified: r[0] == "cgroup2", Controllers: strings.Split(r[2], ",")})
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("read mounts for cgroup hierarchies: %w", err)
	}
	return found, nil
}

// Create makes the cgroups of a machine. It is idempotent.
func Create(machine string) error {
	hierarchies, err := Hierarchies()
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		if err := h.create(machine); err != nil {
			return fmt.Errorf("make the cgroup of machine %s in %s: %w", machine, h.Mount, err)
		}
	}
	return nil
}

func (h Hierarchy) create(machine string) error {
	dir := h.Mount
	for _, name := range []string{layout.CgroupParent, machine, leaf} {
		if h.Unified {
			delegate(dir)
		}
		child := filepath.Join(dir, name)
		if err := os.Mkdir(child, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if slices.Contains(h.Controllers, "cpuset") {
			if err := inheritCpuset(dir, child); err != nil {
				return err
			}
		}
		dir = child
	}
	return nil
}

// delegate hands every controller down. One that cannot be handed down, for
// example since a process sits in the parent, is left out: pods then run
// without that limit.
func delegate(dir string) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return
	}
	for _, c := range strings.Fields(string(text)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
	}
}

// inheritCpuset copies the processors and memory nodes of the parent: a version
// 1 cpuset starts empty and then takes no process.
func inheritCpuset(parent, child string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		text, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(child, name), text, 0); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(child, "cgroup.clone_children"), []byte("1"), 0)
}

// ProcsFiles lists the files into which a process number is written to make it
// part of the machine.
func ProcsFiles(machine string) ([]string, error) {
	hierarchies, err := Hierarchies()
	if err != nil {
		return nil, err
	}
	files := make([]string, 0, len(hierarchies))
	for _, h := range hierarchies {
		files = append(files, filepath.Join(h.Mount, layout.CgroupParent, machine, leaf, "cgroup.procs"))
	}
	return files, nil
}

// Dirs lists every cgroup of the bed that exists, children before parents.
func Dirs() ([]string, error) {
	hierarchies, err := Hierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, h := range hierarchies {
		_ = filepath.WalkDir(filepath.Join(h.Mount, layout.CgroupParent), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
	}
	slices.SortFunc(dirs, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return dirs, nil
}

// belongs reports whether a cgroup is a machine's; every one belongs to "".
func belongs(dir, machine string) bool {
	return machine == "" || strings.Contains(dir+"/", "/"+layout.CgroupParent+"/"+machine+"/")
}

// Members lists the processes in the bed's cgroups, or in those of one machine
// if a name is given.
func Members(machine string) ([]int, error) {
	dirs, err := Dirs()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, dir := range dirs {
		if !belongs(dir, machine) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // removed meanwhile
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// Remove removes every cgroup of the bed, or of one machine if a name is given.
// One that still has processes stays and is in the error; trying again is
// harmless.
func Remove(machine string) error {
	dirs, err := Dirs()
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		if !belongs(dir, machine) {
			continue
		}
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}
