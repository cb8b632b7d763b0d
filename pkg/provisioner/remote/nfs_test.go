package remote_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/pkg/provisioner/remote"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/fault"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

// table is a mount table in memory.
type table struct {
	mu     sync.Mutex
	at     map[string]string
	failed error
}

func (m *table) At(path string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at[path], nil
}

func (m *table) Mount(_ context.Context, source, path, _ string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := os.Stat(path); err != nil || m.failed != nil {
		return errors.Join(err, m.failed)
	}
	m.at[path] = source
	return nil
}

func (m *table) Unmount(_ context.Context, path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed == nil {
		delete(m.at, path)
	}
	return m.failed
}

// nas is a SNAP service and the shares of its DPU.
type nas struct {
	*snapemulatortest.Service
	*table
	dir, state string
}

func newNAS(t *testing.T) *nas {
	return &nas{
		snapemulatortest.Start(t, snapemulator.Options{Hotplug: snapemulator.Hotplug{Slots: 2}}),
		&table{at: map[string]string{}}, t.TempDir(), t.TempDir(),
	}
}

func (n *nas) host() *remote.NFS { return remote.NewNFS(n.Client, n.table, n.dir, n.state) }

func volume(_ *testing.T, name string) provisioner.OpenSpec {
	return provisioner.OpenSpec{
		VolumeID: name, Mode: provisioner.Filesystem,
		VolumeContext: map[string]string{"server": "nas", "share": "/exports", "subdir": name},
	}
}

// seen is what there is of a device.
func (n *nas) seen(t *testing.T) string {
	t.Helper()
	devs, err := n.FsdevGetFsdevs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dirs, _ := os.ReadDir(n.dir)
	records, _ := os.ReadDir(n.state)
	return fmt.Sprintf("%d fsdevs, %d mounts, %d directories, %d records", len(devs), len(n.at), len(dirs), len(records))
}

const (
	nothing = "0 fsdevs, 0 mounts, 0 directories, 0 records"
	whole   = "1 fsdevs, 1 mounts, 1 directories, 1 records"
)

func (n *nas) want(t *testing.T, when, want string) {
	t.Helper()
	if got := n.seen(t); got != want {
		t.Fatalf("%s: %s, want %s", when, got, want)
	}
}

func TestNFSKeepsTheContract(t *testing.T) {
	n := newNAS(t)
	provisionertest.TestHost(t, func(t *testing.T) provisionertest.HostUnderTest {
		n.Restart()
		n.dir, n.state, n.table = t.TempDir(), t.TempDir(), &table{at: map[string]string{}}
		return provisionertest.HostUnderTest{Host: n.host(), Prepare: volume}
	})
}

func TestNFSOpensAsNVIDIADoes(t *testing.T) {
	n, ctx := newNAS(t), t.Context()
	d, err := n.host().Open(ctx, volume(t, "a"))
	if want := (provisioner.Device{VolumeID: "a", Name: "af63dc4c8601ec8c", Mode: provisioner.Filesystem}); err != nil || d != want {
		t.Fatalf("got %+v, %v; want %+v", d, err, want)
	}
	root := filepath.Join(n.dir, d.Name)
	if diff := cmp.Diff(map[string]string{root: "nas:/exports/a"}, n.at); diff != "" {
		t.Fatal(diff)
	}
	devs, err := n.FsdevGetFsdevs(ctx)
	if err != nil || len(devs) != 1 || devs[0].Name != d.Name || devs[0].Module.RootPath != root {
		t.Fatalf("snap shows %+v, %v", devs, err)
	}
	if err := n.host().Close(ctx, "a", d.Name); err != nil {
		t.Fatal(err)
	}
	n.want(t, "after close", nothing)
}

func TestNFSAfterSNAPRestarts(t *testing.T) {
	n, ctx := newNAS(t), t.Context()
	d, err := n.host().Open(ctx, volume(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	n.Restart()
	if _, err := n.host().Lookup(ctx, "a"); !errors.Is(err, provisioner.ErrNotFound) {
		t.Fatalf("after SNAP lost its devices: %v", err)
	}
	if again, err := n.host().Open(ctx, volume(t, "a")); err != nil || again != d {
		t.Fatalf("opened %+v, %v", again, err)
	}
	n.want(t, "after a restart", whole)
}

// TestNFSBareDirectory: an fsdev whose share is gone would take writes that
// are never found again.
func TestNFSBareDirectory(t *testing.T) {
	n, ctx := newNAS(t), t.Context()
	d, err := n.host().Open(ctx, volume(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	delete(n.at, filepath.Join(n.dir, d.Name)) // it was unmounted by another
	if got, err := n.host().Lookup(ctx, "a"); !errors.Is(err, provisioner.ErrNotFound) {
		t.Fatalf("a bare directory passes for the device: %+v, %v", got, err)
	}
	if all, err := n.host().List(ctx); err != nil || len(all) != 0 {
		t.Fatalf("a bare directory is listed: %+v, %v", all, err)
	}
	n.Inject(fault.Fault{Method: "fsdev_aio_delete", Error: busy})
	if _, err := n.host().Open(ctx, volume(t, "a")); !errors.Is(err, provisioner.ErrInUse) || !strings.Contains(err.Error(), "no longer mounted") {
		t.Fatalf("while the host has it: %v", err)
	}
	if _, err := n.host().Open(ctx, volume(t, "a")); err != nil {
		t.Fatal(err)
	}
	n.want(t, "made anew", whole)
}

func TestNFSRefusals(t *testing.T) {
	for _, tc := range []struct {
		name  string
		bring func(*nas, *provisioner.OpenSpec)
		want  error
		left  string
	}{
		{"block", func(_ *nas, s *provisioner.OpenSpec) { s.Mode = provisioner.Block }, provisioner.ErrUnsupported, nothing},
		{"no share", func(_ *nas, s *provisioner.OpenSpec) { s.VolumeContext = nil }, provisioner.ErrInvalid, nothing},
		{"the server refuses", func(n *nas, _ *provisioner.OpenSpec) { n.failed = errors.New("access denied by server") }, provisioner.ErrPrecondition, nothing},
		{"snap refuses", func(n *nas, _ *provisioner.OpenSpec) {
			n.Inject(fault.Fault{Method: "fsdev_aio_create", Error: internal})
		}, provisioner.ErrPrecondition, nothing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n, spec := newNAS(t), volume(t, "a")
			tc.bring(n, &spec)
			if _, err := n.host().Open(t.Context(), spec); !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			n.want(t, "left behind", tc.left)
		})
	}
}

func TestNFSMovedShare(t *testing.T) {
	n, ctx := newNAS(t), t.Context()
	if _, err := n.host().Open(ctx, volume(t, "a")); err != nil {
		t.Fatal(err)
	}
	moved := volume(t, "a")
	moved.VolumeContext["server"] = "nas2"
	if _, err := n.host().Open(ctx, moved); !errors.Is(err, provisioner.ErrExists) {
		t.Fatalf("moved while it is open: %v", err)
	}
	n.Restart() // nothing uses the old mount any more
	if _, err := n.host().Open(ctx, moved); err != nil {
		t.Fatal(err)
	}
	n.want(t, "moved", whole)
	for _, source := range n.at {
		if source != "nas2:/exports/a" {
			t.Fatalf("mounted is %s", source)
		}
	}
}

func TestNFSUnmountFails(t *testing.T) {
	n, ctx := newNAS(t), t.Context()
	if _, err := n.host().Open(ctx, volume(t, "a")); err != nil {
		t.Fatal(err)
	}
	n.failed = errors.New("target is busy")
	if err := n.host().Close(ctx, "a", ""); !provisioner.Uncertain(err) {
		t.Fatalf("got %v, want one to repeat", err)
	}
	n.failed = nil
	if err := n.host().Close(ctx, "a", ""); err != nil {
		t.Fatal(err)
	}
	n.want(t, "closed at last", nothing)
}

func TestNFSWithoutRecords(t *testing.T) {
	n, ctx := newNAS(t), t.Context()
	d, err := n.host().Open(ctx, volume(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	n.state = t.TempDir()
	if got, err := n.host().Lookup(ctx, "a"); err != nil || got != d {
		t.Fatalf("looked up %+v, %v", got, err)
	}
	if _, err := n.host().Open(ctx, volume(t, "a")); err != nil {
		t.Fatal(err)
	}
	if all, err := n.host().List(ctx); err != nil || len(all) != 1 || all[0] != d {
		t.Fatalf("listed %+v, %v", all, err)
	}
}
