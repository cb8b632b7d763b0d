package remote

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/mount-utils"

	"github.com/moor-storage/moor/internal/hostdev"
)

// unmountPatience is how long a server may take to let go of a share before it
// is left without asking.
const unmountPatience = 30 * time.Second

// Mounts is the mount table of the DPU, as far as NFS needs it.
type Mounts interface {
	// At tells what is mounted on path, "" if nothing is. It does not touch
	// path, behind which a server may not answer.
	At(path string) (source string, err error)
	// Mount mounts a share of NFS. What fails leaves nothing behind, unless
	// ctx cut it off.
	Mount(ctx context.Context, source, path, options string) error
	// Unmount unmounts path, by force if the server does not answer.
	Unmount(ctx context.Context, path string) error
}

// KernelMounts is the kernel's table, changed by mount(8) and umount(8).
type KernelMounts struct{ Runner hostdev.Runner }

// At implements Mounts.
func (KernelMounts) At(path string) (string, error) {
	list, err := mount.New("").List()
	if err != nil {
		return "", fmt.Errorf("read the mount table: %w", err)
	}
	for _, m := range slices.Backward(list) {
		if m.Path == filepath.Clean(path) {
			return m.Device, nil
		}
	}
	return "", nil
}

// Mount implements Mounts.
func (k KernelMounts) Mount(ctx context.Context, source, path, options string) error {
	args := []string{"-t", "nfs"}
	if options != "" {
		args = append(args, "-o", options)
	}
	_, err := k.Runner.Run(ctx, "mount", append(args, source, path)...)
	return err
}

// Unmount implements Mounts.
func (k KernelMounts) Unmount(ctx context.Context, path string) error {
	patient, cancel := context.WithTimeout(ctx, unmountPatience)
	defer cancel()
	_, err := k.Runner.Run(patient, "umount", path)
	if err == nil {
		return nil
	}
	if _, forced := k.Runner.Run(ctx, "umount", "-f", path); forced != nil {
		return errors.Join(err, forced)
	}
	return nil
}
