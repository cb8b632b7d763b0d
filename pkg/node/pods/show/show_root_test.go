//go:build root

package show

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/moor-storage/moor/pkg/node/pods/mountinfo"
	"github.com/moor-storage/moor/pkg/node/pods/pavdir"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/test/kit/needs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is a root and a directory of targets, both on a file system of their own that is shared, as those of
// a node are.
type bed struct {
	*Targets
	t                   *testing.T
	dir, volume, target string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	dir := t.TempDir()
	b := &bed{t: t, dir: dir, volume: filepath.Join(dir, "pav", "d", "volume"), target: filepath.Join(dir, "pods", "uid", "mount")}
	b.must(unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"))
	b.must(unix.Mount("", dir, "", unix.MS_SHARED, ""))
	t.Cleanup(func() {
		for _, m := range b.mounts(dir) {
			_ = unix.Unmount(m.Path, unix.MNT_DETACH)
		}
	})
	b.must(os.MkdirAll(filepath.Dir(b.volume), 0o755))
	b.Targets = New(pavdir.NewRoot(filepath.Join(dir, "pav")))
	return b
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) mounts(at string) []mountinfo.Mount {
	b.t.Helper()
	all, err := mountinfo.List()
	b.must(err)
	return mountinfo.Beneath(all, at)
}

func (b *bed) want(mode corev1.PersistentVolumeMode, readOnly bool) Want {
	return Want{Directory: "d", Target: b.target, Mode: mode, ReadOnly: readOnly}
}

// loop is a loop device, and its special file at /pav/volume.
func (b *bed) loop() string {
	b.t.Helper()
	needs.Program(b.t, "losetup")
	backing := filepath.Join(b.t.TempDir(), "backing")
	b.must(os.WriteFile(backing, make([]byte, 1<<20), 0o600))
	out, err := exec.Command("losetup", "--find", "--show", backing).Output()
	b.must(err)
	device := strings.TrimSpace(string(out))
	b.t.Cleanup(func() { _ = exec.Command("losetup", "-d", device).Run() })
	var st unix.Stat_t
	b.must(unix.Stat(device, &st))
	b.must(unix.Mknod(b.volume, unix.S_IFBLK|0o600, int(st.Rdev)))
	return device
}

// deadLoop is a loop device over a file of a FUSE file system whose server has ended.
func (b *bed) deadLoop() {
	b.t.Helper()
	needs.Program(b.t, "losetup")
	dir, root := filepath.Join(b.t.TempDir(), "fuse"), &fs.Inode{}
	b.must(os.Mkdir(dir, 0o755))
	server, err := fs.Mount(dir, root, &fs.Options{OnAdd: func(ctx context.Context) {
		file := &fs.MemRegularFile{Data: make([]byte, 1<<20)}
		root.AddChild("disk", root.NewPersistentInode(ctx, file, fs.StableAttr{Mode: fuse.S_IFREG}), false)
	}})
	if err != nil {
		needs.Missing(b.t, "there is no FUSE: %v", err)
	}
	b.t.Cleanup(server.Wait)
	b.t.Cleanup(func() { b.must(unix.Unmount(dir, unix.MNT_DETACH)) })
	out, err := exec.Command("losetup", "--find", "--show", filepath.Join(dir, "disk")).Output()
	b.must(err)
	b.t.Cleanup(func() { b.must(exec.Command("losetup", "-d", strings.TrimSpace(string(out))).Run()) })
	var st unix.Stat_t
	b.must(unix.Stat(dir, &st))
	control := b.t.TempDir()
	b.must(unix.Mount("fusectl", control, "fusectl", 0, ""))
	b.t.Cleanup(func() { b.must(unix.Unmount(control, 0)) })
	b.must(os.WriteFile(filepath.Join(control, strconv.Itoa(int(unix.Minor(st.Dev))), "abort"), []byte("1"), 0o200))
}

// guarded counts the read-only loop devices of the target.
func (b *bed) guarded() (n int) {
	b.t.Helper()
	used, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	b.must(err)
	for _, path := range used {
		f, err := os.Open("/dev/" + strings.Split(path, "/")[3])
		b.must(err)
		if info, err := unix.IoctlLoopGetStatus64(int(f.Fd())); err == nil && unix.ByteSliceToString(info.File_name[:]) == loopName(b.target) {
			n++
		}
		f.Close()
	}
	return n
}

func TestRootDirectory(t *testing.T) {
	for name, put := range map[string]func(b *bed){
		"directory": func(b *bed) { b.must(os.Mkdir(b.volume, 0o755)) },
		"mount": func(b *bed) {
			b.must(os.Mkdir(b.volume, 0o755))
			b.must(unix.Mount("tmpfs", b.volume, "tmpfs", 0, "size=1m"))
		},
	} {
		for _, readOnly := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				b := newBed(t)
				put(b)
				b.must(os.WriteFile(filepath.Join(b.volume, "f"), []byte("kept"), 0o600))
				before := len(b.mounts(b.dir))
				for range 2 { // to repeat it is harmless
					b.must(b.Show(b.want(corev1.PersistentVolumeFilesystem, readOnly)))
				}
				if n := len(b.mounts(b.dir)); n != before+1 {
					t.Errorf("%d mounts, want one more than %d", n, before)
				}
				if got, err := os.ReadFile(filepath.Join(b.target, "f")); err != nil || string(got) != "kept" {
					t.Errorf("read %q, %v", got, err)
				}
				if err := os.WriteFile(filepath.Join(b.target, "g"), nil, 0o600); errors.Is(err, unix.EROFS) != readOnly || !readOnly && err != nil {
					t.Errorf("read-only %t, and a write gives %v", readOnly, err)
				}
				if readOnly {
					b.must(os.WriteFile(filepath.Join(b.volume, "h"), nil, 0o600)) // the staging pod can write
				}
				if usage, err := b.Usage(b.target); err != nil || len(usage) != 2 || usage[0].Total <= 0 || usage[1].Total <= 0 {
					t.Errorf("usage %v, %v", usage, err)
				}
				for range 2 {
					b.must(b.Hide(b.target))
				}
				if _, err := os.Lstat(b.target); !errors.Is(err, os.ErrNotExist) || len(b.mounts(b.dir)) != before {
					t.Errorf("the target is there yet: %v, %v", err, b.mounts(b.dir))
				}
				if _, err := os.Stat(filepath.Join(b.volume, "f")); err != nil {
					t.Errorf("what the volume holds is gone: %v", err)
				}
				if _, err := b.Usage(b.target); !errors.Is(err, provisioner.ErrNotFound) {
					t.Errorf("usage of nothing: %v", err)
				}
			})
		}
	}
}

func TestRootBlock(t *testing.T) {
	for _, readOnly := range []bool{false, true} {
		b := newBed(t)
		device := b.loop()
		for range 2 {
			b.must(b.Show(b.want(corev1.PersistentVolumeBlock, readOnly)))
		}
		if n := len(b.mounts(b.target)); n != 1 {
			t.Errorf("%d mounts", n)
		}
		if n := b.guarded(); (n == 1) != readOnly {
			t.Errorf("read-only %t, and %d read-only loop devices", readOnly, n)
		}
		usage, err := b.Usage(b.target)
		if err != nil || len(usage) != 1 || usage[0].Total != 1<<20 {
			t.Errorf("usage %v, %v", usage, err)
		}
		b.must(os.WriteFile(device, []byte("before"), 0o600))
		f, err := os.OpenFile(b.target, os.O_RDWR, 0)
		if err == nil {
			_, err = f.WriteAt([]byte("x"), 0)
			err = errors.Join(err, f.Sync(), f.Close())
		}
		if (err != nil) != readOnly {
			t.Errorf("read-only %t, and a write gives %v", readOnly, err)
		}
		want := map[bool]string{true: "before", false: "xefore"}[readOnly]
		head := make([]byte, len(want))
		got, err := os.Open(b.target)
		b.must(err)
		if _, err := got.ReadAt(head, 0); err != nil || string(head) != want {
			t.Errorf("read %q, %v, want %q", head, err, want)
		}
		got.Close()
		for range 2 {
			b.must(b.Hide(b.target))
		}
		if n := b.guarded(); n != 0 || len(b.mounts(b.target)) != 0 {
			t.Errorf("left: %d loop devices, mounts %v", n, b.mounts(b.target))
		}
	}
}

// After a crash between the loop device and the bind, the next call makes both anew, and one that hides
// removes it.
func TestRootGuardLeft(t *testing.T) {
	b := newBed(t)
	b.loop()
	v, err := b.root.Volume("d")
	b.must(err)
	defer v.Close()
	for _, act := range []func() error{
		func() error { return b.Show(b.want(corev1.PersistentVolumeBlock, true)) },
		func() error { return b.Hide(b.target) },
	} {
		b.must(place(b.target, corev1.PersistentVolumeBlock))
		_, err := guard(v, b.target)
		b.must(err)
		b.must(act())
		if n := b.guarded(); n > 1 {
			t.Errorf("%d loop devices", n)
		}
		b.must(b.Hide(b.target))
	}
	if n := b.guarded(); n != 0 {
		t.Errorf("left: %d loop devices", n)
	}
}

// A loop device of another program that does not tell its name, as the file system beneath it does not answer,
// keeps no device from being shown or hidden.
func TestRootOtherLoopDead(t *testing.T) {
	b := newBed(t)
	b.deadLoop()
	b.loop()
	b.must(b.Show(b.want(corev1.PersistentVolumeBlock, true)))
	if n := b.guarded(); n != 1 {
		t.Errorf("%d loop devices", n)
	}
	b.must(b.Hide(b.target))
	if n := b.guarded(); n != 0 {
		t.Errorf("left: %d loop devices", n)
	}
}

// When the volume was staged anew, the target shows the new one, also if the old one is in use.
func TestRootRenew(t *testing.T) {
	b := newBed(t)
	w := b.want(corev1.PersistentVolumeFilesystem, true)
	fresh := func(name string) {
		b.must(os.MkdirAll(b.volume, 0o755))
		b.must(unix.Mount("tmpfs", b.volume, "tmpfs", 0, "size=1m"))
		b.must(os.WriteFile(filepath.Join(b.volume, name), nil, 0o600))
	}
	fresh("first")
	if changed, err := b.Renew(w); err != nil || changed {
		t.Errorf("where nothing is shown: %t, %v", changed, err)
	}
	b.must(b.Show(w))
	held, err := os.Open(filepath.Join(b.target, "first"))
	b.must(err)
	defer held.Close()
	if changed, err := b.Renew(w); err != nil || changed {
		t.Errorf("of the same volume: %t, %v", changed, err)
	}
	b.must(unix.Unmount(b.volume, unix.MNT_DETACH))
	fresh("second")
	if changed, err := b.Renew(w); err != nil || !changed {
		t.Errorf("of another volume: %t, %v", changed, err)
	}
	if _, err := os.Stat(filepath.Join(b.target, "second")); err != nil || len(b.mounts(b.target)) != 1 {
		t.Errorf("the new volume is not seen: %v, %v", err, b.mounts(b.target))
	}
	if err := os.WriteFile(filepath.Join(b.target, "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a write gives %v", err)
	}
	b.must(b.Hide(b.target))
}

func TestRootRefused(t *testing.T) {
	b := newBed(t)
	w := b.want(corev1.PersistentVolumeBlock, false)
	if err := b.Show(w); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no volume: %v", err)
	}
	b.must(os.Symlink("/etc", b.volume))
	if err := b.Show(w); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link: %v", err)
	}
	b.must(os.Remove(b.volume))
	b.must(os.Mkdir(b.volume, 0o755))
	if err := b.Show(w); !errors.Is(err, provisioner.ErrPrecondition) || !strings.Contains(err.Error(), "mode Filesystem, and Block is asked for") {
		t.Errorf("another mode: %v", err)
	}
	w.Mode = corev1.PersistentVolumeFilesystem
	b.must(b.Show(w))
	held, err := os.Create(filepath.Join(b.target, "held"))
	b.must(err)
	if err := b.Hide(b.target); !errors.Is(err, provisioner.ErrBusy) || !strings.Contains(err.Error(), b.target) {
		t.Errorf("in use: %v", err)
	}
	held.Close()
	b.must(b.Hide(b.target))
	b.must(os.MkdirAll(b.target, 0o755))
	b.must(os.WriteFile(filepath.Join(b.target, "f"), nil, 0o600))
	if err := b.Hide(b.target); err == nil {
		t.Error("a target that holds files of another was removed")
	}
}

// What the staging pod mounts in the volume later does not keep the target busy.
func TestRootMountedLater(t *testing.T) {
	b := newBed(t)
	b.must(os.Mkdir(b.volume, 0o755))
	b.must(unix.Mount("tmpfs", b.volume, "tmpfs", 0, "size=1m"))
	b.must(os.Mkdir(filepath.Join(b.volume, "sub"), 0o755))
	b.must(b.Show(b.want(corev1.PersistentVolumeFilesystem, false)))
	b.must(unix.Mount("tmpfs", filepath.Join(b.volume, "sub"), "tmpfs", 0, "size=1m"))
	if n := len(b.mounts(b.target)); n != 1 {
		t.Errorf("%d mounts on the target", n)
	}
	b.must(b.Hide(b.target))
	if n := len(b.mounts(b.volume)); n != 2 {
		t.Errorf("%d mounts of the staging pod, want both", n)
	}
}

// A file system that does not answer is shown, shown again, replaced and hidden without being asked.
func TestRootSilent(t *testing.T) {
	b := newBed(t)
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		needs.Missing(t, "there is no FUSE: %v", err)
	}
	defer unix.Close(fd)
	b.must(os.Mkdir(b.volume, 0o755))
	b.must(unix.Mount("silent", b.volume, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)))
	w := b.want(corev1.PersistentVolumeFilesystem, true)
	for range 2 {
		b.must(b.Show(w))
	}
	if changed, err := b.Renew(w); err != nil || changed {
		t.Errorf("of the same volume: %t, %v", changed, err)
	}
	b.must(unix.Unmount(b.volume, 0))
	b.must(os.WriteFile(filepath.Join(b.volume, "new"), nil, 0o600))
	if changed, err := b.Renew(w); err != nil || !changed {
		t.Errorf("of another volume: %t, %v", changed, err)
	}
	if _, err := os.Stat(filepath.Join(b.target, "new")); err != nil {
		t.Error(err)
	}
	b.must(b.Hide(b.target))
}

// Two calls for one target do not work at once. What would be shown anew waits for nothing, and stands
// in no call's way, where nothing is shown.
func TestRootTargetTaken(t *testing.T) {
	b := newBed(t)
	w := b.want(corev1.PersistentVolumeFilesystem, false)
	unlock, err := b.lock(b.target)
	b.must(err)
	if changed, err := b.Renew(w); err != nil || changed {
		t.Errorf("where nothing is shown: %t, %v", changed, err)
	}
	unlock()
	b.must(os.Mkdir(b.volume, 0o755))
	b.must(b.Show(w))
	unlock, err = b.lock(b.target)
	b.must(err)
	_, renew := b.Renew(w)
	for what, err := range map[string]error{"show": b.Show(w), "renew": renew, "hide": b.Hide(b.target)} {
		if !errors.Is(err, provisioner.ErrBusy) {
			t.Errorf("%s: %v", what, err)
		}
	}
	unlock()
	b.must(b.Hide(b.target))
}
