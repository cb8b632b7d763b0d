package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/devcluster"
)

var modelName = regexp.MustCompile(`(?m)^model name\s*:\s*(.*)$`)

// newInvocation names a run of the program, by when it began.
func newInvocation() string { return time.Now().UTC().Format(time.RFC3339) }

// defaultName is the name of a machine like this one; a host's own name
// belongs in no public file.
func defaultName() string { return fmt.Sprintf("%dcpu", runtime.NumCPU()) }

// describeMachine says what the numbers are measured on.
func describeMachine() string {
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := modelName.FindSubmatch(text); m != nil {
			model = strings.TrimSpace(string(m[1]))
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%d x %s, Linux %s", runtime.NumCPU(), model, strings.TrimSpace(string(kernel)))
}

// settings are those of the bed that change what is measured on it.
func settings(o devcluster.Options) map[string]string {
	out := map[string]string{
		"attach-mode": strings.ToLower(string(o.AttachMode)), "hosts": strconv.Itoa(o.Nodes), "kubelets": o.KubeletProfile, "vfs": strconv.Itoa(o.VFs),
		"etcd": "without fsync", "sidecars": "with short retries",
	}
	if o.AsShipped() {
		out["etcd"], out["sidecars"] = "with fsync", "as shipped"
	}
	if o.Topology {
		out["topology"] = "on"
	}
	if o.RecordBelow {
		out["target"] = "recorded beneath"
	}
	return out
}

// fsyncs is how often fsyncMillis tries.
const fsyncs = 50

// fsyncMillis is how long a write of 4 KiB and its fdatasync take in a directory,
// the median of some: each write to etcd waits for one.
func fsyncMillis(dir string) (_ float64, err error) {
	f, err := os.CreateTemp(dir, "fsync-")
	if err != nil {
		return 0, fmt.Errorf("measure an fsync: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	took, block := make([]time.Duration, fsyncs), make([]byte, 4096)
	for i := range took {
		begin := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, fmt.Errorf("measure an fsync: %w", err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, fmt.Errorf("measure an fsync: %w", err)
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	return results.Round(millis(took[fsyncs/2])), nil
}
