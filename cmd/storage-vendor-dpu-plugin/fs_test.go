package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/node/plugins"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// table is a mount table in memory.
type table struct{ at sync.Map }

func (m *table) At(path string) (string, error) {
	source, _ := m.at.Load(path)
	s, _ := source.(string)
	return s, nil
}

func (m *table) Mount(_ context.Context, source, path, options string) error {
	m.at.Store(path, source)
	if options != "nfsvers=4.1" {
		return fmt.Errorf("unknown options %q", options)
	}
	return nil
}

func (m *table) Unmount(_ context.Context, path string) error {
	m.at.Delete(path)
	return nil
}

// TestFS walks what the node driver does with a volume of NFS-CSI.
func TestFS(t *testing.T) {
	s, ctx := newSite(t), t.Context()
	plugin := s.plugin(t, "fs")
	vetted, err := vendorplugin.Vet(ctx, plugin)
	if err != nil || vetted.Info.Name != "storage.dpu.nvidia-fs.com" || !vetted.Can.Filesystem || vetted.Can.Block {
		t.Fatalf("vetted %+v, %v", vetted, err)
	}
	spec := provisioner.OpenSpec{
		VolumeID: "a", Mode: provisioner.Filesystem, AccessModes: []provisioner.AccessMode{provisioner.ReadWriteMany},
		VolumeContext: map[string]string{"server": "nas", "share": "/x", "subdir": "pvc-1", "mountOptions": "nfsvers=4.1"},
	}
	const device = "af63dc4c8601ec8c"
	if name, err := plugin.CreateDevice(ctx, spec); err != nil || name != device {
		t.Fatalf("created %q, %v", name, err)
	}
	root := filepath.Join(filepath.Dir(s.snap.Options.Socket), "volumes", "nvidia-fs", device)
	if at, _ := s.mounts.At(root); at != "nas:/x/pvc-1" {
		t.Fatalf("at %s is %q", root, at)
	}
	if got, err := plugin.GetDevice(ctx, "a", device); err != nil || got.Mode != provisioner.Filesystem {
		t.Fatalf("got %+v, %v", got, err)
	}
	spec.Mode = provisioner.Block
	if _, err := plugin.CreateDevice(ctx, spec); !errors.Is(err, provisioner.ErrUnsupported) {
		t.Fatalf("a block device of a share: %v", err)
	}
	if err := plugin.DeleteDevice(ctx, "a", device); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the mount point is left: %v", err)
	}
}

// TestBothAreFound: the node driver's registry finds the two by their sockets, and
// sees that neither can work while SNAP is away.
func TestBothAreFound(t *testing.T) {
	s := newSite(t)
	s.plugin(t, "block")
	s.plugin(t, "fs")
	changed := make(chan struct{}, 1)
	r := plugins.New(plugins.Options{
		Node: "dpu-1", Root: s.root, Period: 50 * time.Millisecond,
		Open: func(name string) (plugins.Client, error) { return vendorplugin.New(s.root, name, 10*time.Second) },
		OnChange: func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	until := func(what string, ready bool) {
		t.Helper()
		late := time.After(30 * time.Second)
		for {
			all := r.States()
			if len(all) == 2 && is(all[0], "nvidia-block", ready) && is(all[1], "nvidia-fs", ready) {
				return
			}
			select {
			case <-changed:
			case <-late:
				t.Fatalf("not in time: %s: %+v", what, all)
			}
		}
	}
	until("both are ready", true)
	s.snap.Stop()
	until("neither is ready without SNAP", false)
	s.snap.Restart()
	until("both are ready again", true)
}

func is(p moorv1alpha1.PluginState, name string, ready bool) bool {
	return p.Name == name && p.Ready == ready && (!ready || p.Provider == "nvidia")
}
