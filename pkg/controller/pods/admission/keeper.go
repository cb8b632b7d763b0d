package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
)

// What the Secret holds beside Kubernetes' own two keys.
const (
	keyPreviousCertificate = "previous.crt"
	keyPreviousKey         = "previous.key"
)

// keeper keeps the certificate, and has API servers trust it. It is the reconciler of the Secret and
// of the configuration: one pass writes once at most, and the watch of what it wrote brings the next.
type keeper struct {
	host    kube.Cluster
	options Options
	clock   clock.PassiveClock

	// serving is what new connections are given.
	serving atomic.Pointer[pair]
	// trouble is why API servers cannot ask this replica; empty if they can.
	trouble atomic.Pointer[string]
	// made is when this process has last made a certificate. One worker alone uses it.
	made time.Time
}

// Certificate is tls.Config.GetCertificate.
func (k *keeper) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if p := k.serving.Load(); p != nil {
		return &p.serving, nil
	}
	return nil, errors.New("the webhook of PavProvisioners has no certificate yet")
}

// Ready is a healthz.Checker: a replica that API servers do not trust gets no requests of theirs.
func (k *keeper) Ready(*http.Request) error {
	switch t := k.trouble.Load(); {
	case t == nil:
		return errors.New("the certificate of the webhook is not looked at yet")
	case *t != "":
		return errors.New(*t)
	}
	return nil
}

// Reconcile takes the next step.
func (k *keeper) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	trouble, again, err := k.pass(ctx)
	if err != nil {
		trouble = err.Error()
	}
	if was := k.trouble.Swap(&trouble); (was == nil || *was != trouble) && trouble != "" && err == nil {
		ctrl.LoggerFrom(ctx).Info("API servers cannot ask this replica whether a PavProvisioner is right", "reason", trouble)
	}
	return ctrl.Result{RequeueAfter: again}, err
}

// pass returns why API servers cannot ask this replica, and when to look again.
func (k *keeper) pass(ctx context.Context) (trouble string, again time.Duration, err error) {
	secret, config, err := k.read(ctx)
	if err != nil {
		return "", 0, err
	}
	hosts, err := hostsOf(config)
	if err != nil {
		return "", 0, err
	}
	now, log := k.clock.Now(), ctrl.LoggerFrom(ctx)
	s := seen{
		hosts: hosts, bundle: bundleOf(config), serving: k.serving.Load(), made: k.made,
		newest:   pairOf(log, secret, corev1.TLSCertKey, corev1.TLSPrivateKeyKey),
		previous: pairOf(log, secret, keyPreviousCertificate, keyPreviousKey),
	}
	todo := next(now, s)
	switch {
	case todo.make != "":
		log.Info("making a certificate for the webhook", "reason", todo.make, "hosts", hosts)
		if err := k.make(ctx, secret, hosts, todo.keep); err != nil {
			return "", 0, err
		}
	case len(hosts) > 0 && len(todo.bundle) > 0:
		wrote, err := k.trust(ctx, config, todo.bundle)
		if err != nil {
			return "", 0, err
		}
		if wrote {
			log.Info("wrote the certificates of the webhook for API servers", "configuration", config.Name)
		}
		s.bundle = bundleOf(config)
	}
	k.serve(log, todo.serve)
	return k.doubt(now, s.hosts, s.bundle), todo.again, nil
}

// read reads the Secret and the configuration; one that is not there is empty.
func (k *keeper) read(ctx context.Context) (*corev1.Secret, *admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	secret, config := &corev1.Secret{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if _, err := kube.Find(ctx, k.host.Client, client.ObjectKey{Namespace: k.options.Namespace, Name: k.options.Secret}, secret); err != nil {
		return nil, nil, err
	}
	if _, err := kube.Find(ctx, k.host.Client, client.ObjectKey{Name: k.options.Configuration}, config); err != nil {
		return nil, nil, err
	}
	return secret, config, nil
}

// make makes a certificate and writes it and the one to keep into the Secret, unless another replica
// has written that since it was read: this is a conflict, and the next pass sees what that has made.
func (k *keeper) make(ctx context.Context, secret *corev1.Secret, hosts []string, keep *pair) error {
	fresh, err := newPair(k.clock.Now(), hosts)
	if err != nil {
		return err
	}
	fill := func(s *corev1.Secret) {
		s.Data = map[string][]byte{corev1.TLSCertKey: fresh.certPEM, corev1.TLSPrivateKeyKey: fresh.keyPEM}
		if keep != nil {
			s.Data[keyPreviousCertificate], s.Data[keyPreviousKey] = keep.certPEM, keep.keyPEM
		}
	}
	if secret.Name != "" {
		_, err = kube.PatchExact(ctx, k.host.Client, secret, fill)
	} else {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.options.Namespace, Name: k.options.Secret}, Type: corev1.SecretTypeTLS}
		fill(secret)
		_, err = kube.CreateLive(ctx, k.host.Client, k.host.Live, secret)
	}
	if err != nil {
		return fmt.Errorf("keep the certificate of the webhook: %w", err)
	}
	k.made = k.clock.Now()
	return nil
}

// trust has API servers trust the bundle. It reports whether it had to write.
func (k *keeper) trust(ctx context.Context, config *admissionregistrationv1.ValidatingWebhookConfiguration, bundle []byte) (bool, error) {
	return kube.PatchExact(ctx, k.host.Client, config, func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
		for i := range c.Webhooks {
			c.Webhooks[i].ClientConfig.CABundle = bundle
		}
	})
}

func (k *keeper) serve(log logr.Logger, p *pair) {
	if was := k.serving.Swap(p); p != nil && !p.same(was) {
		log.Info("serving a certificate", "serial", p.certificate.SerialNumber.Text(16), "ends", stamp(p.ends()))
	}
}

// doubt is why API servers that know the bundle do not take what is served; "" if they do.
func (k *keeper) doubt(now time.Time, hosts []string, bundle []byte) string {
	if len(hosts) == 0 {
		return fmt.Sprintf("there is no ValidatingWebhookConfiguration %s with a webhook: until it is applied again (deploy/pav), PavProvisioners that are wrong are not refused", k.options.Configuration)
	}
	serving := k.serving.Load()
	if why := serving.problem(now, hosts); why != "" {
		return why
	}
	if !trusts(bundle, serving) {
		return fmt.Sprintf("the caBundle of ValidatingWebhookConfiguration %s does not have the certificate that is served yet", k.options.Configuration)
	}
	return ""
}

// pairOf reads a pair of the Secret; what is not there in one piece is nil.
func pairOf(log logr.Logger, secret *corev1.Secret, certificate, key string) *pair {
	if len(secret.Data[certificate]) == 0 {
		return nil
	}
	p, err := parsePair(secret.Data[certificate], secret.Data[key])
	if err != nil {
		log.Info("a certificate of the webhook is of no use", "secret", secret.Name, "key", certificate, "reason", err.Error())
		return nil
	}
	return p
}

// hostsOf are the names and addresses under which API servers call the webhooks of a configuration.
func hostsOf(config *admissionregistrationv1.ValidatingWebhookConfiguration) ([]string, error) {
	var out []string
	for i := range config.Webhooks {
		to := &config.Webhooks[i].ClientConfig
		if to.Service != nil {
			out = append(out, to.Service.Name+"."+to.Service.Namespace+".svc")
		}
		if to.URL != nil {
			u, err := url.Parse(*to.URL)
			if err != nil {
				return nil, fmt.Errorf("read the URL of webhook %s in ValidatingWebhookConfiguration %s: %w", config.Webhooks[i].Name, config.Name, err)
			}
			out = append(out, u.Hostname())
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// bundleOf is what API servers trust for all webhooks of a configuration; nothing if these differ.
func bundleOf(config *admissionregistrationv1.ValidatingWebhookConfiguration) []byte {
	var out []byte
	for i := range config.Webhooks {
		bundle := config.Webhooks[i].ClientConfig.CABundle
		if i > 0 && !slices.Equal(out, bundle) {
			return nil
		}
		out = bundle
	}
	return out
}
