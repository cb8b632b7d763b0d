package main

import (
	"context"
	"path/filepath"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/daemon/version"
	"github.com/moor-storage/moor/internal/snaprpc"
	controllercsi "github.com/moor-storage/moor/pkg/controller/csi"
	"github.com/moor-storage/moor/pkg/controller/csi/blocks"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/metered"
	"github.com/moor-storage/moor/pkg/vendorplugin"
	"github.com/moor-storage/moor/reference/localvendor"
	"github.com/moor-storage/moor/reference/localvendor/devices"
)

// runController serves CSI Identity and Controller over the target directory.
func (o *options) runController(ctx context.Context) error {
	target, err := o.target()
	if err != nil {
		return err
	}
	storage, err := localvendor.Open(localvendor.Options{
		TargetDir: o.targetDir, MaxBytes: o.maxBytes, ManyNodes: o.manyNodes, Target: target, MaxPerNode: o.maxPerNode,
		Places: o.places,
	})
	if err != nil {
		return err
	}
	defer func() { _ = storage.Close() }()
	platform, err := measured(storage.Platform())
	if err != nil {
		return err
	}
	register := o.controllerServices(storage, controllercsi.Options{Platform: platform, SharedFilesystem: true, Places: len(o.places) > 0})
	return daemon.Beside(ctx, o.metrics, metrics.Registry, storage.Ready, func(ctx context.Context) error {
		return csiserver.Serve(ctx, o.endpoint, register, csiserver.Options{Logger: ctrl.Log, Timeout: o.timeout, Metrics: metrics.Registry})
	})
}

// controllerServices registers CSI Identity, Controller, GroupController and
// SnapshotMetadata.
func (o *options) controllerServices(storage *localvendor.Storage, c controllercsi.Options) func(*grpc.Server) {
	ready := func(context.Context) error { return storage.Ready() }
	server := controllercsi.New(c)
	return func(s *grpc.Server) {
		csispec.RegisterIdentityServer(s, csiserver.NewIdentity(o.name, version.Built().Version, ready, controllercsi.PluginCapabilities(c)...))
		csispec.RegisterControllerServer(s, server)
		csispec.RegisterGroupControllerServer(s, server)
		csispec.RegisterSnapshotMetadataServer(s, blocks.New(c.Platform.Snapshots, c.Platform.Blocks))
		controllercsi.RegisterFencing(s, c.Platform.Fencing)
	}
}

// runPlugin serves the StoragePlugin API on this DPU.
func (o *options) runPlugin(ctx context.Context) error {
	socket, err := vendorplugin.SocketPath(o.pluginRoot, o.pluginName)
	if err != nil {
		return err
	}
	if o.stateDir == "" {
		o.stateDir = filepath.Join(filepath.Dir(socket), "devices")
	}
	snap := snaprpc.New(o.snapSocket, o.timeout)
	host := devices.NewHost(snap, o.targetDir, o.stateDir)
	platform := provisioner.Platform{Host: host}
	if o.epochs {
		platform.Epochs = host
	}
	platform, err = measured(platform)
	if err != nil {
		return err
	}
	built := version.Built()
	server := vendorplugin.NewServer(vendorplugin.Options{
		Info:     vendorplugin.Info{Name: o.name, Version: built.Version, Manifest: built.Manifest()},
		Provider: o.provider, Host: platform.Host, Epochs: platform.Epochs, Records: filepath.Join(o.stateDir, "requests"),
		Capabilities: vendorplugin.Capabilities{Block: true, Filesystem: true, Get: true, List: true},
		// SNAP may start after the plugin: until then the plugin is starting.
		Ready:   func(ctx context.Context) (bool, error) { return reaches(ctx, snap) == nil, nil },
		Timeout: o.timeout, Logger: ctrl.Log,
	})
	ready := func() error { return reaches(ctx, snap) }
	return daemon.Beside(ctx, o.metrics, metrics.Registry, ready, func(ctx context.Context) error { return server.Serve(ctx, socket) })
}

// reaches asks SNAP for something small.
func reaches(ctx context.Context, snap *snaprpc.Client) error {
	_, err := snap.BdevGetBdevs(ctx, "")
	return err
}

func measured(p provisioner.Platform) (provisioner.Platform, error) {
	recorder, err := metered.New(metrics.Registry, clock.RealClock{})
	if err != nil {
		return provisioner.Platform{}, err
	}
	return recorder.Platform("local", p), nil
}
