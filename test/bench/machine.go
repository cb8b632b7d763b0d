package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/devcluster"
)

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
	if o.TwoDPUClusters {
		out["dpu clusters"] = "2"
	}
	if o.RecordBelow {
		out["target"] = "recorded beneath"
	}
	if o.Epochs {
		out["storage"] = "knows epochs"
	}
	if o.KeepFunctions {
		out["functions"] = "outlive SNAP"
	}
	if o.LocalDriver {
		out["local driver"] = "on"
	}
	if o.DPUPods {
		out["dpus"] = "with kubelets"
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
