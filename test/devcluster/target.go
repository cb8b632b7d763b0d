package devcluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/moor-storage/moor/test/devcluster/layout"
)

// targetBytes is how large the file system of the storage target seems to be.
// Its image takes what is written alone.
const targetBytes = 64 << 30

// mountTarget makes the file system of the storage target, in an image of its
// own: one that can share data between files, which copies volumes at once,
// whatever this machine's own file system is. The loop device goes around the
// page cache, or a flush of one volume would wait for what others have written.
func mountTarget(ctx context.Context) error {
	image := layout.TargetImage()
	f, err := os.OpenFile(image, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make the image of the storage target: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Truncate(targetBytes); err != nil {
		return fmt.Errorf("make the image of the storage target: %w", err)
	}
	if _, err := hostCommand(ctx, "mkfs.xfs", "-q", "-m", "reflink=1", image); err != nil {
		return err
	}
	device, err := hostCommand(ctx, "losetup", "--find", "--show", "--direct-io=on", image)
	if err != nil {
		return err
	}
	_, err = hostCommand(ctx, "mount", "-t", "xfs", device, layout.TargetSource())
	return err
}

// hostCommand runs a command on this machine and returns what it says.
func hostCommand(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("make the file system of the storage target: %s %s: %w: %s", name, strings.Join(args, " "), err, text)
	}
	return text, nil
}
