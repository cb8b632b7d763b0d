package snap

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/freeport"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/snapemulator"
)

// target is a block target that can be stopped and started again, with one volume "v".
type target struct {
	t             *testing.T
	address, file string
	// denies is true once it lets no DPU have the volume.
	denies bool
	stop   func()
}

// Grant implements blocktarget.Grants.
func (g *target) Grant(string, string) (blocktarget.Grant, error) {
	if g.denies {
		return blocktarget.Grant{}, blocktarget.ErrDenied
	}
	return blocktarget.Grant{File: g.file, TokenHash: blocktarget.HashToken("t")}, nil
}

// start runs the target until stop or the end of the test.
func (g *target) start() {
	g.t.Helper()
	l, err := net.Listen("tcp", g.address)
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- blocktarget.NewServer(blocktarget.Options{Grants: g}).Serve(ctx, l) }()
	g.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			g.t.Error(err)
		}
	})
	g.t.Cleanup(g.stop)
}

// overTarget is a DPU with the device "vol" over a target.
func overTarget(t *testing.T) (*testService, *DPU, *target) {
	t.Helper()
	g := &target{t: t, file: filepath.Join(t.TempDir(), "v.img")}
	var err error
	if g.address, err = freeport.Address(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(g.file, nil, 0o600), os.Truncate(g.file, 1<<20)); err != nil {
		t.Fatal(err)
	}
	g.start()
	s := newService(t)
	if _, err := s.rpc.BdevMoorTargetCreate(t.Context(), snaprpc.TargetSpec{Name: "vol", Address: g.address, Export: "v@dpu-1#t"}); err != nil {
		t.Fatal(err)
	}
	return s, New(s.rpc, service.Options{}), g
}

// pathOf is the path of the device "vol".
func pathOf(t *testing.T, d *DPU) provisioner.Path {
	t.Helper()
	got, err := d.Paths(t.Context(), []string{"vol"})
	if err != nil || len(got) != 1 || got[0].Device != "vol" {
		t.Fatalf("%+v, %v", got, err)
	}
	return got[0]
}

// untilPath asks until the path of "vol" has a state.
func untilPath(t *testing.T, d *DPU, want provisioner.PathState) provisioner.Path {
	t.Helper()
	tick, deadline := time.NewTicker(2*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for {
		got := pathOf(t, d)
		if got.State == want {
			return got
		}
		select {
		case <-deadline:
			t.Fatalf("not in time: %s, the path is %+v", want, got)
		case <-tick.C:
		}
	}
}

func TestPathFollowsTheTarget(t *testing.T) {
	_, d, g := overTarget(t)
	if _, err := d.Expose(t.Context(), vfOf("vol")); err != nil {
		t.Fatal(err)
	}
	if got := pathOf(t, d); got.State != provisioner.PathConnected || got.Detail != snaprpc.PathEnabled || got.InFlight != -1 {
		t.Fatalf("at first %+v", got)
	}
	for range 2 {
		if got := pathOf(t, d); got.InFlight != 0 || got.State != provisioner.PathConnected {
			t.Fatalf("sampled %+v", got)
		}
		if err := d.ProbePath(t.Context(), "vol"); err != nil {
			t.Fatal(err)
		}
		g.stop()
		if got := untilPath(t, d, provisioner.PathReconnecting); got.Detail != snaprpc.PathReconnectIsDelayed {
			t.Fatalf("lost %+v", got)
		}
		if err := d.ProbePath(t.Context(), "vol"); !errors.Is(err, provisioner.ErrUnavailable) {
			t.Fatalf("a target that was stopped answers: %v", err)
		}
		g.start()
		untilPath(t, d, provisioner.PathConnected)
	}
	g.stop()
	g.denies = true
	g.start()
	untilPath(t, d, provisioner.PathFailed)
	if err := d.ProbePath(t.Context(), "vol"); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("a target that refuses answers: %v", err)
	}
}

// TestPathsOfDifferentDevices: what has no connection of its own is listed, and cannot be
// asked.
func TestPathsOfDifferentDevices(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "nqn.a.img")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 1<<20)); err != nil {
		t.Fatal(err)
	}
	s := serviceWith(t, snapemulator.Options{FabricDir: dir, Hotplug: snapemulator.Hotplug{Slots: 2}})
	d, ctx := New(s.rpc, service.Options{}), t.Context()
	s.addDevice("null")
	s.addFS("dir")
	if _, err := s.rpc.BdevNvmeAttachController(ctx, "nvme_a", snaprpc.TransportID{TrType: "TCP", AdrFam: "IPv4", TrAddr: "192.0.2.1", TrSvcID: "4420", SubNQN: "nqn.a"}); err != nil {
		t.Fatal(err)
	}
	want := []provisioner.Path{
		{Device: "dir", InFlight: -1}, {Device: "null"}, {Device: "nvme_an1", State: provisioner.PathConnected, Detail: "enabled", Connections: "nqn.a at TCP 192.0.2.1 port 4420 controller 1"},
	}
	if _, err := d.Paths(ctx, []string{"null", "nvme_an1"}); err != nil { // begins the sampling
		t.Fatal(err)
	}
	got, err := d.Paths(ctx, []string{"nvme_an1", "none", "nvme_a", "dir", "nvme_an2", "null", "dir"})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	for device, want := range map[string]error{
		"nvme_an1": nil, "dir": provisioner.ErrUnsupported, "null": provisioner.ErrUnsupported,
		"none": provisioner.ErrNotFound, "nvme_an2": provisioner.ErrNotFound, "nvme_a": provisioner.ErrNotFound, "": provisioner.ErrNotFound,
	} {
		if err := d.ProbePath(ctx, device); !errors.Is(err, want) {
			t.Errorf("ask the storage of %q: %v, want %v", device, err, want)
		}
	}
}

// TestPathsOfAServiceThatLacksMethods: what it does not know is not known.
func TestPathsOfAServiceThatLacksMethods(t *testing.T) {
	connected := provisioner.Path{Device: "vol", State: provisioner.PathConnected, Detail: "enabled"}
	unsampled, unknown := connected, connected
	unsampled.InFlight = -1
	unknown.State, unknown.Detail = provisioner.PathUnknown, ""
	for method, want := range map[string]struct {
		path  provisioner.Path
		probe error
	}{
		"bdev_nvme_get_controllers":            {unknown, provisioner.ErrUnsupported},
		"bdev_nvme_get_controller_health_info": {connected, provisioner.ErrUnsupported},
		"bdev_get_iostat":                      {unsampled, nil},
		"bdev_set_qd_sampling_period":          {unsampled, nil},
	} {
		t.Run(method, func(t *testing.T) {
			s, d, _ := overTarget(t)
			s.inject(map[string]any{"method": method, "count": -1, "error": map[string]any{"code": -32601, "message": "Method not found"}})
			pathOf(t, d) // begins the sampling
			got := pathOf(t, d)
			if named := strings.HasSuffix(got.Connections, " controller 1"); named != (got.State == provisioner.PathConnected) {
				t.Errorf("the way is %+v", got)
			}
			got.Connections = ""
			if diff := cmp.Diff(want.path, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err := d.ProbePath(t.Context(), "vol"); !errors.Is(err, want.probe) {
				t.Errorf("ask the storage: %v, want %v", err, want.probe)
			}
		})
	}
}

// TestPathsOfABrokenService: a service that fails says nothing about what is there.
func TestPathsOfABrokenService(t *testing.T) {
	for method, fails := range map[string]struct{ paths, probe bool }{
		"bdev_get_bdevs":            {probe: true}, // the counts tell which there are
		"bdev_nvme_get_controllers": {true, true},
		"bdev_get_iostat":           {paths: true},
	} {
		t.Run(method, func(t *testing.T) {
			s, d, _ := overTarget(t)
			s.inject(map[string]any{"method": method, "count": -1, "error": map[string]any{"code": -19, "message": "No such device"}})
			if got, err := d.Paths(t.Context(), []string{"vol"}); errors.Is(err, provisioner.ErrUnavailable) != fails.paths || (got == nil) != fails.paths || errors.Is(err, provisioner.ErrSilent) {
				t.Errorf("paths %+v, %v", got, err)
			}
			if err := d.ProbePath(t.Context(), "vol"); errors.Is(err, provisioner.ErrUnavailable) != fails.probe || (err != nil) != fails.probe {
				t.Errorf("ask the storage: %v", err)
			}
		})
	}
}

// TestPathsOfASilentService: one that hangs, and one that is gone, are told from one that refuses.
func TestPathsOfASilentService(t *testing.T) {
	s, hangs, _ := overTarget(t)
	s.inject(map[string]any{"method": "bdev_get_iostat", "hang": true})
	gone := New(snaprpc.New(filepath.Join(t.TempDir(), "none.sock"), time.Second), service.Options{})
	for name, d := range map[string]*DPU{"hangs": hangs, "gone": gone} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if got, err := d.Paths(ctx, []string{"vol"}); !errors.Is(err, provisioner.ErrSilent) || !errors.Is(err, provisioner.ErrUnavailable) || got != nil {
			t.Errorf("%s: paths %+v, %v", name, got, err)
		}
		cancel()
	}
}

// TestProbeOfStorageThatSaysNothing ends with the caller's patience.
func TestProbeOfStorageThatSaysNothing(t *testing.T) {
	s, d, _ := overTarget(t)
	s.inject(map[string]any{"method": "bdev_nvme_get_controller_health_info", "hang": true})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := d.ProbePath(ctx, "vol"); !errors.Is(err, provisioner.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}
