package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	epochv1 "github.com/moor-storage/moor/api/epoch/v1"
	"github.com/moor-storage/moor/internal/freeport"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/vendorplugin"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/localvendor/records"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
	"github.com/moor-storage/moor/reference/writelog"
)

// runAsCommand makes the test binary the command, so that a test can kill it.
const runAsCommand = "LOCAL_VENDOR_TEST_RUNS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(runAsCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// targetSite is a vendor whose storage is a process of its own.
type targetSite struct {
	site
	address, admin string
	fencing        epochv1.FencingServiceClient
	kill           func()
}

func newTargetSite(t *testing.T, flags ...string) *targetSite {
	t.Helper()
	dir, err := os.MkdirTemp("", "lv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	s := &targetSite{address: address, admin: filepath.Join(dir, "admin", "s")}
	s.dir, s.target = dir, filepath.Join(dir, "target")
	s.snap = snapemulatortest.Start(t, snapemulator.Options{})
	s.startTarget(t)
	endpoint := "unix://" + filepath.Join(dir, "csi.sock")
	run(t, append(flags, "--mode=controller", "--endpoint="+endpoint, "--target-dir="+s.target, "--metrics-bind-address=0",
		"--target-address="+s.address, "--target-admin="+s.admin)...)
	// The plugin is told of a directory that is not there: a DPU needs none.
	run(t, append(flags, "--mode=plugin", "--plugin-root="+dir, "--snap-socket="+s.snap.Options.Socket, "--target-dir="+dir+"/absent", "--metrics-bind-address=0")...)
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s.csi, s.fencing = csispec.NewControllerClient(conn), epochv1.NewFencingServiceClient(conn)
	if s.plugin, err = vendorplugin.New(dir, "local", time.Minute); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.plugin.Close)
	eventually(t, "the plugin is ready", func() bool { return s.plugin.Probe(t.Context()) == nil })
	return s
}

func (s *targetSite) startTarget(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "--mode=target", "--target-dir="+s.target, "--target-admin="+s.admin,
		"--target-listen="+s.address, "--medium-log-dir="+s.dir+"/log", "--metrics-bind-address=0")
	cmd.Env = append(os.Environ(), runAsCommand+"=1")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(s.kill)
	eventually(t, "the target answers", func() bool {
		nc, err := net.Dial("tcp", s.address)
		if err != nil {
			return false
		}
		defer nc.Close()
		_, err = io.ReadFull(nc, make([]byte, 18))
		return err == nil
	})
}

func (s *targetSite) unpublish(t *testing.T, id string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := s.csi.ControllerUnpublishVolume(ctx, &csispec.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: "dpu-1"})
	return err
}

func TestDeviceOverATarget(t *testing.T) {
	s, ctx := newTargetSite(t), t.Context()
	id, spec := s.attached(t, "one")
	name, err := s.plugin.CreateDevice(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	bdevs, err := s.snap.BdevGetBdevs(ctx, name)
	if err != nil || len(bdevs) != 1 || bdevs[0].SizeBytes() != 3<<20 || bdevs[0].DriverSpecific.MoorTarget == nil {
		t.Fatalf("snap shows %+v, %v; want a device of 3 MiB over the target", bdevs, err)
	}
	if again, err := s.plugin.CreateDevice(ctx, spec); err != nil || again != name {
		t.Fatalf("again: %q, %v", again, err)
	}
	if err := s.unpublish(t, id); err != nil { // the DPU was not asked first
		t.Fatal(err)
	}
	if err := s.plugin.DeleteDevice(ctx, spec.VolumeID, name); err != nil {
		t.Fatal(err)
	}
	if _, err := s.plugin.CreateDevice(ctx, spec); err == nil || strings.Contains(err.Error(), spec.PublishContext[records.ContextTargetExport]) {
		t.Fatalf("a device by a right that was taken back: %v", err)
	}
	if _, err := s.csi.DeleteVolume(ctx, &csispec.DeleteVolumeRequest{VolumeId: id}); err != nil {
		t.Fatal(err)
	}
}

// TestEpochs: the vendor's processes, by their sockets alone: a device is opened under an
// epoch, a fence shuts it out, also after the target was killed, and it comes back under
// the next one.
func TestEpochs(t *testing.T) {
	s, ctx := newTargetSite(t, "--epochs"), t.Context()
	if epochs, err := s.plugin.Epochs(ctx); err != nil || !epochs {
		t.Fatalf("the plugin opens devices under epochs: %t, %v", epochs, err)
	}
	if _, err := s.fencing.GetFencingInfo(ctx, &epochv1.GetFencingInfoRequest{}); err != nil {
		t.Fatal(err)
	}
	id, spec := s.attached(t, "one")
	name, err := s.plugin.CreateDevice(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	fence := func(epoch int64) error {
		_, err := s.fencing.Fence(ctx, &epochv1.FenceRequest{VolumeId: id, Epoch: epoch})
		return err
	}
	if err := errors.Join(s.plugin.OpenAtEpoch(ctx, spec.VolumeID, name, 1), fence(1), fence(2)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.plugin.OpenAtEpoch(ctx, spec.VolumeID, name, 1); !errors.Is(err, provisioner.ErrPrecondition) {
			t.Fatalf("opened under an epoch that is over: %v", err)
		}
		s.kill()
		s.startTarget(t)
	}
	if err := s.plugin.OpenAtEpoch(ctx, spec.VolumeID, name, 2); err != nil {
		t.Fatal(err)
	}
	if err := s.plugin.OpenAtEpoch(ctx, spec.VolumeID, "other", 2); !errors.Is(err, provisioner.ErrNotFound) {
		t.Errorf("open a device that is not there: %v", err)
	}
	for want, req := range map[codes.Code]*epochv1.FenceRequest{
		codes.InvalidArgument: {VolumeId: id}, codes.NotFound: {VolumeId: "none", Epoch: 1},
	} {
		if _, err := s.fencing.Fence(ctx, req); status.Code(err) != want {
			t.Errorf("fence %v: %v, want %s", req, err, want)
		}
	}
}

// TestWithoutEpochs: what is not served is answered as any service that is not there.
func TestWithoutEpochs(t *testing.T) {
	s := newTargetSite(t)
	if epochs, err := s.plugin.Epochs(t.Context()); err != nil || epochs {
		t.Errorf("the plugin opens devices under epochs: %t, %v", epochs, err)
	}
	if _, err := s.fencing.GetFencingInfo(t.Context(), &epochv1.GetFencingInfoRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("the controller fences: %v", err)
	}
}

// TestTargetKilled kills the target under a writer, again and again: what was
// flushed is there, and the rights are as they were.
func TestTargetKilled(t *testing.T) {
	s, ctx := newTargetSite(t), t.Context()
	id, spec := s.attached(t, "one")
	export := spec.PublishContext[records.ContextTargetExport]
	d, err := blocktarget.OpenDevice(ctx, blocktarget.DeviceOptions{Address: s.address, Export: export})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var flushed atomic.Uint64
	ended := make(chan error, 1)
	go func() {
		record := make([]byte, 512)
		for n := uint64(1); ; n++ {
			binary.BigEndian.PutUint64(record, n)
			if _, err := d.WriteAt(record, int64(n%4096)*512); err != nil {
				ended <- err
				return
			}
			if err := d.Sync(); err != nil {
				ended <- err
				return
			}
			flushed.Store(n)
		}
	}()
	for range 3 {
		now := flushed.Load()
		eventually(t, "writes", func() bool { return flushed.Load() > now+20 })
		s.kill()
		acked := flushed.Load()
		got := make([]byte, 8)
		image, err := os.Open(filepath.Join(s.target, id+".img"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = image.ReadAt(got, int64(acked%4096)*512)
		if err := errors.Join(err, image.Close()); err != nil {
			t.Fatal(err)
		}
		if n := binary.BigEndian.Uint64(got); n < acked {
			t.Fatalf("record %d was acknowledged, the volume has %d in its place", acked, n)
		}
		s.startTarget(t)
	}
	s.kill()
	if err := s.unpublish(t, id); status.Code(err) != codes.Unavailable {
		t.Fatalf("unpublish with the target dead: %v, want Unavailable", err)
	}
	s.startTarget(t)
	if _, err := blocktarget.OpenDevice(ctx, blocktarget.DeviceOptions{Address: s.address, Export: export}); !errors.Is(err, blocktarget.ErrDenied) {
		t.Fatalf("after an unpublish that failed, the restarted target says %v, want a refusal", err)
	}
	if err := s.unpublish(t, id); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, blocktarget.ErrDenied) {
		t.Fatalf("the writer ended with %v", err)
	}
	writes, err := writelog.Read(writelog.Path(s.dir+"/log", id+".img"))
	if err != nil || uint64(len(writes)) < flushed.Load() {
		t.Fatalf("%d writes are recorded of %d flushed: %v", len(writes), flushed.Load(), err)
	}
}

func TestOneTargetADirectory(t *testing.T) {
	s := newTargetSite(t)
	var o options
	o.mode, o.targetDir, o.targetAdmin, o.targetListen, o.metrics = "target", s.target, s.admin+"2", "127.0.0.1:0", "0"
	if err := o.run(t.Context()); err == nil || !strings.Contains(err.Error(), "another process serves it") {
		t.Fatalf("a second target of one directory: %v", err)
	}
}

func TestTargetFlags(t *testing.T) {
	for _, o := range []options{
		{mode: "controller", targetOptions: targetOptions{targetAddress: "a:1"}},
		{mode: "controller", targetOptions: targetOptions{targetAdmin: "/x"}},
		{mode: "controller", targetOptions: targetOptions{targetAdmin: "/x", targetAddress: "a"}},
		{mode: "target"},
	} {
		o.targetDir = t.TempDir()
		if err := o.run(t.Context()); err == nil || !strings.Contains(err.Error(), "--target-a") {
			t.Errorf("%+v: %v", o.targetOptions, err)
		}
	}
}

// TestTargetAddress: what would be put into every volume, and reached from nowhere, is refused.
func TestTargetAddress(t *testing.T) {
	for address, words := range map[string]string{
		"10.0.0.1":                  "is no host:port",
		":10809":                    "names no host",
		"$(TARGET_SERVICE_HOST):10": "is there a Service of the name",
		"":                          "give both or neither",
		"10.0.0.1:10809":            "",
	} {
		o := options{targetDir: t.TempDir(), targetOptions: targetOptions{targetAddress: address, targetAdmin: "/nowhere.sock"}}
		target, err := o.target()
		if words == "" && (err != nil || target.Address != address) || words != "" && (err == nil || !strings.Contains(err.Error(), words)) {
			t.Errorf("%q: %v; want %q", address, err, words)
		}
	}
}
