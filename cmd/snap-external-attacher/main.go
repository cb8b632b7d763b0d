// Command snap-external-attacher stands beside a vendor's CSI controller and
// carries SVVolumeAttachments of the DPU cluster to it. Its flags are those of
// Kubernetes' external-attacher, and those of Moor's other controllers.
package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/served"
	"github.com/moor-storage/moor/pkg/controller/attacher"
)

// options are the flags.
type options struct {
	flags         kube.Flags
	csiAddress    string
	kubeconfig    string
	namespace     string
	timeout       time.Duration
	retry         attacher.Retry
	defaultFSType string
}

func main() {
	var o options
	daemon.Main("snap-external-attacher", o.bind, o.run)
}

func (o *options) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	driver, err := attacher.Connect(o.csiAddress)
	if err != nil {
		return err
	}
	defer func() { _ = driver.Close() }()
	ctrl.Log.Info("waiting for the CSI driver", "address", o.csiAddress)
	name, err := driver.Name(ctx)
	if err != nil {
		return err
	}
	features, err := driver.Features(ctx)
	if err != nil {
		return err
	}
	mgr, err := o.manager(strings.ReplaceAll(name, "/", "-"))
	if err != nil {
		return err
	}
	if err := served.Require(ctx, mgr, served.Cluster{Name: "DPU cluster", Of: mgr}); err != nil {
		return err
	}
	if err := kube.AddIndexes(ctx, mgr.GetFieldIndexer(), index.Attacher()...); err != nil {
		return err
	}
	r := &attacher.Reconciler{
		DPU: kube.ClusterOf(mgr), Driver: driver, DriverName: name, Features: features,
		Timeout: o.timeout, DefaultFSType: o.defaultFSType, Clock: clock.RealClock{},
	}
	if err := r.SetupWithManager(mgr, o.retry); err != nil {
		return fmt.Errorf("set up the attacher of %s: %w", name, err)
	}
	return mgr.Start(ctx)
}
