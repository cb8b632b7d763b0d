// Command snap-controller works in the DPU cluster: it says which storage
// policies are valid, chooses a vendor for each Volume and makes the vendor's
// claim, asks the vendor to attach volumes to DPUs, and to keep snapshots.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/served"
	"github.com/moor-storage/moor/pkg/controller/dpucluster"
	"github.com/moor-storage/moor/pkg/controller/dpucluster/attachment"
	"github.com/moor-storage/moor/pkg/controller/dpucluster/policy"
	"github.com/moor-storage/moor/pkg/controller/dpucluster/snapshot"
	"github.com/moor-storage/moor/pkg/controller/dpucluster/volume"
)

// lease is DPF's name.
const lease = "snap-controller.nvidia.com"

// options are the flags.
type options struct {
	flags                 kube.Flags
	kubeconfig, namespace string
}

func main() {
	var o options
	daemon.Main("snap-controller", o.bind, o.run)
}

func (o *options) bind(fs *pflag.FlagSet) {
	o.flags.Bind(fs)
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the DPU cluster; empty: the pod's own account")
	fs.StringVar(&o.namespace, "namespace", "dpf-operator-system", "namespace of the storage objects in the DPU cluster")
	fs.StringVar(&o.namespace, "config-namespace", "dpf-operator-system", "DPF's name for --namespace")
	daemon.NoEffect(fs, "metrics are served by HTTP/1", "enable-http2")
}

func (o *options) run(ctx context.Context) error {
	mgr, err := o.manager(ctx)
	if err != nil {
		return err
	}
	if err := o.setUp(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func (o *options) manager(ctx context.Context) (ctrl.Manager, error) {
	if err := o.flags.Validate(); err != nil {
		return nil, err
	}
	cfg, err := o.flags.Config(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme, err := dpucluster.NewScheme()
	if err != nil {
		return nil, err
	}
	mgr, err := kube.NewManager(cfg, scheme, o.flags, lease, cache.Options{
		DefaultNamespaces: map[string]cache.Config{o.namespace: {}},
		DefaultTransform:  cache.TransformStripManagedFields(),
		// A vendor's csi-provisioner writes them where it runs.
		ByObject: map[client.Object]cache.ByObject{
			&storagev1.CSIStorageCapacity{}: {Namespaces: map[string]cache.Config{cache.AllNamespaces: {}}},
			&corev1.Node{}:                  {Transform: kube.SlimNode},
		},
	})
	if err != nil {
		return nil, err
	}
	return mgr, served.Require(ctx, mgr, served.Cluster{Name: "DPU cluster", Of: mgr})
}

// setUp registers indexes and reconcilers, and what these watch and no index holds.
func (o *options) setUp(ctx context.Context, mgr ctrl.Manager) error {
	if err := kube.AddIndexes(ctx, mgr.GetFieldIndexer(), index.DPU()...); err != nil {
		return err
	}
	if err := kube.Hold(ctx, mgr.GetCache(), &storagev1alpha1.SVVolumeAttachment{}, &corev1.PersistentVolumeClaim{},
		&corev1.Node{}, &storagev1.CSINode{}, &storagev1.CSIDriver{}, &storagev1.StorageClass{}); err != nil {
		return err
	}
	dpu, now := kube.ClusterOf(mgr), clock.RealClock{}
	for _, r := range []interface{ SetupWithManager(ctrl.Manager) error }{
		&policy.Reconciler{DPU: dpu},
		&volume.Reconciler{DPU: dpu, Clock: now, IntN: rand.IntN, Recorder: mgr.GetEventRecorderFor("snap-controller")},
		&attachment.Reconciler{DPU: dpu, Clock: now},
		&snapshot.Reconciler{DPU: dpu, Mapper: mgr.GetRESTMapper(), Clock: now},
	} {
		if err := r.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("set up %T: %w", r, err)
		}
	}
	return nil
}
