package csi

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	controllercsi "github.com/moor-storage/moor/pkg/controller/csi"

	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// memory is a platform in memory: volumes, attachments to node n1 and devices.
type memory struct {
	mu       sync.Mutex
	volumes  map[string]provisioner.Volume
	attached map[string]provisioner.AttachSpec
	machine  *machine
	open     map[string]provisioner.Device
}

func (p *memory) Create(_ context.Context, s provisioner.VolumeSpec) (provisioner.Volume, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := "vol-" + s.Name
	if v, ok := p.volumes[id]; ok {
		if v.CapacityBytes != s.CapacityBytes || v.Mode != s.Mode || !slices.Equal(v.AccessModes, s.AccessModes) {
			return provisioner.Volume{}, provisioner.ErrExists
		}
		return v, nil
	}
	v := provisioner.Volume{ID: id, CapacityBytes: s.CapacityBytes, AccessModes: s.AccessModes, Mode: s.Mode, Parameters: s.Parameters}
	p.volumes[id] = v
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	p.machine.devices["/dev/"+id] = uint64(len(p.machine.devices) + 1)
	return v, nil
}

func (p *memory) Delete(_ context.Context, id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.volumes, id)
	return nil
}

func (p *memory) Get(_ context.Context, id string) (provisioner.Volume, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v, ok := p.volumes[id]; ok {
		return v, nil
	}
	return provisioner.Volume{}, fmt.Errorf("volume %s: %w", id, provisioner.ErrNotFound)
}

func (p *memory) Attach(ctx context.Context, s provisioner.AttachSpec) (provisioner.Attachment, error) {
	if _, err := p.Get(ctx, s.VolumeID); err != nil {
		return provisioner.Attachment{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.Node != "n1" {
		return provisioner.Attachment{}, fmt.Errorf("node %s: %w", s.Node, provisioner.ErrNotFound)
	}
	if have, ok := p.attached[s.VolumeID]; ok && have.ReadOnly != s.ReadOnly {
		return provisioner.Attachment{}, provisioner.ErrExists
	}
	p.attached[s.VolumeID] = s
	return provisioner.Attachment{PublishContext: map[string]string{"device": "/dev/" + s.VolumeID}}, nil
}

func (p *memory) Detach(_ context.Context, id, _ string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.attached, id)
	return nil
}

func (p *memory) Open(ctx context.Context, s provisioner.OpenSpec) (provisioner.Device, error) {
	if _, err := p.Get(ctx, s.VolumeID); err != nil {
		return provisioner.Device{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d := provisioner.Device{VolumeID: s.VolumeID, Name: s.VolumeID, Path: s.PublishContext["device"], Mode: s.Mode}
	p.open[s.VolumeID] = d
	return d, nil
}

func (p *memory) Close(_ context.Context, id, _ string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, id)
	return nil
}

func (p *memory) Lookup(_ context.Context, id string) (provisioner.Device, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d, ok := p.open[id]; ok {
		return d, nil
	}
	return provisioner.Device{}, provisioner.ErrNotFound
}

func (p *memory) List(context.Context) ([]provisioner.Device, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.open)), nil
}

// TestSanity runs csi-test's suite over both services and the gRPC shell, in
// mount and in block mode, attached by the controller and by the node, with a
// platform and a machine in memory.
func TestSanity(t *testing.T) {
	for _, by := range []string{"controller", "node"} {
		for _, access := range []string{"mount", "block"} {
			cfg, p := sanityBed(t, access, by == "node")
			ginkgo.Describe(access+", by the "+by, func() { sanity.GinkgoTest(cfg) })
			t.Cleanup(func() {
				if len(p.machine.table) != 0 || len(p.attached) != 0 && by == "node" {
					t.Errorf("%s, by the %s: left behind: mounts %v, attachments %v", access, by, p.machine.table, p.attached)
				}
			})
		}
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "CSI sanity")
}

// sanityBed serves both services over fakes and returns how to reach them.
func sanityBed(t *testing.T, access string, byNode bool) (*sanity.TestConfig, *memory) {
	t.Helper()
	// A short directory: the path of a unix socket is limited.
	dir, err := os.MkdirTemp("", "moor")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := newMachine()
	p := &memory{volumes: map[string]provisioner.Volume{}, attached: map[string]provisioner.AttachSpec{}, open: map[string]provisioner.Device{}, machine: m}
	publisher, stager := provisioner.Attachments(p), provisioner.Attachments(nil)
	if byNode {
		publisher, stager = nil, p
	}
	endpoint := "unix://" + filepath.Join(dir, "csi.sock")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- csiserver.Serve(ctx, endpoint, func(s *grpc.Server) {
			csispec.RegisterIdentityServer(s, csiserver.NewIdentity("csi.example.com", "test", nil, csispec.PluginCapability_Service_CONTROLLER_SERVICE))
			csispec.RegisterControllerServer(s, controllercsi.New(controllercsi.Options{
				Platform: provisioner.Platform{Volumes: p, Attachments: publisher}, BlockOnly: true,
			}))
			csispec.RegisterNodeServer(s, New(Options{NodeID: "n1", Host: p, Attachments: stager, Mounter: m, Devices: m, Formatter: m}))
		}, csiserver.Options{})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	cfg := sanity.NewTestConfig()
	cfg.Address = endpoint
	cfg.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true))}
	cfg.ControllerDialOptions = cfg.DialOptions
	cfg.TargetPath, cfg.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
	cfg.TestVolumeAccessType = access
	return &cfg, p
}
