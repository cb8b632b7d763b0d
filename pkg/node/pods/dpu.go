package pods

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/moor-storage/moor/pkg/node/pods/ask"
	"github.com/moor-storage/moor/pkg/node/pods/vendor"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/metered"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// DPU is what an agent on a DPU needs to serve snap-node-driver: PavProvisioners are a storage vendor there.
type DPU struct {
	// Socket is that of the plugin, see vendorplugin.SocketPath.
	Socket string
	// Plugin is what its server is told, but for what it can do and by what.
	Plugin vendorplugin.Options
	// SNAP is the service that gets the devices.
	SNAP vendor.SNAP
	// Namespace has the claims and VolumeAttachments that snap-controller makes.
	Namespace string
	// Volumes and Records are directories: see vendor.Options.
	Volumes, Records string
}

// setupDPU adds the plugin of a DPU.
func (a *Agent) setupDPU(mgr manager.Manager) error {
	d := a.o.DPU
	if d == nil {
		return nil
	}
	recorder, err := metered.New(a.o.Metrics, a.clock)
	if err != nil {
		return fmt.Errorf("count the calls of the DPU's plugin: %w", err)
	}
	a.vendor = vendor.New(vendor.Options{
		Node: a.o.Node, Namespace: d.Namespace, Volumes: d.Volumes, Records: d.Records,
		Stagings: ask.Stagings{Boot: a.o.Boot, Client: a.cluster.Client, Live: a.cluster.Live, Awaiter: a.drivers.stagings},
		Targets:  a.targets, SNAP: d.SNAP,
	})
	plugin := d.Plugin
	plugin.Host, plugin.Logger = recorder.Platform("pods", provisioner.Platform{Host: a.vendor}).Host, a.log
	plugin.Capabilities = vendorplugin.Capabilities{Block: true, Filesystem: true, Get: true, List: true}
	server := vendorplugin.NewServer(plugin)
	serve := manager.RunnableFunc(func(ctx context.Context) error { return server.Serve(ctrl.LoggerInto(ctx, a.log), d.Socket) })
	if err := mgr.Add(everywhere{serve}); err != nil {
		return fmt.Errorf("add the plugin of the DPU: %w", err)
	}
	return nil
}
