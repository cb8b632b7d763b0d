package main

import (
	"context"
	"errors"
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/daemon/version"
	controllercsi "github.com/moor-storage/moor/pkg/controller/csi"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/storageclass"
	"github.com/moor-storage/moor/pkg/provisioner/metered"
)

func (o *options) runController(ctx context.Context) error {
	host, err := o.manager(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(host.Start(ctx)) }()
	if !host.GetCache().WaitForCacheSync(ctx) {
		return fmt.Errorf("read the host cluster's objects: %w", context.Cause(ctx))
	}
	platform, err := o.platform(ctx, host)
	if err != nil {
		return err
	}
	if o.attach == dpf.AttachNode {
		platform.Attachments = nil // the service then offers no publish
	}
	go func() { cancel(daemon.Serve(ctx, o.metrics, metrics.Registry, nil)) }()
	controller := controllercsi.Options{
		Platform: platform, NodeExpands: true, Places: o.topology,
		Normalize: storageclass.Normalize, BlockOnly: true, Shares: storageclass.SharesFilesystem,
	}
	server := controllercsi.New(controller)
	err = csiserver.Serve(ctx, o.bindAddress, func(s *grpc.Server) {
		csispec.RegisterIdentityServer(s, csiserver.NewIdentity(o.name, version.Built().Version, nil, controllercsi.PluginCapabilities(controller)...))
		csispec.RegisterControllerServer(s, server)
		csispec.RegisterGroupControllerServer(s, server)
	}, csiserver.Options{Logger: ctrl.Log, Metrics: metrics.Registry})
	return ended(ctx, err)
}

func (o *options) platform(ctx context.Context, host cluster.Cluster) (provisioner.Platform, error) {
	options := dpf.Options{Client: host.GetClient(), Cache: host.GetCache(), Namespace: o.namespace}
	platform, err := dpf.Platform(ctx, options)
	if err != nil {
		return provisioner.Platform{}, err
	}
	// The first read of a kind waits for its watch: do that now.
	for _, kind := range []client.ObjectList{&moorv1alpha1.DPUStorageNodeList{}, &storagev1alpha1.DPUStoragePolicyList{}} {
		if err := host.GetClient().List(ctx, kind, client.Limit(1)); err != nil {
			return provisioner.Platform{}, fmt.Errorf("read for the first time: %w", err)
		}
	}
	recorder, err := metered.New(prometheus.Registerer(metrics.Registry), clock.RealClock{})
	if err != nil {
		return provisioner.Platform{}, err
	}
	return recorder.Platform("dpf", platform), nil
}

// ended prefers the reason why the process stopped to what serving says of it.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}
