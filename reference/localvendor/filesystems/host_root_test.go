//go:build root

package filesystems

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"k8s.io/mount-utils"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/reference/localvendor"
)

const (
	mib  = 1 << 20
	node = "node-1"
)

// machine is a storage whose volumes are used on this machine.
type machine struct {
	*localvendor.Storage
	*Host
	o Options
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir := t.TempDir()
	m := &machine{o: Options{TargetDir: filepath.Join(dir, "images"), Dir: filepath.Join(dir, "mounts"), Node: node}}
	var err error
	m.Storage, err = localvendor.Open(localvendor.Options{TargetDir: m.o.TargetDir, FSType: Type, Target: &localvendor.Target{
		Address: "127.0.0.1:1", Revoker: unused{t}, Data: standstill{m},
	}})
	noError(t, err)
	m.restart(t)
	t.Cleanup(func() {
		list, err := mount.New("").List()
		for _, mp := range slices.Backward(list) {
			if strings.HasPrefix(mp.Path, dir+"/") {
				err = errors.Join(err, unix.Unmount(mp.Path, unix.MNT_DETACH))
			}
		}
		if err = errors.Join(err, m.Storage.Close()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// restart begins the Host anew.
func (m *machine) restart(t *testing.T) provisioner.Host {
	t.Helper()
	var err error
	m.Host, err = New(m.o)
	noError(t, err)
	return m.Host
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, err, want error, words string) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), words) {
		t.Fatalf("error %v, want %v with %q", err, want, words)
	}
}

func spec(name string, bytes int64) provisioner.VolumeSpec {
	return provisioner.VolumeSpec{
		Name: name, CapacityBytes: bytes, Mode: provisioner.Filesystem, AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce},
	}
}

// attach returns how to open a volume that is there.
func (m *machine) attach(t *testing.T, v provisioner.Volume, readOnly bool) provisioner.OpenSpec {
	t.Helper()
	a, err := m.Attach(t.Context(), provisioner.AttachSpec{VolumeID: v.ID, Node: node, ReadOnly: readOnly})
	noError(t, err)
	return provisioner.OpenSpec{VolumeID: v.ID, Mode: provisioner.Filesystem, AccessModes: v.AccessModes, PublishContext: a.PublishContext, VolumeContext: v.Context}
}

// made makes and attaches a volume.
func (m *machine) made(t *testing.T, name string) provisioner.OpenSpec {
	t.Helper()
	v, err := m.Create(t.Context(), spec(name, 16*mib))
	noError(t, err)
	return m.attach(t, v, false)
}

func (m *machine) opened(t *testing.T, o provisioner.OpenSpec) string {
	t.Helper()
	d, err := m.Open(t.Context(), o)
	noError(t, err)
	return d.Directory
}

func TestKeepsTheHostContract(t *testing.T) {
	provisionertest.TestHost(t, func(t *testing.T) provisionertest.HostUnderTest {
		m := newMachine(t)
		return provisionertest.HostUnderTest{Host: m.Host, Restart: m.restart, Prepare: m.made}
	})
}

// fill writes until there is no room, and returns how much had some.
func fill(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Create(path)
	noError(t, err)
	defer f.Close()
	chunk, n := make([]byte, mib/4), int64(0)
	for n < 1<<30 {
		k, err := f.Write(chunk)
		n += int64(k)
		if errors.Is(err, unix.ENOSPC) {
			return n
		}
		noError(t, err)
	}
	t.Fatal("the volume has no end")
	return 0
}

// The size of a volume is kept, and grows while the volume is in use.
func TestSizeIsKept(t *testing.T) {
	m := newMachine(t)
	o := m.made(t, "vol")
	dir := m.opened(t, o)
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != contentMode {
		t.Errorf("root of a new volume: %v, %v", fi.Mode(), err)
	}
	small := fill(t, filepath.Join(dir, "small"))
	if small < 8*mib || small > 16*mib {
		t.Errorf("a volume of 16 MiB took %d bytes", small)
	}
	size, err := m.Expand(t.Context(), "vol", 48*mib, 0)
	noError(t, err)
	_, err = m.Rescan(t.Context(), "vol", size+1)
	wantError(t, err, provisioner.ErrUnavailable, "yet")
	got, err := m.Rescan(t.Context(), "vol", size)
	if errors.Is(err, hostdev.ErrPrivilege) { // then it grows when it is opened next
		wantError(t, err, provisioner.ErrPrecondition, "CAP_SYS_RESOURCE")
		noError(t, m.Host.Close(t.Context(), "vol", ""))
		m.opened(t, o)
		got, err = m.Rescan(t.Context(), "vol", size)
	}
	if err != nil || got != size {
		t.Errorf("rescan: %d, %v, want %d", got, err, size)
	}
	more := fill(t, filepath.Join(dir, "more"))
	if sum := small + more; sum < 32*mib || sum > 48*mib {
		t.Errorf("a volume of 48 MiB took %d bytes", sum)
	}
	_, err = m.Rescan(t.Context(), "other", 0)
	wantError(t, err, provisioner.ErrNotFound, "not open")
}

// A volume that grew while it was closed, or was copied into a larger one, is as
// large as it is when it is opened.
func TestGrowsWhenOpened(t *testing.T) {
	m := newMachine(t)
	o := m.made(t, "vol")
	noError(t, os.WriteFile(filepath.Join(m.opened(t, o), "f"), []byte("kept"), 0o600))
	larger := spec("copy", 48*mib)
	v, err := m.CreateFrom(t.Context(), larger, provisioner.Source{VolumeID: "vol"})
	noError(t, err)
	dir := m.opened(t, m.attach(t, v, false))
	if got, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(got) != "kept" {
		t.Errorf("the copy of a volume in use holds %q, %v", got, err)
	}
	if n := fill(t, filepath.Join(dir, "more")); n < 32*mib {
		t.Errorf("a copy of 48 MiB took %d bytes", n)
	}
}

// A volume is taken from this machine only when nothing here uses its image.
func TestDetachIsAProof(t *testing.T) {
	m, ctx := newMachine(t), t.Context()
	o := m.made(t, "vol")
	dir := m.opened(t, o)
	wantError(t, m.Detach(ctx, "vol", node), provisioner.ErrUnavailable, "has its directory open")
	pod := filepath.Join(filepath.Dir(m.o.Dir), "pod")
	noError(t, os.Mkdir(pod, 0o750))
	noError(t, unix.Mount(dir, pod, "", unix.MS_BIND, ""))
	wantError(t, m.Host.Close(ctx, "vol", "vol"), provisioner.ErrBusy, pod)
	noError(t, unix.Unmount(pod, 0))
	held, err := os.Create(filepath.Join(dir, "held"))
	noError(t, err)
	wantError(t, m.Host.Close(ctx, "vol", "vol"), provisioner.ErrBusy, "a process may still use it")
	noError(t, unix.Unmount(m.path("vol"), unix.MNT_DETACH)) // behind the driver's back
	wantError(t, m.Host.Close(ctx, "vol", "vol"), provisioner.ErrBusy, "left behind")
	m.restart(t)
	wantError(t, m.Detach(ctx, "vol", node), provisioner.ErrUnavailable, "has its directory open")
	noError(t, held.Close())
	noError(t, m.Host.Close(ctx, "vol", "vol"))
	noError(t, m.Detach(ctx, "vol", node))
	_, err = m.Open(ctx, o)
	wantError(t, err, provisioner.ErrPrecondition, "not attached")
	if _, err := os.Lstat(m.path("vol")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left of the volume: %v", err)
	}
	noError(t, m.Delete(ctx, "vol"))
	left, err := os.ReadDir(m.o.TargetDir)
	noError(t, err)
	for _, e := range left {
		if strings.HasPrefix(e.Name(), "vol") {
			t.Errorf("left in the target directory: %s", e.Name())
		}
	}
}

// After a reboot nothing is mounted, and no volume counts as open.
func TestReboot(t *testing.T) {
	m, ctx := newMachine(t), t.Context()
	o := m.made(t, "vol")
	dir := m.opened(t, o)
	noError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("kept"), 0o600))
	noError(t, unix.Unmount(m.path("vol"), 0))
	m.restart(t)
	if open, err := m.Host.List(ctx); err != nil || len(open) != 0 {
		t.Errorf("open after a reboot: %v, %v", open, err)
	}
	if got, err := os.ReadFile(filepath.Join(m.opened(t, o), "f")); err != nil || string(got) != "kept" {
		t.Errorf("after a reboot the volume holds %q, %v", got, err)
	}
	noError(t, unix.Unmount(m.path("vol"), 0))
	m.restart(t)
	noError(t, m.Detach(ctx, "vol", node))
}

func TestReadOnly(t *testing.T) {
	m, ctx := newMachine(t), t.Context()
	v, err := m.Create(ctx, spec("vol", 16*mib))
	noError(t, err)
	_, err = m.Open(ctx, m.attach(t, v, true))
	wantError(t, err, provisioner.ErrPrecondition, "use the volume once for writing")
	noError(t, m.Detach(ctx, "vol", node))
	m.opened(t, m.attach(t, v, false))
	noError(t, m.Host.Close(ctx, "vol", ""))
	noError(t, m.Detach(ctx, "vol", node))
	o := m.attach(t, v, true)
	dir := m.opened(t, o)
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("write to a volume that is attached for reading: %v, want EROFS", err)
	}
	_, err = m.Expand(ctx, "vol", 32*mib, 0)
	noError(t, err)
	if n, err := m.Rescan(ctx, "vol", 32*mib); err != nil || n != 32*mib {
		t.Errorf("rescan of what is read alone: %d, %v", n, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	m, ctx := newMachine(t), t.Context()
	o := m.made(t, "vol")
	raw, foreign, none := o, o, o
	raw.Mode = provisioner.Block
	foreign.PublishContext = nil
	none.VolumeID = "../vol"
	for words, o := range map[string]provisioner.OpenSpec{"ask for volumeMode Filesystem": raw, "attached by this driver": foreign, `"../vol"`: none} {
		_, err := m.Open(ctx, o)
		wantError(t, err, provisioner.ErrInvalid, words)
	}
	noError(t, exec.Command("mkswap", m.image("vol")).Run())
	_, err := m.Open(ctx, o)
	wantError(t, err, provisioner.ErrPrecondition, "holds swap")
	noError(t, os.Remove(m.image("vol")))
	_, err = m.Open(ctx, o)
	wantError(t, err, provisioner.ErrPrecondition, "its image is gone")
	noError(t, m.Detach(ctx, "vol", node)) // nothing of a failed open is left
}

// A file system that stands still is one of an instant, goes on after it, and goes on
// at the next start if the process ended in between.
func TestStandstill(t *testing.T) {
	m, ctx := newMachine(t), t.Context()
	file := filepath.Join(m.opened(t, m.made(t, "vol")), "f")
	wrote := make(chan error, 1)
	err := m.Standstill(ctx, []string{"vol", "not-mounted"}, func(context.Context) error {
		go func() { wrote <- os.WriteFile(file, []byte("after"), 0o600) }()
		select {
		case err := <-wrote:
			t.Errorf("written while it stands still: %v", err)
		default:
		}
		wantError(t, m.Host.Close(ctx, "vol", ""), provisioner.ErrBusy, "under way")
		if err := unix.Unmount(m.path("vol"), 0); !errors.Is(err, unix.EBUSY) {
			t.Errorf("unmounted while it stands still: %v", err)
		}
		other, err := New(m.o) // which lets it go on
		noError(t, err)
		noError(t, <-wrote)
		root, err := os.Open(m.path("vol"))
		noError(t, err)
		defer root.Close()
		noError(t, request(root, freezeRequest))
		err = other.Standstill(ctx, []string{"vol"}, func(context.Context) error { return nil })
		wantError(t, err, provisioner.ErrBusy, "another process has it stand still")
		return m.Standstill(ctx, []string{"vol"}, func(context.Context) error { return nil })
	})
	wantError(t, err, provisioner.ErrBusy, "under way")
	noError(t, os.WriteFile(file, []byte("after"), 0o600))
	root, err := os.Open(m.path("vol"))
	noError(t, err)
	noError(t, errors.Join(request(root, freezeRequest), root.Close()))
	m.restart(t)
	noError(t, os.WriteFile(file, []byte("again"), 0o600))
}

// What was written, and not synced, is in a snapshot.
func TestSnapshotOfAVolumeInUse(t *testing.T) {
	m, ctx := newMachine(t), t.Context()
	dir := m.opened(t, m.made(t, "vol"))
	noError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("kept"), 0o600))
	p := m.Platform()
	_, err := p.Snapshots.Create(ctx, provisioner.SnapshotSpec{Name: "snap", VolumeID: "vol"})
	noError(t, err)
	noError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("newer"), 0o600))
	v, err := m.CreateFrom(ctx, spec("restored", 16*mib), provisioner.Source{SnapshotID: "snap"})
	noError(t, err)
	got, err := os.ReadFile(filepath.Join(m.opened(t, m.attach(t, v, false)), "f"))
	if diff := cmp.Diff("kept", string(got)); diff != "" || err != nil {
		t.Errorf("restored (-want +got): %s, %v", diff, err)
	}
}

// standstill is the data path of file systems alone.
type standstill struct{ m *machine }

func (s standstill) Pause(ctx context.Context, ids []string, during func(context.Context) error) error {
	return s.m.Standstill(ctx, ids, during)
}

func (standstill) Adjust(context.Context, string) error { return nil }

// unused is a target that no file system is behind.
type unused struct{ t *testing.T }

func (u unused) Revoke(_ context.Context, volume, _ string) error {
	u.t.Errorf("the target was asked about volume %s", volume)
	return nil
}

// The smallest volume holds a file system, and a limit below it is refused.
func TestSmallestVolume(t *testing.T) {
	m, ctx := newMachine(t), t.Context()
	v, err := m.Create(ctx, spec("least", 1))
	if err != nil || v.CapacityBytes != hostdev.LeastBytes(Type) {
		t.Errorf("made %+v, %v", v, err)
	}
	m.opened(t, m.attach(t, v, false))
	tight := spec("tight", 1)
	tight.LimitBytes = hostdev.LeastBytes(Type) - 1
	_, err = m.Create(ctx, tight)
	wantError(t, err, provisioner.ErrOutOfRange, "more than the limit")
}
