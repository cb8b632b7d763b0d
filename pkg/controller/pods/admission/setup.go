package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/moor-storage/moor/internal/kube"
)

// Path is where the webhook is served.
const Path = "/pavprovisioners"

// The objects as deploy/pav names them.
const (
	// Secret of the certificate.
	Secret = "pod-provisioner-webhook"
	// Configuration is the ValidatingWebhookConfiguration.
	Configuration = "pod-provisioner"
)

// Options are how the webhook is served. Under which name or address API servers call it, a Service
// or a URL, is what the configuration says: the certificate is made for that.
type Options struct {
	// Port to listen on.
	Port int
	// Namespace of the Secret.
	Namespace string
	// Secret is the one that holds the certificate; it is made if it is not there.
	Secret string
	// Configuration is the ValidatingWebhookConfiguration whose caBundle is kept.
	Configuration string
}

// Caches is how the manager's cache holds what is watched here: the two objects alone, which is all
// that the account may read of their kinds.
func (o Options) Caches() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{o.Namespace: {FieldSelector: named(o.Secret)}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: {Field: named(o.Configuration)},
	}
}

func named(name string) fields.Selector { return fields.OneTermEqualSelector("metadata.name", name) }

// SetupWithManager serves the webhook in each replica, whether it leads or not, and keeps its
// certificate. The manager's cache has to be made with Caches.
func (o Options) SetupWithManager(mgr ctrl.Manager, check Check) error {
	if check == nil || o.Port == 0 || o.Namespace == "" || o.Secret == "" || o.Configuration == "" {
		return errors.New("serve the webhook of PavProvisioners: a check, a port, a namespace and the names of the Secret and of the configuration are needed")
	}
	k := &keeper{host: kube.ClusterOf(mgr), options: o, clock: clock.RealClock{}}
	server := webhook.NewServer(webhook.Options{Port: o.Port, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.GetCertificate, c.MinVersion = k.Certificate, tls.VersionTLS13
	}}})
	server.Register(Path, &webhook.Admission{Handler: check})
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("serve the webhook of PavProvisioners: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook", k.Ready); err != nil {
		return fmt.Errorf("add the readiness check of the webhook: %w", err)
	}
	return k.setup(mgr)
}

// setup has each event of the two objects, and the start, bring a pass. Where neither object is
// there, no event comes.
func (k *keeper) setup(mgr ctrl.Manager) error {
	all := func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{kube.RequestFor(k.options.Namespace, k.options.Secret)}
	}
	replica := false
	return ctrl.NewControllerManagedBy(mgr).
		Named("webhook-certificate").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, NeedLeaderElection: &replica}).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(all)).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, handler.EnqueueRequestsFromMapFunc(all)).
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			q.Add(kube.RequestFor(k.options.Namespace, k.options.Secret))
			return nil
		})).
		Complete(kube.Retrying(k))
}
