//go:build root

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"
)

// program is the driver as a program of its own, which a test kills.
type program struct {
	csispec.ControllerClient
	csispec.NodeClient
	groups csispec.GroupControllerClient
	blocks csispec.SnapshotMetadataClient
	dir    string
	cmd    *exec.Cmd
}

func newProgram(t *testing.T) *program {
	t.Helper()
	dir, err := os.MkdirTemp("", "lv") // short: the path of a unix socket is limited
	if err != nil {
		t.Fatal(err)
	}
	p := &program{dir: dir}
	soon := backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond} // after a restart
	conn, err := grpc.NewClient("unix://"+p.path("csi.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon}))
	if err != nil {
		t.Fatal(err)
	}
	p.ControllerClient, p.NodeClient = csispec.NewControllerClient(conn), csispec.NewNodeClient(conn)
	p.groups, p.blocks = csispec.NewGroupControllerClient(conn), csispec.NewSnapshotMetadataClient(conn)
	t.Cleanup(func() {
		p.end(t, syscall.SIGTERM)
		for _, mp := range slices.Backward(p.mounts(t)) {
			t.Errorf("left mounted: %s", mp)
			_ = unix.Unmount(mp, unix.MNT_DETACH)
		}
		_ = errors.Join(conn.Close(), os.RemoveAll(dir))
	})
	p.start(t)
	return p
}

func (p *program) path(name string) string { return filepath.Join(p.dir, name) }

func (p *program) start(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(self, "--mode=driver", "--node-id=n", "--endpoint=unix://"+p.path("csi.sock"), "--target-dir="+p.path("volumes"),
		"--device-dir="+p.path("devices"), "--metrics-bind-address=0")
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), runAsCommand+"=1"), os.Stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the driver serves", func() bool {
		_, err := p.NodeGetInfo(t.Context(), &csispec.NodeGetInfoRequest{})
		return err == nil
	})
}

// end signals the process and waits for its end; a second call does nothing.
func (p *program) end(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil && sig != syscall.SIGKILL {
		t.Errorf("the driver ended with %v", err)
	}
	p.cmd = nil
}

func (p *program) restart(t *testing.T, sig syscall.Signal) {
	t.Helper()
	p.end(t, sig)
	p.start(t)
}

// mounts are the file systems of volumes, and their binds, that are mounted.
func (p *program) mounts(t *testing.T) []string {
	t.Helper()
	list, err := mount.New("").List()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, mp := range list {
		if strings.HasPrefix(mp.Path, p.dir) && mp.Type == "ext4" {
			out = append(out, mp.Path)
		}
	}
	return out
}

// ok fails the test unless the call succeeded.
func ok[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(got T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
}

func mountCapability() *csispec.VolumeCapability {
	c := capability()
	c.AccessType = &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{}}
	return c
}

// manyWriters is ReadWriteMany.
func manyWriters() *csispec.VolumeCapability {
	c := mountCapability()
	c.AccessMode.Mode = csispec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	return c
}

// stage repeats what csi-attacher and the kubelet do before the first pod.
func (p *program) stage(t *testing.T, v *csispec.Volume, c *csispec.VolumeCapability, staging string) {
	t.Helper()
	ctx, id := t.Context(), v.GetVolumeId()
	a := ok[*csispec.ControllerPublishVolumeResponse](t)(p.ControllerPublishVolume(ctx, &csispec.ControllerPublishVolumeRequest{
		VolumeId: id, NodeId: "n", VolumeCapability: c, VolumeContext: v.GetVolumeContext(),
	}))
	if err := os.MkdirAll(staging, 0o750); err != nil {
		t.Fatal(err)
	}
	ok[*csispec.NodeStageVolumeResponse](t)(p.NodeStageVolume(ctx, &csispec.NodeStageVolumeRequest{
		VolumeId: id, StagingTargetPath: staging, VolumeCapability: c, PublishContext: a.GetPublishContext(), VolumeContext: v.GetVolumeContext(),
	}))
}

// publish is stage, and what the kubelet does for a pod.
func (p *program) publish(t *testing.T, v *csispec.Volume, target string) {
	t.Helper()
	p.stage(t, v, manyWriters(), p.path("staging"))
	ok[*csispec.NodePublishVolumeResponse](t)(p.NodePublishVolume(t.Context(), &csispec.NodePublishVolumeRequest{
		VolumeId: v.GetVolumeId(), StagingTargetPath: p.path("staging"), TargetPath: target, VolumeCapability: manyWriters(), VolumeContext: v.GetVolumeContext(),
	}))
}

// A directory is used on while the driver is dead, and the next one finds it.
func TestDirectoryOutlivesTheDriver(t *testing.T) {
	p, ctx := newProgram(t), t.Context()
	v := ok[*csispec.CreateVolumeResponse](t)(p.CreateVolume(ctx, &csispec.CreateVolumeRequest{
		Name: "vol", CapacityRange: &csispec.CapacityRange{RequiredBytes: 16 << 20}, Parameters: map[string]string{"kind": "directory"},
		VolumeCapabilities: []*csispec.VolumeCapability{manyWriters()},
	})).GetVolume()
	target := p.path("target")
	p.publish(t, v, target)
	pod, err := os.Create(filepath.Join(target, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		p.end(t, sig)
		if _, err := pod.WriteString("line\n"); err != nil {
			t.Errorf("write while no driver runs: %v", err)
		}
		if err := pod.Sync(); err != nil {
			t.Errorf("sync while no driver runs: %v", err)
		}
		p.start(t)
		p.publish(t, v, target)
		if n := len(p.mounts(t)); n != 3 {
			t.Errorf("%d mounts after a restart, want the driver's, staging and target: %v", n, p.mounts(t))
		}
	}
	if err := pod.Close(); err != nil {
		t.Fatal(err)
	}
	snap := ok[*csispec.CreateSnapshotResponse](t)(p.CreateSnapshot(ctx, &csispec.CreateSnapshotRequest{SourceVolumeId: v.GetVolumeId(), Name: "snap"}))
	ok[*csispec.DeleteSnapshotResponse](t)(p.DeleteSnapshot(ctx, &csispec.DeleteSnapshotRequest{SnapshotId: snap.GetSnapshot().GetSnapshotId()}))
	health := ok[*csispec.NodeGetVolumeHealthResponse](t)(p.NodeGetVolumeHealth(ctx, &csispec.NodeGetVolumeHealthRequest{VolumeId: "vol", VolumePublishPath: target}))
	if got := health.GetVolumeHealth().GetHealthStatuses(); len(got) != 0 {
		t.Errorf("health %v", got)
	}
	for range 2 {
		ok[*csispec.NodeUnpublishVolumeResponse](t)(p.NodeUnpublishVolume(ctx, &csispec.NodeUnpublishVolumeRequest{VolumeId: "vol", TargetPath: target}))
		ok[*csispec.NodeUnstageVolumeResponse](t)(p.NodeUnstageVolume(ctx, &csispec.NodeUnstageVolumeRequest{VolumeId: "vol", StagingTargetPath: p.path("staging")}))
		ok[*csispec.ControllerUnpublishVolumeResponse](t)(p.ControllerUnpublishVolume(ctx, &csispec.ControllerUnpublishVolumeRequest{VolumeId: "vol", NodeId: "n"}))
		ok[*csispec.DeleteVolumeResponse](t)(p.DeleteVolume(ctx, &csispec.DeleteVolumeRequest{VolumeId: "vol"}))
	}
	if left := p.mounts(t); len(left) != 0 {
		t.Errorf("left mounted: %v", left)
	}
}

// images are the volumes that the storage has.
func (p *program) images(t *testing.T) []string {
	t.Helper()
	got, err := filepath.Glob(p.path("volumes/*.img"))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// An inline volume is made by its publish and gone with its unpublish, whatever
// happens to the driver in between, and has the size that the pod asks for.
func TestInlineVolume(t *testing.T) {
	p, ctx, target := newProgram(t), t.Context(), ""
	target = p.path("target")
	const id = "csi-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" // as the kubelet makes them
	publish := func(attributes map[string]string) error {
		attributes["csi.storage.k8s.io/ephemeral"] = "true"
		attributes["csi.storage.k8s.io/pod.name"] = "pod"
		_, err := p.NodePublishVolume(ctx, &csispec.NodePublishVolumeRequest{VolumeId: id, TargetPath: target, VolumeCapability: mountCapability(), VolumeContext: attributes})
		return err
	}
	unpublish := func() {
		t.Helper()
		ok[*csispec.NodeUnpublishVolumeResponse](t)(p.NodeUnpublishVolume(ctx, &csispec.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: target}))
	}
	for words, attributes := range map[string]map[string]string{"a size in bytes is wanted": {"size": "much"}, "unknown parameter": {"color": "blue"}} {
		if err := publish(attributes); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), words) {
			t.Errorf("publish with %v: %v, want %q", attributes, err, words)
		}
		if left := p.images(t); len(left) != 0 {
			t.Errorf("left of a publish that was refused: %v", left)
		}
	}
	for range 2 {
		if err := publish(map[string]string{"size": "16Mi"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(target, "f"), make([]byte, 8<<20), 0o600); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(target, "g"), make([]byte, 9<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("17 MiB in a volume of 16 MiB: %v, want ENOSPC", err)
	}
	p.restart(t, syscall.SIGKILL)
	if err := publish(map[string]string{"size": "16Mi"}); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(filepath.Join(target, "f")); err != nil || fi.Size() != 8<<20 {
		t.Errorf("after a restart: %v, %v", fi, err)
	}
	p.restart(t, syscall.SIGTERM)
	for range 2 {
		unpublish()
		if left := append(p.images(t), p.mounts(t)...); len(left) != 0 {
			t.Errorf("left of an inline volume: %v", left)
		}
	}
	if _, err := os.Lstat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the target is still there: %v", err)
	}
}

// An unpublish removes no volume that a claim has.
func TestUnpublishKeepsVolumesOfClaims(t *testing.T) {
	p, ctx := newProgram(t), t.Context()
	v := ok[*csispec.CreateVolumeResponse](t)(p.CreateVolume(ctx, &csispec.CreateVolumeRequest{
		Name: "vol", CapacityRange: &csispec.CapacityRange{RequiredBytes: 16 << 20}, Parameters: map[string]string{"kind": "directory"},
		VolumeCapabilities: []*csispec.VolumeCapability{mountCapability()},
	})).GetVolume()
	_, err := p.NodePublishVolume(ctx, &csispec.NodePublishVolumeRequest{
		VolumeId: v.GetVolumeId(), TargetPath: p.path("target"), VolumeCapability: mountCapability(),
		VolumeContext: map[string]string{"csi.storage.k8s.io/ephemeral": "true", "size": "16Mi"},
	})
	if status.Code(err) != codes.AlreadyExists {
		t.Errorf("an inline volume with the name of a claim's: %v", err)
	}
	ok[*csispec.NodeUnpublishVolumeResponse](t)(p.NodeUnpublishVolume(ctx, &csispec.NodeUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), TargetPath: p.path("target")}))
	if got := p.images(t); len(got) != 1 {
		t.Errorf("images %v, want the claim's", got)
	}
}

// A group is of one instant over devices and directories alike.
func TestGroupOfBothSorts(t *testing.T) {
	p, ctx := newProgram(t), t.Context()
	var ids []string
	for name, parameters := range map[string]map[string]string{"dir": {"kind": "directory"}, "dev": nil} {
		v := ok[*csispec.CreateVolumeResponse](t)(p.CreateVolume(ctx, &csispec.CreateVolumeRequest{
			Name: name, CapacityRange: &csispec.CapacityRange{RequiredBytes: 16 << 20}, Parameters: parameters,
			VolumeCapabilities: []*csispec.VolumeCapability{mountCapability()},
		})).GetVolume()
		ids = append(ids, v.GetVolumeId())
		p.stage(t, v, mountCapability(), p.path("staging-"+name))
		if err := os.WriteFile(filepath.Join(p.path("staging-"+name), "f"), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	group := ok[*csispec.CreateVolumeGroupSnapshotResponse](t)(p.groups.CreateVolumeGroupSnapshot(ctx, &csispec.CreateVolumeGroupSnapshotRequest{Name: "group", SourceVolumeIds: ids}))
	for _, s := range group.GetGroupSnapshot().GetSnapshots() {
		if s.GetSourceVolumeId() != "dir" {
			continue
		}
		v := ok[*csispec.CreateVolumeResponse](t)(p.CreateVolume(ctx, &csispec.CreateVolumeRequest{
			Name: "restored", CapacityRange: &csispec.CapacityRange{RequiredBytes: 16 << 20}, Parameters: map[string]string{"kind": "directory"},
			VolumeCapabilities: []*csispec.VolumeCapability{mountCapability()},
			VolumeContentSource: &csispec.VolumeContentSource{Type: &csispec.VolumeContentSource_Snapshot{
				Snapshot: &csispec.VolumeContentSource_SnapshotSource{SnapshotId: s.GetSnapshotId()},
			}},
		})).GetVolume()
		p.stage(t, v, mountCapability(), p.path("staging-restored"))
		if got, err := os.ReadFile(filepath.Join(p.path("staging-restored"), "f")); err != nil || string(got) != "dir" {
			t.Errorf("restored %q, %v", got, err)
		}
		ids = append(ids, v.GetVolumeId())
	}
	if len(ids) != 3 {
		t.Fatalf("the group has no snapshot of the directory: %v", group)
	}
	for _, id := range ids {
		ok[*csispec.NodeUnstageVolumeResponse](t)(p.NodeUnstageVolume(ctx, &csispec.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: p.path("staging-" + id)}))
	}
}
