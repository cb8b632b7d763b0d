// Package cleanup removes everything that a test bed made, also after all its
// processes were killed at once, and lists what is left. It touches only what
// it can prove to be the bed's: by cgroup, by recorded process identity, by
// path and by name.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moor-storage/moor/test/devcluster/cgroup"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/procs"
	"github.com/moor-storage/moor/test/devcluster/record"
)

const (
	// patience bounds the removal of one kind of thing.
	patience = 60 * time.Second
	// again is how soon a removal is tried again: the kernel lets go of
	// namespaces, loop devices and cgroups a little after the last process.
	again = 50 * time.Millisecond
)

// Clean removes everything. It is idempotent; the error lists what resisted.
func Clean(ctx context.Context) error {
	errs := []error{
		untilDone(ctx, killAll),
		untilDone(ctx, removeMountsAndLoops),
		untilDone(ctx, removeRootLink),
		untilDone(ctx, func() error { return cgroup.Remove("") }),
	}
	errs = append(errs, realSettings().restore()...)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove an earlier bed: %w", err)
	}
	if err := removeFiles(); err != nil {
		return fmt.Errorf("remove an earlier bed: %w", err)
	}
	return nil
}

// untilDone repeats a step until it has nothing more to complain about.
func untilDone(ctx context.Context, step func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(again)
	defer ticker.Stop()
	for {
		err := step()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-ticker.C:
		}
	}
}

// Processes lists the processes of the bed: those in its cgroups, those on
// record, and those in a network namespace of a machine that still runs.
func Processes() ([]int, error) {
	pids, err := cgroup.Members("")
	if err != nil {
		return nil, err
	}
	identities, namespaces, err := recorded()
	if err != nil {
		return nil, err
	}
	for _, id := range identities {
		pids = append(pids, id.PID)
	}
	inside, err := membersOf(namespaces)
	if err != nil {
		return nil, err
	}
	pids = append(pids, inside...)
	slices.Sort(pids)
	return slices.DeleteFunc(slices.Compact(pids), func(pid int) bool {
		stat, err := procs.ReadStat(pid)
		return pid == os.Getpid() || err != nil || stat.State == 'Z'
	}), nil
}

// recorded lists living processes on record and the network namespaces of
// living machines. Namespace numbers are reused, so one is only believed while
// its machine's first process lives.
func recorded() ([]procs.Identity, map[string]bool, error) {
	machines, err := record.Machines()
	if err != nil {
		return nil, nil, err
	}
	processes, err := record.Processes()
	if err != nil {
		return nil, nil, err
	}
	var living []procs.Identity
	namespaces := map[string]bool{}
	own, _ := os.Readlink("/proc/self/ns/net")
	for _, m := range machines {
		if !m.Identity.Alive() {
			continue
		}
		living = append(living, m.Identity)
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", m.Identity.PID)); err == nil && ns != own {
			namespaces[ns] = true
		}
	}
	for _, p := range processes {
		for _, id := range []procs.Identity{p.Identity, p.Wrapper} {
			if id.Alive() {
				living = append(living, id)
			}
		}
	}
	return living, namespaces, nil
}

func membersOf(namespaces map[string]bool) ([]int, error) {
	if len(namespaces) == 0 {
		return nil, nil
	}
	all, err := procs.All()
	if err != nil {
		return nil, err
	}
	var members []int
	for _, pid := range all {
		if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && namespaces[ns] {
			members = append(members, pid)
		}
	}
	return members, nil
}

func killAll() error {
	pids, err := Processes()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		id, err := procs.Identify(pid)
		if err != nil {
			continue
		}
		if err := id.Signal(syscall.SIGKILL); err != nil {
			return err
		}
	}
	if len(pids) > 0 {
		return fmt.Errorf("processes %v do not end", pids)
	}
	return nil
}

func removeMountsAndLoops() error {
	points, err := mounts()
	if err != nil {
		return err
	}
	errs := unmount(points)
	bound, err := ourLoops()
	if err != nil {
		return err
	}
	for _, l := range bound {
		if err := detach(l); err != nil {
			errs = append(errs, err)
		} else {
			errs = append(errs, fmt.Errorf("loop device %s is still bound to %s", l.Device, l.File))
		}
	}
	return errors.Join(errs...)
}

func rootLinkExists() bool {
	_, err := os.Lstat(filepath.Join("/sys/class/net", layout.RootLink))
	return err == nil
}

func removeRootLink() error {
	if !rootLinkExists() {
		return nil
	}
	out, err := exec.Command("ip", "link", "del", layout.RootLink).CombinedOutput()
	if err != nil && rootLinkExists() {
		return fmt.Errorf("remove network device %s: %w: %s", layout.RootLink, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// removeFiles removes the directories, never through a mount that is still
// there.
func removeFiles() error {
	points, err := mounts()
	if err != nil {
		return err
	}
	if len(points) > 0 {
		return fmt.Errorf("remove the bed's directories: still mounted: %v", points)
	}
	if err := removeMountpoints(); err != nil {
		return err
	}
	for _, dir := range []string{layout.StateDir, layout.DataDir} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
	}
	return nil
}

// Leftovers lists what a bed left behind, or has in use, as text.
func Leftovers() ([]string, error) {
	var left []string
	pids, err := Processes()
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		left = append(left, fmt.Sprintf("process %d (%s)", pid, strings.TrimSpace(string(name))))
	}
	points, err := mounts()
	if err != nil {
		return nil, err
	}
	for _, p := range points {
		left = append(left, "mount "+p)
	}
	bound, err := ourLoops()
	if err != nil {
		return nil, err
	}
	for _, l := range bound {
		left = append(left, fmt.Sprintf("loop device %s on %s", l.Device, l.File))
	}
	rest, err := otherLeftovers()
	return append(left, rest...), err
}

func otherLeftovers() ([]string, error) {
	var left []string
	if rootLinkExists() {
		left = append(left, "network device "+layout.RootLink)
	}
	dirs, err := cgroup.Dirs()
	if err != nil {
		return nil, err
	}
	for _, d := range dirs {
		left = append(left, "cgroup "+d)
	}
	changed, err := realSettings().changed()
	if err != nil {
		return nil, err
	}
	for name, before := range changed {
		left = append(left, fmt.Sprintf("kernel setting %s, which was %s", name, before))
	}
	for _, dir := range []string{layout.StateDir, layout.DataDir} {
		if _, err := os.Lstat(dir); err == nil {
			left = append(left, "directory "+dir)
		}
	}
	return left, nil
}
