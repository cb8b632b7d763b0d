package show

import (
	"fmt"
	"os"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Usage is how full the file system is that is seen at a target, or how large the block device.
func (t *Targets) Usage(target string) ([]*csispec.VolumeUsage, error) {
	is, err := t.Shown(target)
	if err != nil {
		return nil, err
	}
	if !is {
		return nil, fmt.Errorf("nothing is mounted there: %w", provisioner.ErrNotFound)
	}
	fi, err := os.Lstat(target)
	if err != nil {
		return nil, fmt.Errorf("look at what is mounted there: %w", err)
	}
	if fi.Mode().Type() == os.ModeDevice {
		return deviceUsage(target)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(target, &st); err != nil {
		return nil, fmt.Errorf("measure the file system: %w", err)
	}
	return []*csispec.VolumeUsage{
		{Unit: csispec.VolumeUsage_BYTES, Total: int64(st.Blocks) * st.Bsize, Available: int64(st.Bavail) * st.Bsize, Used: int64(st.Blocks-st.Bfree) * st.Bsize},
		{Unit: csispec.VolumeUsage_INODES, Total: int64(st.Files), Available: int64(st.Ffree), Used: int64(st.Files - st.Ffree)},
	}, nil
}

func deviceUsage(target string) ([]*csispec.VolumeUsage, error) {
	size, err := hostdev.Size(target)
	if err != nil {
		return nil, err
	}
	return []*csispec.VolumeUsage{{Unit: csispec.VolumeUsage_BYTES, Total: size}}, nil
}
