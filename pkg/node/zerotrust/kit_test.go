package zerotrust

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/mount-utils"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func block(n int, id string) hostdev.Block {
	name := fmt.Sprintf("nvme%dn1", n)
	return hostdev.Block{Name: name, Path: "/dev/" + name, Address: fmt.Sprintf("0000:3b:00.%d", n), NamespaceID: 1, UUID: id}
}

// world is a host whose devices are files, and a node service that keeps a
// mount table.
type world struct {
	t       *testing.T
	finder  *hostdev.Finder
	clock   *clocktesting.FakeClock
	changed chan struct{}

	// called has a place for the news that there are more calls.
	called chan struct{}

	mu     sync.Mutex
	mounts []mount.MountPoint
	calls  []string
	fail   error
}

func newWorld(t *testing.T) (*world, *Agent) {
	root := t.TempDir()
	w := &world{
		t: t, clock: clocktesting.NewFakeClock(time.Unix(0, 0)), changed: make(chan struct{}, 1), called: make(chan struct{}, 1),
		finder: &hostdev.Finder{Roots: hostdev.Roots{Sysfs: filepath.Join(root, "sys"), Dev: filepath.Join(root, "dev")}},
	}
	return w, New(Options{Finder: w.finder, Node: w, Watcher: w, Mounts: w.list, Period: time.Minute, Clock: w.clock})
}

func (w *world) dir(n int) string {
	return filepath.Join(w.finder.Roots.Sysfs, fmt.Sprintf("bus/pci/drivers/nvme/0000:3b:00.%d/nvme/nvme%d/nvme%dn1", n, n, n))
}

func (w *world) show(n int, id string) {
	w.t.Helper()
	for path, text := range map[string]string{
		filepath.Join(w.dir(n), "size"): "2048\n", filepath.Join(w.dir(n), "uuid"): id + "\n",
		filepath.Join(w.finder.Roots.Dev, fmt.Sprintf("nvme%dn1", n)): "", filepath.Join(w.dir(n), "nsid"): "1\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) hide(n int) {
	w.t.Helper()
	if err := os.RemoveAll(w.dir(n)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) tell() {
	select {
	case w.changed <- struct{}{}:
	default: // one is pending, and comes after this change
	}
}

func (w *world) Changed() <-chan struct{} { return w.changed }

func (w *world) list() ([]mount.MountPoint, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.mounts), nil
}

func (w *world) NodeStageVolume(ctx context.Context, req *csispec.NodeStageVolumeRequest) (*csispec.NodeStageVolumeResponse, error) {
	d, err := NewHost(w.finder).Open(ctx, provisioner.OpenSpec{VolumeID: req.GetVolumeId(), PublishContext: req.GetPublishContext()})
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m := req.GetVolumeCapability().GetMount()
	call := fmt.Sprintf("stage %s %s %s %v %s", d.Name, req.GetStagingTargetPath(), m.GetFsType(), m.GetMountFlags(), req.GetVolumeCapability().GetAccessMode().GetMode())
	if w.fail == nil && !slices.Contains(w.calls, call) {
		m := mount.MountPoint{Device: d.Path, Path: req.GetStagingTargetPath()}
		if d.Tag != "" {
			m.Device, m.Type = d.Tag, sharedType
		}
		w.mounts = append(w.mounts, m)
		w.record(call)
	}
	return &csispec.NodeStageVolumeResponse{}, w.fail
}

func (w *world) NodeUnstageVolume(_ context.Context, req *csispec.NodeUnstageVolumeRequest) (*csispec.NodeUnstageVolumeResponse, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record("unstage " + req.GetStagingTargetPath())
	w.mounts = slices.DeleteFunc(w.mounts, func(m mount.MountPoint) bool { return m.Path == req.GetStagingTargetPath() })
	return &csispec.NodeUnstageVolumeResponse{}, w.fail
}

// record notes a call; the lock is held.
func (w *world) record(call string) {
	w.calls = append(w.calls, call)
	select {
	case w.called <- struct{}{}:
	default: // the news is waiting to be read
	}
}

func (w *world) want(calls ...string) {
	w.t.Helper()
	for deadline := time.After(30 * time.Second); ; {
		w.mu.Lock()
		diff := cmp.Diff(calls, w.calls)
		w.mu.Unlock()
		if diff == "" {
			return
		}
		select {
		case <-w.called:
		case <-deadline:
			w.t.Fatalf("(-want +got):\n%s", diff)
		}
	}
}

func entry(t *testing.T, words ...string) Entry {
	t.Helper()
	e, err := parseLine(words)
	if err != nil {
		t.Fatal(err)
	}
	return e
}
