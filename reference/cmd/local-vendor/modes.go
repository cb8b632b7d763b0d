package main

import (
	"context"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/daemon/version"
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
		return csiserver.Serve(ctx, o.endpoint, register, csiserver.Options{Logger: ctrl.Log, Timeout: o.plugin.Timeout, Metrics: metrics.Registry})
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
	site, err := o.plugin.Site(o.name)
	if err != nil {
		return err
	}
	host := devices.NewHost(site.SNAP, o.targetDir, site.State)
	platform := provisioner.Platform{Host: host}
	if o.epochs {
		platform.Epochs = host
	}
	platform, err = measured(platform)
	if err != nil {
		return err
	}
	plugin := site.Options
	plugin.Host, plugin.Epochs, plugin.Logger = platform.Host, platform.Epochs, ctrl.Log
	plugin.Capabilities = vendorplugin.Capabilities{Block: true, Filesystem: true, Get: true, List: true}
	server := vendorplugin.NewServer(plugin)
	ready := func() error { return site.Reaches(ctx) }
	return daemon.Beside(ctx, o.metrics, metrics.Registry, ready, func(ctx context.Context) error { return server.Serve(ctx, site.Socket) })
}

func measured(p provisioner.Platform) (provisioner.Platform, error) {
	recorder, err := metered.New(metrics.Registry, clock.RealClock{})
	if err != nil {
		return provisioner.Platform{}, err
	}
	return recorder.Platform("local", p), nil
}
