package snapemulator_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/datapath"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

// overTarget starts an emulator with one bdev "vol" over the target at the address.
func overTarget(t *testing.T, o snapemulator.Options, address string) *snapemulatortest.Service {
	t.Helper()
	s := snapemulatortest.Start(t, o)
	if _, err := s.BdevMoorTargetCreate(t.Context(), snaprpc.TargetSpec{Name: "vol", Address: address, Export: "v@dpu-1#t"}); err != nil {
		t.Fatal(err)
	}
	return s
}

// untilState asks until the one controller is in a state.
func untilState(t *testing.T, s *snapemulatortest.Service, want string) {
	t.Helper()
	eventually(t, "the controller is "+want, func() bool {
		got, err := s.BdevNvmeGetControllers(t.Context())
		if err != nil || len(got) != 1 || len(got[0].Paths) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		return got[0].Paths[0].State == want
	})
}

// wantRefused fails unless storage could not be asked, with SPDK's words.
func wantRefused(t *testing.T, err error, words string) {
	t.Helper()
	var refused *snaprpc.Error
	if !errors.As(err, &refused) || *refused != (snaprpc.Error{Code: snaprpc.CodeInternal, Message: words}) {
		t.Fatalf("got %v", err)
	}
}

func TestTargetIsListedAsAController(t *testing.T) {
	file := filepath.Join(t.TempDir(), "v.img")
	address, stop := serveFile(t, file)
	s, ctx := overTarget(t, snapemulator.Options{IOTimeout: time.Second}, address), t.Context()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	number := uint16(1)
	want := []snaprpc.NVMeController{{Name: "vol", Paths: []snaprpc.NVMePath{{State: snaprpc.PathEnabled, Controller: &number, TrID: snaprpc.TransportID{
		TrType: "TCP", AdrFam: "IPv4", TrAddr: host, TrSvcID: port, SubNQN: "nqn.2022-10.io.moor:target:v",
	}}}}}
	for _, params := range []any{nil, map[string]any{"name": "vol"}} {
		var got []snaprpc.NVMeController
		if err := s.Call(ctx, "bdev_nvme_get_controllers", params, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	}
	health, err := s.BdevNvmeGetControllerHealthInfo(ctx, "vol")
	if err != nil || health.TrAddr != host || health.ModelNumber == "" {
		t.Fatalf("%+v, %v", health, err)
	}
	stop()
	untilState(t, s, snaprpc.PathReconnectIsDelayed)
	_, err = s.BdevNvmeGetControllerHealthInfo(ctx, "vol")
	wantRefused(t, err, "Internal error.")
	serveAgain(t, address, oneGrant{file})
	untilState(t, s, snaprpc.PathEnabled)
	if _, err := s.BdevNvmeGetControllerHealthInfo(ctx, "vol"); err != nil {
		t.Fatal(err)
	}
	if got, err := s.BdevNvmeGetControllers(ctx); err != nil || *got[0].Paths[0].Controller != 2 {
		t.Fatalf("the connection that was made anew is %+v, %v", got, err)
	}
	_, err = s.BdevNvmeGetControllerHealthInfo(ctx, "none")
	wantRefused(t, err, "Device not found")
}

// noGrant is a target that lets no DPU have anything.
type noGrant struct{}

func (noGrant) Grant(string, string) (blocktarget.Grant, error) {
	return blocktarget.Grant{}, blocktarget.ErrDenied
}

// serveAgain runs a target at an address that one had before, until the test ends.
func serveAgain(t *testing.T, address string, g blocktarget.Grants) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- blocktarget.NewServer(blocktarget.Options{Grants: g}).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestRefusedTargetIsAFailedController(t *testing.T) {
	address, stop := runTarget(t)
	s := overTarget(t, snapemulator.Options{}, address)
	stop()
	serveAgain(t, address, noGrant{})
	untilState(t, s, snaprpc.PathFailed)
	_, err := s.BdevNvmeGetControllerHealthInfo(t.Context(), "vol")
	wantRefused(t, err, "Internal error.")
}

// storePath is a data path that hands out the storage behind a bdev.
type storePath struct {
	datapath.PlainPath
	stores chan datapath.Backing
}

func (p storePath) Attach(ctx context.Context, t datapath.Target) (datapath.Device, error) {
	p.stores <- t.Backing
	return p.PlainPath.Attach(ctx, t)
}

// stuck is storage that answers nothing until it is freed.
type stuck struct {
	datapath.NullBacking
	begun, free chan struct{}
}

func (s stuck) ReadAt(p []byte, _ int64) (int, error) {
	s.begun <- struct{}{}
	<-s.free
	return len(p), nil
}

func (s stuck) WriteAt([]byte, int64) (int, error) { return 0, os.ErrInvalid }

// iostatOf is what is told of the bdev "vol".
func iostatOf(t *testing.T, s *snapemulatortest.Service) snaprpc.BdevIOStat {
	t.Helper()
	all, err := s.BdevGetIostat(t.Context(), "vol")
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	return all[0]
}

func TestIostatOfASampledBdev(t *testing.T) {
	path := storePath{stores: make(chan datapath.Backing, 1)}
	s, ctx := snapemulatortest.Start(t, snapemulator.Options{DataPath: path}), t.Context()
	expose(t, s, "vol", "26:00.2", 1<<20)
	store := <-path.stores
	if before := iostatOf(t, s); before.SampledDepth != nil || before.QDPeriod != 0 || before.Completed() != 0 {
		t.Fatalf("%+v", before)
	}
	for range 2 {
		if err := s.BdevSetQDSamplingPeriod(ctx, "vol", 100*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	buffer := make([]byte, 512)
	_, read := store.ReadAt(buffer, 0)
	_, write := store.WriteAt(buffer, 0)
	_, fails := store.WriteAt(buffer, -1)
	if err := errors.Join(read, write, store.Sync()); err != nil || fails == nil {
		t.Fatal(err, fails)
	}
	depth := uint64(0)
	want := snaprpc.BdevIOStat{Name: "vol", ReadOps: 1, WriteOps: 1, Errors: map[string]uint64{"failed": 1}, QDPeriod: 100_000, SampledDepth: &depth}
	if diff := cmp.Diff(want, iostatOf(t, s)); diff != "" {
		t.Fatal(diff)
	}
	if err := s.BdevSetQDSamplingPeriod(ctx, "vol", 0); err != nil {
		t.Fatal(err)
	}
	if after := iostatOf(t, s); after.SampledDepth != nil || after.QDPeriod != 0 {
		t.Fatalf("sampled for ever: %+v", after)
	}
	if err := s.BdevSetQDSamplingPeriod(ctx, "none", time.Second); !snaprpc.IsNotFound(err) {
		t.Fatal(err)
	}
}

// TestStoreCountsWhatIsInFlight: what hangs is in flight and has not ended.
func TestStoreCountsWhatIsInFlight(t *testing.T) {
	backing := stuck{begun: make(chan struct{}), free: make(chan struct{})}
	store := datapath.NewStore(backing)
	done := make(chan error, 2)
	for range 2 {
		go func() { _, err := store.ReadAt(make([]byte, 8), 0); done <- err }()
		<-backing.begun
	}
	if n := store.InFlight(); n != 2 || store.Counts() != (datapath.Counts{}) {
		t.Fatalf("%d in flight, %+v", n, store.Counts())
	}
	if _, err := store.WriteAt(bytes.Repeat([]byte{1}, 8), 0); err == nil {
		t.Fatal("written")
	}
	if err := store.Punch(0, 0, 512); err != nil {
		t.Fatal(err)
	}
	close(backing.free)
	if err := errors.Join(<-done, <-done); err != nil {
		t.Fatal(err)
	}
	want := datapath.Counts{Reads: 2, BytesRead: 16, Unmaps: 1, BytesUnmapped: 512, Errors: 1}
	if n := store.InFlight(); n != 0 || store.Counts() != want {
		t.Fatalf("%d in flight, %+v", n, store.Counts())
	}
}
