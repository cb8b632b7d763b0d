package devcluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/procs"
	"github.com/moor-storage/moor/test/devcluster/record"
)

// targetBytes is how large the file system of the storage target seems to be.
// Its image takes what is written alone.
const targetBytes = 64 << 30

// mountTarget makes the file system of the storage target, in an image of its
// own: one that can share data between files, which copies volumes at once,
// whatever this machine's own file system is. The loop device goes around the
// page cache, or a flush of one volume would wait for what others have written.
//
// A bed that records beneath the target has the recorder between the two, a
// process of its own that no machine of the bed contains.
func (c *Cluster) mountTarget(ctx context.Context) error {
	if !c.meta.Options.RecordBelow {
		return mountImage(ctx, layout.TargetSource())
	}
	if err := os.MkdirAll(layout.TargetBelow(), 0o755); err != nil {
		return fmt.Errorf("make the directory beneath the recorder: %w", err)
	}
	if err := mountImage(ctx, layout.TargetBelow()); err != nil {
		return err
	}
	return c.startRecorder(ctx)
}

// mountImage makes the image and mounts it.
func mountImage(ctx context.Context, at string) error {
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
	_, err = hostCommand(ctx, "mount", "-t", "xfs", device, at)
	return err
}

// recorderProcess is the name of the recorder beneath the target.
const recorderProcess = "write-recorder"

// RecorderCommand is the hidden command of moor-dev that is the recorder.
const RecorderCommand = "record-writes"

// startRecorder starts the recorder, detached from this process, and returns when
// its file system is there.
func (c *Cluster) startRecorder(ctx context.Context) error {
	log, err := os.OpenFile(c.Log(recorderProcess), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start the recorder beneath the target: %w", err)
	}
	defer func() { _ = log.Close() }()
	argv := []string{filepath.Join(c.meta.BinDir, "moor-dev"), RecorderCommand, layout.TargetBelow(), layout.TargetSource(), layout.BelowLogs()}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the recorder beneath the target: %w", err)
	}
	ended := make(chan error, 1)
	id, err := procs.Identify(cmd.Process.Pid)
	go func() { ended <- cmd.Wait() }()
	if err == nil {
		process := Process{Name: recorderProcess, Machine: "-", Argv: argv}
		err = record.SaveProcess(record.Running{Process: process, Identity: id, Wrapper: id, Started: time.Now()})
	}
	if err != nil {
		return fmt.Errorf("start the recorder beneath the target: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err = poll(ctx, 20*time.Millisecond, func(context.Context) (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("it ended at once (%v)\n%s", err, tail(c.Log(recorderProcess), 20))
		default:
		}
		var fs unix.Statfs_t
		err := unix.Statfs(layout.TargetSource(), &fs)
		return fs.Type == unix.FUSE_SUPER_MAGIC, err
	})
	if err != nil {
		return fmt.Errorf("wait for the recorder beneath the target: %w", err)
	}
	return nil
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

// ShareCommand is the hidden command of moor-dev that is a storage for PavProvisioners, see test/share.
const ShareCommand = "share"
