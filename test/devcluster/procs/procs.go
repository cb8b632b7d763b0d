// Package procs names processes so that a reused process number is never
// mistaken for the process that had it before, and reads /proc for the rest of
// the test bed. It never signals what it cannot identify.
package procs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Identity is one process for all time: its number, when it started (clock
// ticks since boot, field 22 of /proc/PID/stat) and in which boot.
type Identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// Stat is what is needed of /proc/PID/stat.
type Stat struct {
	State  byte
	Parent int
	// CPU is the processor time that the process has used, in its own code and in the
	// kernel.
	CPU   time.Duration
	Start uint64
}

// tick is the unit of processor time in /proc (USER_HZ, 100 on every Linux that Go
// runs on).
const tick = time.Second / 100

// ParseStat reads the text of /proc/PID/stat. The command in it may contain
// blanks and brackets, so the fields are counted from the last bracket.
func ParseStat(text []byte) (Stat, error) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return Stat{}, fmt.Errorf("read a process stat %q: no command in brackets", text)
	}
	fields := strings.Fields(string(text[end+1:]))
	if len(fields) < 20 {
		return Stat{}, fmt.Errorf("read a process stat %q: %d fields after the command, want 20", text, len(fields))
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return Stat{}, fmt.Errorf("read the parent in a process stat: %w", err)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	system, systemErr := strconv.ParseInt(fields[12], 10, 64)
	if err := errors.Join(err, systemErr); err != nil {
		return Stat{}, fmt.Errorf("read the processor time in a process stat: %w", err)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return Stat{}, fmt.Errorf("read the start time in a process stat: %w", err)
	}
	return Stat{State: fields[0][0], Parent: parent, CPU: time.Duration(user+system) * tick, Start: start}, nil
}

// ReadStat reads the stat of a process. The error wraps os.ErrNotExist when
// there is none of that number.
func ReadStat(pid int) (Stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, syscall.ESRCH) {
		err = os.ErrNotExist
	}
	if err != nil {
		return Stat{}, fmt.Errorf("read the state of process %d: %w", pid, err)
	}
	return ParseStat(text)
}

var vmRSS = regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`)

// Resident is the resident memory of a process, in MB of 10^6 bytes.
func Resident(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	megabytes, err := parseResident(status)
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return megabytes, nil
}

// parseResident is VmRSS of the text of /proc/PID/status.
func parseResident(status []byte) (float64, error) {
	m := vmRSS.FindSubmatch(status)
	if m == nil {
		return 0, errors.New("its status has no VmRSS")
	}
	kib, err := strconv.ParseFloat(string(m[1]), 64)
	return kib * 1024 / 1e6, err
}

// BootID is the identity of the running kernel's boot, or "" where the kernel
// does not tell.
func BootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// Identify names the process that has the number now.
func Identify(pid int) (Identity, error) {
	stat, err := ReadStat(pid)
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, Start: stat.Start, Boot: BootID()}, nil
}

// Alive reports whether this very process runs. A zombie does not, unless a
// thread of it is still ending: until then it holds its files and locks.
func (i Identity) Alive() bool {
	if i.PID <= 0 || i.Boot != BootID() {
		return false
	}
	stat, err := ReadStat(i.PID)
	if err != nil || stat.Start != i.Start || stat.State == 'X' {
		return false
	}
	return stat.State != 'Z' || threads(i.PID) > 1
}

func threads(pid int) int {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0
	}
	return len(tasks)
}

// Signal sends a signal to this very process; it is not an error if it is gone.
// os.FindProcess holds the process by a descriptor, hence a number reused
// between the check and the signal does no harm.
func (i Identity) Signal(sig syscall.Signal) error {
	process, err := os.FindProcess(i.PID)
	if err != nil {
		return fmt.Errorf("find process %d: %w", i.PID, err)
	}
	defer func() { _ = process.Release() }()
	if !i.Alive() {
		return nil
	}
	if err := process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send signal %d to process %d: %w", sig, i.PID, err)
	}
	return nil
}

// All lists the numbers of all processes.
func All() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Children lists the direct children of a process.
func Children(parent int) ([]int, error) {
	// The short way needs CONFIG_PROC_CHILDREN. Each thread has a list of the
	// children that it started.
	if lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent)); err == nil && len(lists) > 0 {
		var children []int
		for _, list := range lists {
			text, err := os.ReadFile(list)
			if err == nil { // else the thread has just ended
				children = append(children, numbers(string(text))...)
			}
		}
		return children, nil
	}
	all, err := All()
	if err != nil {
		return nil, err
	}
	var children []int
	for _, pid := range all {
		if stat, err := ReadStat(pid); err == nil && stat.Parent == parent {
			children = append(children, pid)
		}
	}
	return children, nil
}

func numbers(text string) []int {
	var pids []int
	for _, field := range strings.Fields(text) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
