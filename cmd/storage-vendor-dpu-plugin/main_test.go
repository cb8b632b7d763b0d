package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/remote"
	"github.com/moor-storage/moor/pkg/vendorplugin"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

// run starts the command with the flags and ends it with the test.
func run(t *testing.T, mounts remote.Mounts, args ...string) {
	t.Helper()
	o := options{mounts: mounts}
	fs := pflag.NewFlagSet("storage-vendor-dpu-plugin", pflag.ContinueOnError)
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
			t.Errorf("storage-vendor-dpu-plugin %v: %v", args, err)
		}
	})
}

// site is a DPU with its SNAP service and a directory of plugins.
type site struct {
	root, fabric string
	snap         *snapemulatortest.Service
	mounts       table
}

func newSite(t *testing.T) *site {
	t.Helper()
	root, err := os.MkdirTemp("", "vp") // short: the path of a unix socket is limited
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	s := &site{root: root, fabric: t.TempDir()}
	s.snap = snapemulatortest.Start(t, snapemulator.Options{FabricDir: s.fabric, Hotplug: snapemulator.Hotplug{Slots: 2}})
	return s
}

// plugin runs the plugin of a kind and returns it, ready.
func (s *site) plugin(t *testing.T, kind string, args ...string) *vendorplugin.Client {
	t.Helper()
	run(t, &s.mounts, append(args, "--kind="+kind, "--plugin-root="+s.root, "--snap-socket="+s.snap.Options.Socket, "--metrics-bind-address=0")...)
	c, err := vendorplugin.New(s.root, "nvidia-"+kind, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for tick := time.NewTicker(10 * time.Millisecond); c.Probe(ctx) != nil; <-tick.C {
		if ctx.Err() != nil {
			t.Fatalf("plugin %s is not ready in time: %v", kind, c.Probe(t.Context()))
		}
	}
	return c
}

// TestBlock walks what the node driver does with a volume of SPDK-CSI.
func TestBlock(t *testing.T) {
	s, ctx := newSite(t), t.Context()
	nqn := "nqn.2020-04.io.spdk.csi:uuid:1"
	image := filepath.Join(s.fabric, nqn+".img")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 1<<20)); err != nil {
		t.Fatal(err)
	}
	plugin := s.plugin(t, "block")
	vetted, err := vendorplugin.Vet(ctx, plugin)
	if err != nil || vetted.Info.Name != "storage.dpu.nvidia-block.com" || vetted.Provider != "nvidia" || !vetted.Can.Block || vetted.Can.Filesystem {
		t.Fatalf("vetted %+v, %v", vetted, err)
	}
	spec := provisioner.OpenSpec{
		VolumeID: "pvc-1-pvc", Mode: provisioner.Block, AccessModes: []provisioner.AccessMode{provisioner.ReadWriteOnce},
		PublishContext: map[string]string{"nv-volumeName": "pvc-1"},
		VolumeContext: map[string]string{
			"targetType": "TCP", "targetAddr": "192.0.2.7", "targetPort": "4420", "nqn": nqn, "model": "pvc-1", "lvolSize": "1048576",
		},
		Parameters: map[string]string{"policy": "p"},
	}
	for range 2 {
		if name, err := plugin.CreateDevice(ctx, spec); err != nil || name != "nvme_pvc-1-pvcn1" {
			t.Fatalf("created %q, %v", name, err)
		}
	}
	s.snap.Restart()
	if _, err := plugin.GetDevice(ctx, spec.VolumeID, "nvme_pvc-1-pvcn1"); !errors.Is(err, provisioner.ErrNotFound) {
		t.Fatalf("get after SNAP lost its connections: %v", err)
	}
	if _, err := plugin.CreateDevice(ctx, spec); err != nil {
		t.Fatal(err)
	}
	if got, err := plugin.GetDevice(ctx, spec.VolumeID, "nvme_pvc-1-pvcn1"); err != nil || got.Mode != provisioner.Block {
		t.Fatalf("got %+v, %v", got, err)
	}
	if err := plugin.DeleteDevice(ctx, spec.VolumeID, "nvme_pvc-1-pvcn1"); err != nil {
		t.Fatal(err)
	}
	if left, err := s.snap.BdevGetBdevs(ctx, ""); err != nil || len(left) != 0 {
		t.Fatalf("left behind: %+v, %v", left, err)
	}
	spec.VolumeContext = map[string]string{"server": "nas", "share": "/x"}
	if _, err := plugin.CreateDevice(ctx, spec); err == nil || !strings.Contains(err.Error(), "volume context has no") {
		t.Fatalf("a volume of another plugin: %v", err)
	}
}

func TestKindIsRequired(t *testing.T) {
	var o options
	o.bind(pflag.NewFlagSet("", pflag.ContinueOnError))
	if err := o.run(t.Context()); err == nil || !strings.Contains(err.Error(), "--kind") {
		t.Fatalf("got %v", err)
	}
}
