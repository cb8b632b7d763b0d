package devcluster

import (
	"fmt"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/moor-storage/moor/test/devcluster/layout"
)

const (
	// evictionPercent is how much of a file system the kubelets want free
	// (evictionHard in files/kubelet.yaml); with less they take no pods.
	evictionPercent = 1
	// bedBytes is what a bed may write: logs and audit logs above all.
	bedBytes = 4 << 30
)

// checkRoom refuses a bed whose kubelets would soon say DiskPressure: every pod
// would stay Pending, and the reason would be far from what is seen.
func checkRoom() error {
	var fs unix.Statfs_t
	if err := unix.Statfs(layout.DataDir, &fs); err != nil {
		return fmt.Errorf("ask how full the disk under %s is: %w", layout.DataDir, err)
	}
	block := uint64(fs.Bsize)
	return roomFor(fs.Bavail*block, fs.Blocks*block)
}

// roomFor is an error unless a bed can run on a file system of total bytes, of
// which free are to be had.
func roomFor(free, total uint64) error {
	need := total/100*evictionPercent + bedBytes
	if free >= need {
		return nil
	}
	return fmt.Errorf("make a bed in %s: the disk has %s free and a bed needs %s, since kubelets take no pods when less than %d %% is free: "+
		"remove something; go clean -cache removes what Go keeps of earlier builds",
		layout.DataDir, binary(free), binary(need), evictionPercent)
}

// binary is a size in whole Mi or Gi.
func binary(bytes uint64) string {
	return resource.NewQuantity(int64(bytes>>20)<<20, resource.BinarySI).String()
}
