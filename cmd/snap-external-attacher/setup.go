package main

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
)

// namespaceEnv is the environment variable by which DPF names the namespace.
const namespaceEnv = "WATCH_NAMESPACE"

// bind adds the flags; those that only repeat another one's meaning are
// external-attacher's names for it.
func (o *options) bind(fs *pflag.FlagSet) {
	o.flags.Bind(fs)
	fs.StringVar(&o.csiAddress, "csi-address", "/run/csi/socket", "address of the vendor's CSI driver")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the DPU cluster; empty: the pod's own account")
	fs.StringVar(&o.namespace, "namespace", cmp.Or(os.Getenv(namespaceEnv), "dpf-operator-system"), "namespace of the SVVolumeAttachments; default from $"+namespaceEnv)
	fs.DurationVar(&o.timeout, "timeout", 2*time.Minute, "how long one call of the CSI driver may take")
	fs.DurationVar(&o.retry.Start, "retry-interval-start", time.Second, "first pause before a failed attachment is tried again; it doubles")
	fs.DurationVar(&o.retry.Max, "retry-interval-max", 5*time.Minute, "longest such pause")
	fs.StringVar(&o.defaultFSType, "default-fstype", "", "file system of a volume that names none")
	fs.IntVar(&o.flags.Concurrency, "worker-threads", o.flags.Concurrency, "same as --concurrency")
	fs.BoolVar(&o.flags.LeaderElect, "leader-election", o.flags.LeaderElect, "same as --leader-elect")
	fs.StringVar(&o.flags.MetricsBindAddress, "http-endpoint", o.flags.MetricsBindAddress, "same as --metrics-bind-address")
	fs.StringVar(&o.flags.MetricsBindAddress, "metrics-address", o.flags.MetricsBindAddress, "same as --metrics-bind-address")
	daemon.NoEffect(fs, "every attachment is looked at again at --sync-period", "resync", "reconcile-sync")
	daemon.NoEffect(fs, "attachments are not compared with ListVolumes", "max-entries")
	daemon.NoEffect(fs, "the lease has no labels", "leader-election-labels")
	daemon.NoEffect(fs, "metrics are at /metrics, features are not switched, and Go knows the processors of a container", "metrics-path", "feature-gates", "automaxprocs", "max-grpc-log-length")
}

func (o *options) validate() error {
	switch {
	case o.timeout <= 0:
		return fmt.Errorf("--timeout is %s: it must be positive", o.timeout)
	case o.retry.Start <= 0 || o.retry.Max < o.retry.Start:
		return fmt.Errorf("--retry-interval-start %s must be positive and not above --retry-interval-max %s", o.retry.Start, o.retry.Max)
	}
	o.retry.Workers = o.flags.Concurrency
	return o.flags.Validate()
}

// manager builds the manager; two attachers of one driver share its lease.
func (o *options) manager(driver string) (ctrl.Manager, error) {
	config, err := o.flags.Config(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme, err := kube.NewScheme(corev1.AddToScheme, storagev1.AddToScheme, storagev1alpha1.AddDPUToScheme)
	if err != nil {
		return nil, err
	}
	caches := cache.Options{
		DefaultTransform:  cache.TransformStripManagedFields(),
		DefaultNamespaces: map[string]cache.Config{o.namespace: {}},
	}
	return kube.NewManager(config, scheme, o.flags, "snap-external-attacher-"+driver, caches)
}
