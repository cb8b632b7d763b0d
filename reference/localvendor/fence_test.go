package localvendor

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/moor-storage/moor/internal/freeport"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// fencer is a target whose answers to a fence a test chooses.
type fencer struct {
	revoker
	fence func(volumeID string, epoch int64) error
}

func (f fencer) Fence(_ context.Context, volumeID string, epoch int64) error {
	return f.fence(volumeID, epoch)
}

func fencingOptions(fence func(string, int64) error) Options {
	f := fencer{willing, fence}
	return Options{Target: &Target{Address: "target:10809", Revoker: f, Fencer: f}}
}

// TestFenceFailsClosed: the record says that epochs are over before the target is asked,
// and says so still when the target cannot be asked; only its answer is an answer.
func TestFenceFailsClosed(t *testing.T) {
	var s *Storage
	var asked []int64
	away := true
	s = openStorage(t, fencingOptions(func(volume string, epoch int64) error {
		if have, _, err := s.load(volume); err != nil || have.Fenced < epoch {
			t.Errorf("the target is asked before epoch %d is on record: %+v, %v", epoch, have, err)
		}
		asked = append(asked, epoch)
		if away {
			return errors.New("no answer")
		}
		return nil
	}))
	create(t, s, spec("one"))
	e := attach(t, s, "one", "dpu-1")
	for range 2 {
		if err := s.Fence(t.Context(), "one", 4); !errors.Is(err, provisioner.ErrUnavailable) {
			t.Fatalf("fence with the target away: %v", err)
		}
	}
	if g, err := (Grants{Dir: s.dir}).Grant(e.Volume, e.Node); err != nil || g.Fenced != 4 {
		t.Fatalf("the target would open what is over: %+v, %v", g, err)
	}
	away = false
	for _, epoch := range []int64{4, 2} { // an earlier one is asked as well: its answer is the target's to give
		if err := s.Fence(t.Context(), "one", epoch); err != nil {
			t.Fatal(err)
		}
	}
	if have, _, err := s.load("one"); err != nil || have.Fenced != 4 || len(asked) != 4 {
		t.Fatalf("record %+v, %v, asked %v", have, err, asked)
	}
}

// TestFenceOutlives: what has to do with the volume otherwise does not touch its epochs,
// and a copy of it has none.
func TestFenceOutlives(t *testing.T) {
	s := openStorage(t, fencingOptions(func(string, int64) error { return nil }))
	create(t, s, spec("one"))
	if err := s.Fence(t.Context(), "one", 4); err != nil {
		t.Fatal(err)
	}
	attach(t, s, "one", "dpu-1")
	if err := s.Detach(t.Context(), "one", "dpu-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Expand(t.Context(), "one", 8*mib, 0); err != nil {
		t.Fatal(err)
	}
	create(t, s, spec("one"))
	copied := spec("two")
	copied.CapacityBytes = 8 * mib
	if _, err := s.CreateFrom(t.Context(), copied, provisioner.Source{VolumeID: "one"}); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]int64{"one": 4, "two": 0} {
		if have, _, err := s.load(id); err != nil || have.Fenced != want {
			t.Errorf("volume %s is fenced below %d, want %d: %v", id, have.Fenced, want, err)
		}
	}
}

func TestFencingIsOffered(t *testing.T) {
	if p := openStorage(t, targetOptions(revoker(willing))).Platform(); p.Fencing != nil {
		t.Error("a target that knows no epochs fences")
	}
	s := openStorage(t, fencingOptions(func(string, int64) error { return nil }))
	if p := s.Platform(); p.Fencing == nil {
		t.Error("a target that knows epochs does not fence")
	}
	shared := spec("shared")
	shared.Mode, shared.AccessModes = provisioner.Filesystem, []provisioner.AccessMode{provisioner.ReadWriteMany}
	create(t, s, shared)
	if err := s.Fence(t.Context(), "shared", 1); !errors.Is(err, provisioner.ErrUnsupported) {
		t.Errorf("fence a directory: %v", err)
	}
}

// epochSite is the controller with a target that both can be started anew.
type epochSite struct {
	t            *testing.T
	dir, address string
	s            *Storage
	stop         func()
	// opened are the devices, by volume and node.
	opened map[string]io.Closer
}

func (e *epochSite) start() {
	e.t.Helper()
	store, err := StoreID(e.dir)
	if err != nil {
		e.t.Fatal(err)
	}
	server := blocktarget.NewServer(blocktarget.Options{Grants: Grants{Dir: e.dir}})
	tcp, err := net.Listen("tcp", e.address)
	if err != nil {
		e.t.Fatal(err)
	}
	socket := filepath.Join(e.t.TempDir(), "a")
	unix, err := blocktarget.ListenAdmin(socket)
	if err != nil {
		e.t.Fatal(err)
	}
	admin := blocktarget.NewAdmin(socket, store, time.Minute)
	if e.s, err = Open(Options{TargetDir: e.dir, Target: &Target{Address: e.address, Revoker: admin, Fencer: admin}}); err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- server.Serve(ctx, tcp) }()
	go func() { done <- blocktarget.ServeAdmin(ctx, unix, server.AdminHandler(store)) }()
	e.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, <-done, e.s.Close()); err != nil {
			e.t.Error(err)
		}
	})
}

// open opens the volume at the target as a DPU does: instead of what it has open. A device that
// it left open would come back whenever it lost the target, and take the place of the next one.
func (e *epochSite) open(t *testing.T, id, node string, epoch int64) (func() error, error) {
	modes := []provisioner.AccessMode{provisioner.ReadWriteMany} // several nodes beside each other
	a, err := e.s.Attach(t.Context(), provisioner.AttachSpec{VolumeID: id, Node: node, AccessModes: modes})
	if err != nil {
		return nil, err
	}
	export, err := blocktarget.ParseExport(a.PublishContext[records.ContextTargetExport])
	if err != nil {
		return nil, err
	}
	if before := e.opened[id+"@"+node]; before != nil {
		_ = before.Close()
	}
	d, err := blocktarget.OpenDevice(t.Context(), blocktarget.DeviceOptions{Address: e.address, Export: export.At(epoch).String()})
	if err != nil {
		return nil, err
	}
	e.opened[id+"@"+node] = d
	t.Cleanup(func() { _ = d.Close() })
	return func() error {
		_, err := d.WriteAt([]byte("x"), 0)
		return err
	}, nil
}

// TestKeepsTheFencingContract through the admin socket and the real target.
func TestKeepsTheFencingContract(t *testing.T) {
	provisionertest.TestFencing(t, func(t *testing.T) provisionertest.FencingUnderTest {
		address, err := freeport.Address()
		if err != nil {
			t.Fatal(err)
		}
		e := &epochSite{t: t, dir: t.TempDir(), address: address, opened: map[string]io.Closer{}}
		e.start()
		t.Cleanup(func() { e.stop() })
		return provisionertest.FencingUnderTest{
			Fencing: fencing{e},
			Volume: func(t *testing.T, name string) string {
				v := spec(name)
				v.AccessModes = append(v.AccessModes, provisioner.ReadWriteMany)
				return create(t, e.s, v).ID
			},
			Open:    e.open,
			Restart: func(*testing.T) { e.stop(); e.start() },
		}
	})
}

// fencing is the Fencing of whichever controller runs.
type fencing struct{ e *epochSite }

func (f fencing) Fence(ctx context.Context, id string, epoch int64) error {
	return f.e.s.Fence(ctx, id, epoch)
}
