//go:build root

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/reference/writelog"
)

// kept is a host with an ext4 on a device whose functions outlive the service, which was killed,
// and a write to it that waits.
type kept struct {
	binary, root, file, dev string
	mounted                 *os.File
	functions               string
	written                 <-chan error
}

func keep(t *testing.T, recoveryTime time.Duration) *kept {
	t.Helper()
	root, err := os.MkdirTemp("", "snapemu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	k := &kept{binary: build(t), root: root, file: filepath.Join(root, "vol.img"), functions: "--functions=" + root + "/f"}
	if err := errors.Join(os.WriteFile(k.file, nil, 0o600), os.Truncate(k.file, 32<<20)); err != nil {
		t.Fatal(err)
	}
	hold := exec.Command(k.binary, "--name=killed", "--keep-functions", k.functions, "--fuse-dir="+root+"/fuse", "--recovery-time="+recoveryTime.String())
	hold.Stderr = os.Stderr
	if err := hold.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(hold.Process.Signal(syscall.SIGTERM), hold.Wait()); err != nil {
			t.Errorf("the functions ended: %v", err)
		}
	})
	within(t, "the functions answer", func() bool { _, err := os.Stat(root + "/f"); return err == nil })
	first := run1(t, k.binary, root, k.functions)
	k.dev = first.expose(t, k.file)
	if out, err := exec.Command("mkfs.ext4", "-q", k.dev).CombinedOutput(); err != nil {
		t.Fatalf("mkfs: %v\n%s", err, out)
	}
	mnt := filepath.Join(root, "mnt")
	mountAt(t, k.dev, mnt)
	t.Cleanup(func() { unix.Unmount(mnt, unix.MNT_DETACH) })
	if k.mounted, err = os.Create(filepath.Join(mnt, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.mounted.Close() })
	if err := k.mounted.Sync(); err != nil {
		t.Fatal(err)
	}
	_ = first.end(syscall.SIGKILL) // that it was killed
	k.written = k.write("late")
	return k
}

// write writes, and has it made durable.
func (k *kept) write(text string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := k.mounted.WriteString(text)
		ended <- errors.Join(err, k.mounted.Sync())
	}()
	return ended
}

// accepted counts the writes that have reached the file.
func (k *kept) accepted(t *testing.T) int {
	t.Helper()
	all, err := writelog.Read(filepath.Join(k.root, "medium", "vol.img.log"))
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestKeptOverKill: the service is killed, and a service that makes the controller as it was goes on:
// the host's mount lives, and its write ends well once the controller is resumed.
func TestKeptOverKill(t *testing.T) {
	k := keep(t, time.Minute)
	second := run1(t, k.binary, k.root, k.functions)
	ctrl := second.prepare(t, k.file)
	before := k.accepted(t)
	select {
	case err := <-k.written:
		t.Fatalf("the write has ended before the controller was resumed: %v", err)
	default:
	}
	if _, err := os.Lstat(k.dev); err != nil {
		t.Errorf("the host does not see its device meanwhile: %v", err)
	}
	if err := second.NvmeControllerResume(t.Context(), ctrl); err != nil {
		t.Fatal(err)
	}
	if err := <-k.written; err != nil {
		t.Fatalf("the host has seen %v", err)
	}
	if err := <-k.write("later"); err != nil || k.accepted(t) <= before {
		t.Fatalf("%v; %d writes before, %d now", err, before, k.accepted(t))
	}
	if err := errors.Join(k.mounted.Close(), unix.Unmount(filepath.Join(k.root, "mnt"), 0)); err != nil {
		t.Fatalf("the mount of before: %v", err) // while a service is there: it writes to the end
	}
}

// TestKeptIsDestroyed: a controller that is made and destroyed takes with it what waits: none
// of it reaches the file, and the host's I/O ends.
func TestKeptIsDestroyed(t *testing.T) {
	k := keep(t, time.Minute)
	second := run1(t, k.binary, k.root, k.functions)
	before, ctrl := k.accepted(t), second.prepare(t, k.file)
	if err := second.NvmeControllerDestroy(t.Context(), ctrl, true); err != nil {
		t.Fatal(err)
	}
	if err := <-k.written; err == nil || k.accepted(t) != before {
		t.Fatalf("the write ended with %v; %d writes before, %d now", err, before, k.accepted(t))
	}
	if _, err := os.Lstat(k.dev); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the host sees its device still: %v", err)
	}
}

// TestKeptForATime: after the recovery time the host's I/O fails, and the device is gone.
func TestKeptForATime(t *testing.T) {
	k := keep(t, 300*time.Millisecond)
	if err := <-k.written; err == nil {
		t.Fatal("a write was acknowledged without a service")
	}
	second := run1(t, k.binary, k.root, k.functions)
	if _, err := os.Lstat(k.dev); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the device is there still: %v", err)
	}
	before, ctrl := k.accepted(t), second.prepare(t, k.file)
	if err := second.NvmeControllerResume(t.Context(), ctrl); err != nil || k.accepted(t) != before {
		t.Fatalf("%v; %d writes before, %d now", err, before, k.accepted(t))
	}
}
