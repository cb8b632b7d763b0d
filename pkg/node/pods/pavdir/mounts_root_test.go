//go:build root

package pavdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/moor-storage/moor/pkg/node/pods/mountinfo"
	"github.com/moor-storage/moor/test/kit/needs"
)

// newRootBed is a bed whose mounts go with it.
func newRootBed(t *testing.T) *bed {
	t.Helper()
	b := newBed(t)
	t.Cleanup(func() {
		for _, m := range b.mounts() {
			_ = unix.Unmount(m.Path, unix.MNT_DETACH)
		}
	})
	return b
}

func (b *bed) mounts() []mountinfo.Mount {
	b.t.Helper()
	all, err := mountinfo.List()
	b.must(err)
	return mountinfo.Beneath(all, b.path)
}

func (b *bed) tmpfs(name string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	b.must(os.MkdirAll(path, 0o755))
	b.must(unix.Mount("tmpfs", path, "tmpfs", 0, "size=1m"))
	return path
}

func (b *bed) loop() string {
	b.t.Helper()
	needs.Program(b.t, "losetup")
	backing := filepath.Join(b.t.TempDir(), "backing")
	b.must(os.WriteFile(backing, make([]byte, 1<<20), 0o600))
	out, err := exec.Command("losetup", "--find", "--show", backing).Output()
	b.must(err)
	device := strings.TrimSpace(string(out))
	b.t.Cleanup(func() { _ = exec.Command("losetup", "-d", device).Run() })
	return device
}

// node makes the special file of a device at a name, as cp -a does.
func (b *bed) node(device, name string) string {
	b.t.Helper()
	var st unix.Stat_t
	b.must(unix.Stat(device, &st))
	path := filepath.Join(b.dir, name)
	b.must(unix.Mknod(path, unix.S_IFBLK|0o600, int(st.Rdev)))
	return path
}

// A mount on a file, or on the directory, hides what the pod has written: it is not read.
func TestRootMountInTheWay(t *testing.T) {
	b := newRootBed(t)
	handle := b.write("handle", "h")
	b.must(unix.Mount("/etc/hostname", handle, "", unix.MS_BIND, ""))
	if got := b.pod(Since{}); got.Handle != nil || got.Problem != "/pav/handle is hidden by a mount that lies on it" {
		t.Errorf("%+v", got)
	}
	b.tmpfs(".")
	if got := b.pod(Since{}); got.Problem != "/pav is hidden by a mount that lies on it" {
		t.Errorf("%+v", got)
	}
	if _, err := b.Volume(directory); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a volume beneath a mount: %v", err)
	}
	b.clear(false)
	if left, mounts := b.left(), b.mounts(); len(left)+len(mounts) != 0 {
		t.Errorf("left: %v %v", left, mounts)
	}
}

// A directory of another user can be read, and cleared.
func TestRootAnotherUser(t *testing.T) {
	b := newRootBed(t)
	b.must(os.Chown(b.write("handle", "h"), 1000, 1000))
	b.must(os.Chmod(filepath.Join(b.dir, "handle"), 0))
	b.must(os.Chown(b.dir, 1000, 1000))
	b.must(os.Chmod(b.dir, 0))
	if got := b.pod(Since{}); got.Problem != "" || got.Handle == nil || *got.Handle != "h" {
		t.Errorf("%+v", got)
	}
	b.clear(false)
}

func TestRootStaged(t *testing.T) {
	for name, c := range map[string]struct {
		put     func(b *bed, path string)
		mode    corev1.PersistentVolumeMode
		size    int64
		problem string
	}{
		"none":         {func(*bed, string) {}, "", 0, ""},
		"directory":    {func(b *bed, p string) { b.must(os.Mkdir(p, 0o755)) }, corev1.PersistentVolumeFilesystem, 0, ""},
		"mount":        {func(b *bed, _ string) { b.tmpfs("volume") }, corev1.PersistentVolumeFilesystem, 0, ""},
		"block device": {func(b *bed, _ string) { b.node(b.loop(), "volume") }, corev1.PersistentVolumeBlock, 1 << 20, ""},
		"block device mounted": {func(b *bed, p string) {
			b.write("volume", "")
			b.must(unix.Mount(b.loop(), p, "", unix.MS_BIND, ""))
		}, corev1.PersistentVolumeBlock, 1 << 20, ""},
		"symlink":          {func(b *bed, p string) { b.must(os.Symlink("/etc", p)) }, "", 0, "/pav/volume is a symbolic link, and has to be a directory or a block device"},
		"symlink inside":   {func(b *bed, p string) { b.must(os.Symlink(".", p)) }, "", 0, "/pav/volume is a symbolic link, and has to be a directory or a block device"},
		"file":             {func(b *bed, _ string) { b.write("volume", "x") }, "", 0, "/pav/volume is a regular file, and has to be a directory or a block device"},
		"character device": {func(b *bed, p string) { b.must(unix.Mknod(p, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))) }, "", 0, "/pav/volume is a character device, and has to be a directory or a block device"},
		"no such device":   {func(b *bed, p string) { b.must(unix.Mknod(p, unix.S_IFBLK|0o600, int(unix.Mkdev(240, 77)))) }, "", 0, "/pav/volume is block device 240:77, which cannot be opened: no such device or address"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRootBed(t)
			b.write("ready", "")
			c.put(b, filepath.Join(b.dir, "volume"))
			got, err := b.Staged(directory, Since{})
			b.must(err)
			if !got.Ready || got.VolumeMode != c.mode || got.SizeBytes != c.size || got.Problem != c.problem {
				t.Errorf("%+v", got)
			}
			b.clear(false)
			if left, mounts := b.left(), b.mounts(); len(left)+len(mounts) != 0 {
				t.Errorf("left: %v %v", left, mounts)
			}
		})
	}
}

// fuse mounts a file system whose server does not answer at /pav/volume, or, if it is dead, has gone.
func (b *bed) fuse(dead bool) {
	b.t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		needs.Missing(b.t, "there is no FUSE: %v", err)
	}
	path := filepath.Join(b.dir, "volume")
	b.must(os.Mkdir(path, 0o755))
	b.must(unix.Mount("silent", path, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)))
	if dead {
		unix.Close(fd)
		return
	}
	b.t.Cleanup(func() { unix.Close(fd) })
}

// Nothing is asked of a file system that does not answer: neither to tell that it is there, nor to clear
// it.
func TestRootSilentVolume(t *testing.T) {
	for _, dead := range []bool{false, true} {
		b := newRootBed(t)
		b.fuse(dead)
		got, err := b.Staged(directory, Since{})
		b.must(err)
		if got.VolumeMode != corev1.PersistentVolumeFilesystem || got.Problem != "" {
			t.Errorf("dead %t: %+v", dead, got)
		}
		b.clear(false)
		if left, mounts := b.left(), b.mounts(); len(left)+len(mounts) != 0 {
			t.Errorf("dead %t: left %v %v", dead, left, mounts)
		}
	}
}

// To open a device has effects of its own: one in the place of a file is not opened.
func TestRootDeviceInTheWay(t *testing.T) {
	b := newRootBed(t)
	b.must(unix.Mknod(filepath.Join(b.dir, "handle"), unix.S_IFCHR|0o600, int(unix.Mkdev(240, 77))))
	b.must(unix.Mknod(filepath.Join(b.dir, "ready"), unix.S_IFBLK|0o600, int(unix.Mkdev(240, 77))))
	want := "/pav/ready is a block device, and has to be a regular file; /pav/handle is a character device, and has to be a regular file"
	if got := b.pod(Since{}); got.Problem != want || got.Ready || got.Handle != nil {
		t.Errorf("%+v", got)
	}
}

// All that is mounted goes, and nothing of what is in it.
func TestRootClearMounts(t *testing.T) {
	b := newRootBed(t)
	outside := t.TempDir()
	kept := filepath.Join(outside, "kept")
	b.must(os.WriteFile(kept, nil, 0o600))
	b.tmpfs("volume")
	b.tmpfs("volume") // on top of it
	b.tmpfs("volume/a b\u00a0\\c\n")
	bound := b.tmpfs("volume/a b\u00a0\\c\n/bound")
	b.must(unix.Mount(outside, bound, "", unix.MS_BIND, ""))
	b.must(unix.Mount(kept, b.write("file", ""), "", unix.MS_BIND, ""))
	b.must(os.Symlink(outside, filepath.Join(b.dir, "link")))
	if n := len(b.mounts()); n != 6 {
		t.Fatalf("%d mounts, want 6", n)
	}
	if detached := b.clear(false); detached != nil {
		t.Errorf("lazily unmounted: %v", detached)
	}
	if left, mounts := b.left(), b.mounts(); len(left)+len(mounts) != 0 {
		t.Errorf("left: %v %v", left, mounts)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("what was mounted is gone: %v", err)
	}
}

// A mount in use is unmounted lazily as the last resort alone, and that is said.
func TestRootBusy(t *testing.T) {
	b := newRootBed(t)
	held, err := os.Create(filepath.Join(b.tmpfs("volume"), "held"))
	b.must(err)
	defer held.Close()
	_, err = b.Clear(t.Context(), directory, false)
	if !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "volume") {
		t.Fatalf("%v, want that it is busy", err)
	}
	if len(b.mounts()) != 1 {
		t.Fatal("it was unmounted")
	}
	if _, err := os.Stat(b.dir); err == nil {
		t.Error("a new pod would get what the old one has left")
	}
	detached := b.clear(true)
	if len(detached) != 1 || !strings.HasSuffix(detached[0], "/volume") {
		t.Errorf("lazily unmounted: %v", detached)
	}
	if left, mounts := b.left(), b.mounts(); len(left)+len(mounts) != 0 {
		t.Errorf("left: %v %v", left, mounts)
	}
}

// What shows a volume is known, also when another has taken its place.
func TestRootShownBy(t *testing.T) {
	for name, c := range map[string]struct{ put, anew func(b *bed) }{
		"directory": {func(b *bed) { b.must(os.Mkdir(filepath.Join(b.dir, "volume"), 0o755)) }, func(b *bed) {
			b.must(os.Remove(filepath.Join(b.dir, "volume")))
			b.must(os.Mkdir(filepath.Join(b.dir, "volume"), 0o755))
		}},
		"mount": {func(b *bed) { b.tmpfs("volume") }, func(b *bed) {
			b.must(unix.Unmount(filepath.Join(b.dir, "volume"), 0))
			b.tmpfs("volume")
		}},
		"block": {func(b *bed) { b.node(b.loop(), "volume") }, func(b *bed) {
			b.must(os.Remove(filepath.Join(b.dir, "volume")))
			b.node(b.loop(), "volume")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRootBed(t)
			c.put(b)
			target := b.Path("target")
			if name == "block" {
				b.must(os.WriteFile(target, nil, 0o600))
			} else {
				b.must(os.Mkdir(target, 0o755))
			}
			b.must(unix.Mount(filepath.Join(b.dir, "volume"), target, "", unix.MS_BIND, ""))
			for _, want := range []bool{true, false} {
				v, err := b.Volume(directory)
				b.must(err)
				all, err := mountinfo.List()
				b.must(err)
				m, ok := mountinfo.At(all, target)
				if got, err := v.ShownBy(m, all); err != nil || !ok || got != want {
					t.Errorf("shown: %t, %v, want %t", got, err, want)
				}
				v.Close()
				if want {
					c.anew(b)
				}
			}
		})
	}
}
