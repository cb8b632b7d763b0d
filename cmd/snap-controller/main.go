// Command snap-controller works in the DPU cluster: it says which storage
// policies are valid, chooses a vendor for each Volume and makes the vendor's
// claim, asks the vendor to attach volumes to DPUs, and to keep snapshots.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/dpucluster"
	"github.com/moor-storage/moor/pkg/controller/dpucluster/attachment"
	"github.com/moor-storage/moor/pkg/controller/dpucluster/policy"
	"github.com/moor-storage/moor/pkg/controller/dpucluster/snapshot"
	"github.com/moor-storage/moor/pkg/controller/dpucluster/volume"
)

// lease is DPF's name.
const lease = "snap-controller.nvidia.com"

func main() {
	var flags kube.Flags
	var logs daemon.LogFlags
	var kubeconfig, namespace string
	fs := pflag.CommandLine
	flags.Bind(fs)
	logs.Bind(fs)
	fs.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the DPU cluster; empty: the pod's own account")
	fs.StringVar(&namespace, "namespace", "dpf-operator-system", "namespace of the storage objects in the DPU cluster")
	fs.StringVar(&namespace, "config-namespace", "dpf-operator-system", "DPF's name for --namespace")
	pflag.Parse()
	ctrl.SetLogger(logs.Logger())
	if err := run(ctrl.SetupSignalHandler(), flags, kubeconfig, namespace); err != nil {
		fmt.Fprintln(os.Stderr, "snap-controller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, flags kube.Flags, kubeconfig, namespace string) error {
	if err := flags.Validate(); err != nil {
		return err
	}
	cfg, err := flags.Config(kubeconfig)
	if err != nil {
		return err
	}
	scheme, err := dpucluster.NewScheme()
	if err != nil {
		return err
	}
	mgr, err := kube.NewManager(cfg, scheme, flags, lease, cache.Options{
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		DefaultTransform:  cache.TransformStripManagedFields(),
		// A vendor's csi-provisioner writes them where it runs.
		ByObject: map[client.Object]cache.ByObject{
			&storagev1.CSIStorageCapacity{}: {Namespaces: map[string]cache.Config{cache.AllNamespaces: {}}},
			&corev1.Node{}:                  {Transform: kube.SlimNode},
		},
	})
	if err != nil {
		return err
	}
	if err := kube.AddIndexes(ctx, mgr.GetFieldIndexer(), dpucluster.Indexes()...); err != nil {
		return err
	}
	dpu, now := kube.ClusterOf(mgr), clock.RealClock{}
	for _, r := range []interface{ SetupWithManager(ctrl.Manager) error }{
		&policy.Reconciler{DPU: dpu},
		&volume.Reconciler{DPU: dpu, Clock: now, IntN: rand.IntN},
		&attachment.Reconciler{DPU: dpu, Clock: now},
		&snapshot.Reconciler{DPU: dpu, Mapper: mgr.GetRESTMapper(), Clock: now},
	} {
		if err := r.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("set up %T: %w", r, err)
		}
	}
	return mgr.Start(ctx)
}
