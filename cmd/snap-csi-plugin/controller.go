package main

import (
	"context"
	"errors"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon/version"
	"github.com/moor-storage/moor/internal/kube"
	controllercsi "github.com/moor-storage/moor/pkg/controller/csi"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf"
	"github.com/moor-storage/moor/pkg/provisioner/metered"
)

func (o *options) runController(ctx context.Context) error {
	informers := &kube.Informers{}
	host, err := o.manager(ctx, informers)
	if err != nil {
		return err
	}
	platform, err := o.platform(ctx, host)
	if err != nil {
		return err
	}
	if o.attach == dpf.AttachNode {
		platform.Attachments = nil // the service then offers no publish
	}
	ctx, cancel := context.WithCancelCause(ctx)
	managed := make(chan struct{})
	// The process outlives its manager, which gives the lease back last of all.
	defer func() { cancel(nil); <-managed }()
	go func() { defer close(managed); cancel(host.Start(ctx)) }()
	filled := informers.ReadyWith(host, o.election)
	go func() { cancel(o.serveSide(ctx, host.GetConfig(), filled)) }()
	ready := func(context.Context) error { return filled() }
	controller := controllercsi.Options{
		Platform: platform, NodeExpands: true, Places: o.topology,
		Normalize: o.driver.Normalize, BlockOnly: true, Shares: o.driver.SharesFilesystem,
	}
	server := controllercsi.New(controller)
	err = csiserver.Serve(ctx, o.bindAddress, func(s *grpc.Server) {
		csispec.RegisterIdentityServer(s, csiserver.NewIdentity(o.name, version.Built().Version, ready, controllercsi.PluginCapabilities(controller)...))
		csispec.RegisterControllerServer(s, server)
		csispec.RegisterGroupControllerServer(s, server)
	}, csiserver.Options{Logger: ctrl.Log, Ready: ready, Metrics: metrics.Registry})
	return ended(ctx, err)
}

func (o *options) platform(ctx context.Context, host cluster.Cluster) (provisioner.Platform, error) {
	options := dpf.Options{Client: host.GetClient(), Cache: host.GetCache(), Live: host.GetAPIReader(), Namespace: o.namespace}
	platform, err := dpf.Platform(ctx, options)
	if err != nil {
		return provisioner.Platform{}, err
	}
	// The first read of a kind would wait for its watch: watch it from the start.
	if err := kube.Hold(ctx, host.GetCache(), &moorv1alpha1.DPUStorageNode{}, &storagev1alpha1.DPUStoragePolicy{}); err != nil {
		return provisioner.Platform{}, err
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
