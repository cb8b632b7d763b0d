package pods

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/moor-storage/moor/pkg/node/pods/ask"
	"github.com/moor-storage/moor/pkg/node/pods/vendor"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// DPU is what an agent on a DPU needs to serve snap-node-driver: PavProvisioners are a storage vendor there.
type DPU struct {
	// Socket is that of the plugin, see vendorplugin.SocketPath.
	Socket string
	// Info is who the plugin is.
	Info vendorplugin.Info
	// Provider names the SNAP service; empty: the default one.
	Provider string
	// SNAP is that service.
	SNAP vendor.SNAP
	// Namespace has the claims and VolumeAttachments that snap-controller makes.
	Namespace string
	// Volumes and Records are directories: see vendor.Options.
	Volumes, Records string
	// Requests is vendorplugin.Options.Records.
	Requests string
	// Timeout of a call; 0: vendorplugin's.
	Timeout time.Duration
}

// setupDPU adds the plugin of a DPU.
func (a *Agent) setupDPU(mgr manager.Manager) error {
	d := a.o.DPU
	if d == nil {
		return nil
	}
	a.vendor = vendor.New(vendor.Options{
		Node: a.o.Node, Namespace: d.Namespace, Volumes: d.Volumes, Records: d.Records,
		Stagings: ask.Stagings{Boot: a.o.Boot, Client: a.cluster.Client, Live: a.cluster.Live, Awaiter: a.drivers.stagings},
		Targets:  a.targets, SNAP: d.SNAP,
	})
	server := vendorplugin.NewServer(vendorplugin.Options{
		Info: d.Info, Provider: d.Provider, Host: a.vendor, Records: d.Requests, Timeout: d.Timeout, Logger: a.log,
		Capabilities: vendorplugin.Capabilities{Block: true, Filesystem: true, Get: true, List: true},
		// SNAP may start after the plugin: until then the plugin is starting.
		Ready: func(ctx context.Context) (bool, error) {
			_, err := d.SNAP.BdevGetBdevs(ctx, "")
			return err == nil, nil
		},
	})
	serve := manager.RunnableFunc(func(ctx context.Context) error { return server.Serve(ctrl.LoggerInto(ctx, a.log), d.Socket) })
	if err := mgr.Add(everywhere{serve}); err != nil {
		return fmt.Errorf("add the plugin of the DPU: %w", err)
	}
	return nil
}
