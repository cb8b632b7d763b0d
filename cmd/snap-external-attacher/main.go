// Command snap-external-attacher stands beside a vendor's CSI controller and
// carries SVVolumeAttachments of the DPU cluster to it. Its flags are those of
// Kubernetes' external-attacher, and those of Moor's other controllers.
package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
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
	if err := o.setUp(ctx, mgr, driver, name, features); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// setUp registers indexes and the reconciler of a driver, and what it watches and no index holds.
func (o *options) setUp(ctx context.Context, mgr ctrl.Manager, driver *attacher.Connection, name string, features attacher.Features) error {
	if err := kube.AddIndexes(ctx, mgr.GetFieldIndexer(), index.Attacher()...); err != nil {
		return err
	}
	held := []client.Object{&corev1.PersistentVolume{}}
	if features.Fence {
		held = append(held, &storagev1alpha1.VolumeAttachment{})
	}
	if err := kube.Hold(ctx, mgr.GetCache(), held...); err != nil {
		return err
	}
	r := &attacher.Reconciler{
		DPU: kube.ClusterOf(mgr), Driver: driver, DriverName: name, Features: features,
		Timeout: o.timeout, DefaultFSType: o.defaultFSType, Clock: clock.RealClock{},
	}
	if err := r.SetupWithManager(mgr, o.retry); err != nil {
		return fmt.Errorf("set up the attacher of %s: %w", name, err)
	}
	return nil
}
