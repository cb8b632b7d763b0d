package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/moor-storage/moor/internal/freeport"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/pkg/vendorplugin"
	"github.com/moor-storage/moor/reference/localvendor"
	"github.com/moor-storage/moor/reference/localvendor/devices"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

// site is a vendor with its controller and the plugin of one DPU.
type site struct {
	dir, target string
	conn        *grpc.ClientConn
	csi         csispec.ControllerClient
	plugin      *vendorplugin.Client
	snap        *snapemulatortest.Service
}

// run starts the command with the flags and ends it with the test.
func run(t *testing.T, args ...string) {
	t.Helper()
	var o options
	fs := pflag.NewFlagSet("local-vendor", pflag.ContinueOnError)
	o.bind(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("local-vendor %v: %v", args, err)
		}
	})
}

func newSite(t *testing.T) *site {
	t.Helper()
	dir, err := os.MkdirTemp("", "lv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &site{dir: dir, target: filepath.Join(dir, "target"), snap: snapemulatortest.Start(t, snapemulator.Options{})}
	endpoint := "unix://" + filepath.Join(dir, "csi.sock")
	run(t, "--mode=controller", "--endpoint="+endpoint, "--target-dir="+s.target, "--metrics-bind-address=0")
	run(t, "--mode=plugin", "--plugin-root="+dir, "--snap-socket="+s.snap.Options.Socket, "--target-dir="+s.target, "--metrics-bind-address=0")
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s.conn, s.csi = conn, csispec.NewControllerClient(conn)
	if s.plugin, err = vendorplugin.New(dir, "local", time.Minute); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.plugin.Close)
	eventually(t, "the plugin is ready", func() bool { return s.plugin.Probe(t.Context()) == nil })
	return s
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}

func capability() *csispec.VolumeCapability {
	return &csispec.VolumeCapability{
		AccessMode: &csispec.VolumeCapability_AccessMode{Mode: csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}},
	}
}

// attached makes a volume by CSI, publishes it to a node, and returns how the
// node driver asks for its device: under the claim's name.
func (s *site) attached(t *testing.T, name string) (id string, spec provisioner.OpenSpec) {
	t.Helper()
	made, err := s.csi.CreateVolume(t.Context(), &csispec.CreateVolumeRequest{
		Name: name, CapacityRange: &csispec.CapacityRange{RequiredBytes: 3 << 20},
		VolumeCapabilities: []*csispec.VolumeCapability{capability()},
	})
	if err != nil {
		t.Fatal(err)
	}
	v := made.GetVolume()
	got, err := s.csi.ControllerPublishVolume(t.Context(), &csispec.ControllerPublishVolumeRequest{
		VolumeId: v.GetVolumeId(), NodeId: "dpu-1", VolumeCapability: capability(), VolumeContext: v.GetVolumeContext(),
	})
	if err != nil {
		t.Fatal(err)
	}
	publish := got.GetPublishContext()
	publish["nv-volumeName"] = name // as the node driver adds
	return v.GetVolumeId(), provisioner.OpenSpec{
		VolumeID: name + "-pvc", Mode: provisioner.Block, AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce},
		PublishContext: publish, VolumeContext: v.GetVolumeContext(), Parameters: map[string]string{"policy": "p"},
	}
}

func TestFromCreateVolumeToDeviceAndBack(t *testing.T) {
	s, ctx := newSite(t), t.Context()
	id, spec := s.attached(t, "one")
	name, err := s.plugin.CreateDevice(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	bdevs, err := s.snap.BdevGetBdevs(ctx, name)
	if err != nil || len(bdevs) != 1 || bdevs[0].SizeBytes() != 3<<20 {
		t.Fatalf("snap shows %+v, %v; want a device of 3 MiB", bdevs, err)
	}
	if _, err := s.csi.DeleteVolume(ctx, &csispec.DeleteVolumeRequest{VolumeId: id}); err == nil {
		t.Fatal("a published volume was deleted")
	}
	if err := s.plugin.DeleteDevice(ctx, spec.VolumeID, name); err != nil {
		t.Fatal(err)
	}
	if _, err := s.csi.ControllerUnpublishVolume(ctx, &csispec.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: "dpu-1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.csi.DeleteVolume(ctx, &csispec.DeleteVolumeRequest{VolumeId: id}); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(s.target, "[^.]*")); err != nil || len(left) != 0 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
}

// TestHostOverTheEmulator holds the platform to the contract with a real SNAP
// protocol below it.
func TestHostOverTheEmulator(t *testing.T) {
	s := newSite(t)
	provisionertest.TestHost(t, func(t *testing.T) provisionertest.HostUnderTest {
		s.snap.Restart() // bdevs do not outlive the service
		dir := t.TempDir()
		storage, err := localvendor.Open(localvendor.Options{TargetDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = storage.Close() })
		prepare := func(t *testing.T, name string) provisioner.OpenSpec {
			v, err := storage.Create(t.Context(), provisioner.VolumeSpec{
				Name: name, CapacityBytes: 1 << 20, Mode: provisioner.Block,
				AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce},
			})
			if err != nil {
				t.Fatal(err)
			}
			a, err := storage.Attach(t.Context(), provisioner.AttachSpec{VolumeID: v.ID, Node: "dpu-1"})
			if err != nil {
				t.Fatal(err)
			}
			return provisioner.OpenSpec{VolumeID: name, Mode: provisioner.Block, PublishContext: a.PublishContext, VolumeContext: v.Context}
		}
		return provisionertest.HostUnderTest{Host: devices.NewHost(s.snap.Client, dir, t.TempDir()), Prepare: prepare}
	})
}

// TestSnapshotsByCSI: the snapshots of a volume are listed all, page by page, while
// others come and go, and a group is known by its snapshots.
func TestSnapshotsByCSI(t *testing.T) {
	s, ctx := newSite(t), t.Context()
	groups := csispec.NewGroupControllerClient(s.conn)
	one, _ := s.attached(t, "one")
	two, _ := s.attached(t, "two")
	for _, id := range []string{one, two} { // no target can hold writers up
		if _, err := s.csi.ControllerUnpublishVolume(ctx, &csispec.ControllerUnpublishVolumeRequest{VolumeId: id}); err != nil {
			t.Fatal(err)
		}
	}
	snap := func(name, volume string) {
		t.Helper()
		got, err := s.csi.CreateSnapshot(ctx, &csispec.CreateSnapshotRequest{Name: name, SourceVolumeId: volume})
		if err != nil || !got.GetSnapshot().GetReadyToUse() {
			t.Fatalf("%v, %v", got, err)
		}
	}
	for _, name := range []string{"b", "d", "f", "h", "j"} {
		snap(name, one)
		snap("of-two-"+name, two)
	}
	var got []string
	for token, last := "", ""; len(got) == 0 || token != ""; {
		page, err := s.csi.ListSnapshots(ctx, &csispec.ListSnapshotsRequest{SourceVolumeId: one, MaxEntries: 2, StartingToken: token})
		if err != nil || len(page.GetEntries()) > 2 {
			t.Fatalf("%v, %v", page, err)
		}
		for _, e := range page.GetEntries() {
			last = e.GetSnapshot().GetSnapshotId()
			got = append(got, last)
		}
		if token = page.GetNextToken(); token != "" { // which stands on one that goes
			if _, err := s.csi.DeleteSnapshot(ctx, &csispec.DeleteSnapshotRequest{SnapshotId: last}); err != nil {
				t.Fatal(err)
			}
			snap("a-"+last, one)
		}
	}
	if diff := cmp.Diff([]string{"b", "d", "f", "h", "j"}, got); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	made, err := groups.CreateVolumeGroupSnapshot(ctx, &csispec.CreateVolumeGroupSnapshotRequest{Name: "g", SourceVolumeIds: []string{one, two}})
	if err != nil {
		t.Fatal(err)
	}
	id, members := made.GetGroupSnapshot().GetGroupSnapshotId(), []string{}
	for _, m := range made.GetGroupSnapshot().GetSnapshots() {
		members = append(members, m.GetSnapshotId())
	}
	for _, c := range []struct {
		named []string
		want  codes.Code
	}{{members[:1], codes.InvalidArgument}, {[]string{members[0], "h"}, codes.InvalidArgument}, {members, codes.OK}} {
		_, got := groups.GetVolumeGroupSnapshot(ctx, &csispec.GetVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: c.named})
		_, gone := groups.DeleteVolumeGroupSnapshot(ctx, &csispec.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: c.named})
		if status.Code(got) != c.want || status.Code(gone) != c.want {
			t.Errorf("with the snapshots %v: get %v, delete %v; want %s", c.named, got, gone, c.want)
		}
	}
}

func TestDevicesAfterSNAPRestarts(t *testing.T) {
	s, ctx := newSite(t), t.Context()
	_, spec := s.attached(t, "one")
	name, err := s.plugin.CreateDevice(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	s.snap.Stop()
	if _, err := s.plugin.GetDevice(ctx, spec.VolumeID, name); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("get without SNAP: %v", err)
	}
	if err := s.plugin.Probe(ctx); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("probe without SNAP: %v", err)
	}
	s.snap.Restart()
	if _, err := s.plugin.GetDevice(ctx, spec.VolumeID, name); !errors.Is(err, provisioner.ErrNotFound) {
		t.Fatalf("get after SNAP lost its devices: %v", err)
	}
	again, err := s.plugin.CreateDevice(ctx, spec)
	if err != nil || again != name {
		t.Fatalf("create again: %q, %v; want %q", again, err, name)
	}
}

func TestHealth(t *testing.T) {
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "lv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	run(t, "--mode=plugin", "--plugin-root="+dir, "--snap-socket="+dir+"/absent.sock", "--target-dir="+dir, "--metrics-bind-address="+address)
	get := func(path string) int {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	eventually(t, "/healthz", func() bool { return get("/healthz") == http.StatusOK })
	if got := get("/readyz"); got != http.StatusServiceUnavailable {
		t.Fatalf("/readyz without SNAP: %d", got)
	}
	if got := get("/metrics"); got != http.StatusOK {
		t.Fatalf("/metrics: %d", got)
	}
}

func TestModeIsRequired(t *testing.T) {
	if err := (&options{}).run(t.Context()); err == nil || !strings.Contains(err.Error(), "--mode") {
		t.Fatalf("got %v", err)
	}
}
