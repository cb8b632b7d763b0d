package main

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/served"
	"github.com/moor-storage/moor/pkg/controller/pods/admission"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/controller/pods/provisioner"
	"github.com/moor-storage/moor/pkg/controller/pods/revocation"
	"github.com/moor-storage/moor/pkg/controller/pods/staging"
	"github.com/moor-storage/moor/pkg/controller/pods/volume"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// lease is what one replica holds while it works.
const lease = "pod-provisioner-controller.storage.moor.dev"

// controllerOptions are the flags of --mode controller.
type controllerOptions struct {
	namespace string
	webhook   int
	holdImage string
}

func (c *controllerOptions) bind(fs *pflag.FlagSet) {
	fs.StringVar(&c.namespace, "namespace", "moor-pods", "namespace of the webhook's certificate (controller)")
	fs.StringVar(&c.holdImage, "hold-image", pods.DefaultHoldImage, "image of the container that keeps staging pods which use claims until their volume is unstaged, since the node would give the volumes of the claims back when they have ended; it has to run as a user other than root and end when it is told to; empty: no such container (controller)")
	fs.IntVar(&c.webhook, "webhook-port", 9443, "port on which API servers have PavProvisioners checked (controller)")
}

func (o *options) runController(ctx context.Context) error {
	mgr, err := o.controllerManager()
	if err != nil {
		return err
	}
	if err := served.Require(ctx, mgr, served.Cluster{Name: "cluster", Of: mgr}); err != nil {
		return err
	}
	if err := o.hook().SetupWithManager(mgr, pods.Check); err != nil {
		return err
	}
	if err := o.setUp(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// hook is the webhook, as the manifests name its objects.
func (o *options) hook() admission.Options {
	return admission.Options{Port: o.control.webhook, Namespace: o.control.namespace, Secret: admission.Secret, Configuration: admission.Configuration}
}

func (o *options) controllerManager() (ctrl.Manager, error) {
	config, err := o.flags.Config(o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	scheme, err := kube.NewScheme(corev1.AddToScheme, storagev1.AddToScheme, admissionregistrationv1.AddToScheme, moorv1alpha1.AddPodsToScheme, moorv1alpha1.AddDPUToScheme, pavv1alpha1.AddToScheme, storagev1alpha1.AddDPUToScheme)
	if err != nil {
		return nil, err
	}
	helpers, err := labels.NewRequirement(moorv1alpha1.LabelHelperPhase, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("select helper pods: %w", err)
	}
	caches := cache.Options{DefaultTransform: cache.TransformStripManagedFields(), ByObject: o.hook().Caches()}
	caches.ByObject[&corev1.Pod{}] = cache.ByObject{Label: labels.NewSelector().Add(*helpers)} // users' pods are asked for one by one
	return kube.NewManager(config, scheme, o.flags, lease, caches)
}

// setUp registers indexes and reconcilers.
func (o *options) setUp(ctx context.Context, mgr ctrl.Manager) error {
	if err := kube.AddIndexes(ctx, mgr.GetFieldIndexer(), index.Pods()...); err != nil {
		return err
	}
	counts, err := helper.NewMetrics(metrics.Registry)
	if err != nil {
		return err
	}
	//lint:ignore SA1019 the events are about objects that come and go, which the new API does not count
	recorder := mgr.GetEventRecorderFor("pod-provisioner")
	cluster, provisioners := kube.ClusterOf(mgr), &compiled.Store{}
	helpers := helper.Pods{Cluster: cluster, Root: o.root, HoldImage: o.control.holdImage, Metrics: counts}
	if err := (&provisioner.Reconciler{Cluster: cluster, Provisioners: provisioners}).SetupWithManager(ctx, mgr); err != nil {
		return fmt.Errorf("set up provisioners: %w", err)
	}
	for _, r := range []interface{ SetupWithManager(ctrl.Manager) error }{
		&volume.Reconciler{Cluster: cluster, Pods: helpers, Provisioners: provisioners, Clock: clock.RealClock{}, Recorder: recorder},
		&staging.Reconciler{Cluster: cluster, Pods: helpers, Provisioners: provisioners, Clock: clock.RealClock{}, Recorder: recorder},
	} {
		if err := r.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("set up %T: %w", r, err)
		}
	}
	dpus, err := revocation.Served(mgr)
	if err != nil || !dpus {
		return err
	}
	requests := &revocation.Requests{Cluster: cluster, Provisioners: provisioners, Clock: clock.RealClock{}, Recorder: recorder}
	if err := requests.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up %T: %w", requests, err)
	}
	revocations := &revocation.Reconciler{Cluster: cluster, Pods: helpers, Provisioners: provisioners, Clock: clock.RealClock{}, Recorder: recorder}
	if err := revocations.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up %T: %w", revocations, err)
	}
	return nil
}
