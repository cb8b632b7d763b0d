package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/pods/admission"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// lease is what one replica holds while it works.
const lease = "pod-provisioner-controller.storage.moor.dev"

// controllerOptions are the flags of --mode controller.
type controllerOptions struct {
	namespace string
	webhook   int
}

func (c *controllerOptions) bind(fs *pflag.FlagSet) {
	fs.StringVar(&c.namespace, "namespace", "moor-pods", "namespace of the webhook's certificate (controller)")
	fs.IntVar(&c.webhook, "webhook-port", 9443, "port on which API servers have PavProvisioners checked (controller)")
}

func (o *options) runController(ctx context.Context) error {
	mgr, err := o.controllerManager()
	if err != nil {
		return err
	}
	hook := o.hook()
	if err := hook.SetupWithManager(mgr, pods.Check); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func (o *options) hook() admission.Options {
	return admission.Options{Port: o.control.webhook, Namespace: o.control.namespace, Secret: admission.Secret, Configuration: admission.Configuration}
}

func (o *options) controllerManager() (ctrl.Manager, error) {
	config, err := o.flags.Config(o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	scheme, err := kube.NewScheme(clientgoscheme.AddToScheme, moorv1alpha1.AddPodsToScheme, pavv1alpha1.AddToScheme)
	if err != nil {
		return nil, err
	}
	caches := cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: o.hook().Caches()}
	return kube.NewManager(config, scheme, o.flags, lease, caches)
}
