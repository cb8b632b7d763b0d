package admission

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/moor-storage/moor/internal/kube"
)

var ours = Options{Port: 9443, Namespace: "moor-pods", Secret: Secret, Configuration: Configuration}

func sign(t *testing.T, template *x509.Certificate, by, of *pair) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, by.certificate, of.certificate.PublicKey, by.serving.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// world is a cluster in memory with replicas that share a clock.
type world struct {
	t *testing.T
	client.Client
	clock *clocktesting.FakePassiveClock
	a, b  *keeper
	// refuses, if not nil, is what a write of the configuration is answered.
	refuses error
}

// open is a world with the configuration as it is applied.
func open(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(begin)}
	w.Client = fake.NewClientBuilder().WithObjects(applied()).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*admissionregistrationv1.ValidatingWebhookConfiguration); ok && w.refuses != nil {
				return w.refuses
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	w.a, w.b = w.replica(), w.replica()
	return w
}

func (w *world) replica() *keeper {
	return &keeper{host: kube.Cluster{Client: w.Client, Live: w.Client}, options: ours, clock: w.clock}
}

// applied is the configuration without a bundle, with two webhooks that are called by the Service.
func applied() *admissionregistrationv1.ValidatingWebhookConfiguration {
	path := Path
	hook := admissionregistrationv1.ValidatingWebhook{ClientConfig: admissionregistrationv1.WebhookClientConfig{
		Service: &admissionregistrationv1.ServiceReference{Namespace: "moor-pods", Name: "pod-provisioner-webhook", Path: &path},
	}}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: Configuration}, Webhooks: []admissionregistrationv1.ValidatingWebhook{hook, hook},
	}
}

// settle has the replicas work until neither writes any more, and returns what the last passes said.
func (w *world) settle(replicas ...*keeper) (again time.Duration) {
	w.t.Helper()
	for range 10 {
		before := w.versions()
		for _, k := range replicas {
			result, err := kube.Retrying(k).Reconcile(w.t.Context(), ctrl.Request{})
			if err != nil {
				w.t.Fatal(err)
			}
			again = result.RequeueAfter
		}
		if w.versions() == before {
			return again
		}
	}
	w.t.Fatal("they write and write")
	return 0
}

func (w *world) versions() string {
	return w.secret().ResourceVersion + "," + w.config().ResourceVersion
}

func (w *world) secret() *corev1.Secret {
	s := &corev1.Secret{}
	if err := client.IgnoreNotFound(w.Get(w.t.Context(), client.ObjectKey{Namespace: ours.Namespace, Name: ours.Secret}, s)); err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) config() *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := client.IgnoreNotFound(w.Get(w.t.Context(), client.ObjectKey{Name: ours.Configuration}, c)); err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// taken says that an API server that knows the configuration, and calls the host, takes what each
// replica serves, and that each says that it is ready.
func (w *world) taken(host string, replicas ...*keeper) {
	w.t.Helper()
	for _, k := range replicas {
		if err := k.handshake(w.t, bundleOf(w.config()), host, w.clock.Now()); err != nil {
			w.t.Errorf("at %v: %v", w.clock.Now(), err)
		}
		if err := k.Ready(nil); err != nil {
			w.t.Errorf("at %v: not ready: %v", w.clock.Now(), err)
		}
	}
}

func (k *keeper) handshake(t *testing.T, bundle []byte, host string, now time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() {
		defer here.Close()
		served <- tls.Server(here, &tls.Config{GetCertificate: k.Certificate}).HandshakeContext(t.Context())
	}()
	err := tls.Client(there, &tls.Config{RootCAs: roots, ServerName: host, Time: func() time.Time { return now }}).HandshakeContext(t.Context())
	there.Close()
	return errors.Join(err, <-served)
}

func TestFirstStart(t *testing.T) {
	w := open(t)
	if err := w.a.Ready(nil); err == nil {
		t.Error("ready before it looked")
	}
	if err := w.a.handshake(t, nil, service, begin); err == nil || !strings.Contains(err.Error(), "no certificate yet") {
		t.Errorf("serves before it has a certificate: %v", err)
	}
	if again := w.settle(w.a, w.b); again != lookAgain {
		t.Errorf("looks again in %v", again)
	}
	w.taken(service, w.a, w.b)
	if s := w.secret(); s.Type != corev1.SecretTypeTLS || len(s.Data) != 2 {
		t.Errorf("the Secret is of type %s and holds %d keys", s.Type, len(s.Data))
	}
	if c := w.config(); c.Webhooks[0].ClientConfig.Service == nil || string(c.Webhooks[1].ClientConfig.CABundle) != string(w.secret().Data[corev1.TLSCertKey]) {
		t.Errorf("the configuration is %+v", c.Webhooks)
	}
}

// TestRenewal: through a renewal, a restart in it and the end of the old certificate.
func TestRenewal(t *testing.T) {
	w := open(t)
	w.settle(w.a, w.b)
	first := w.a.serving.Load()
	w.clock.SetTime(begin.Add(lifetime - renewal))
	if again := w.settle(w.a, w.b); again != settle {
		t.Errorf("looks again in %v", again)
	}
	w.b = w.replica()
	w.settle(w.b)
	w.taken(service, w.a, w.b)
	if !w.a.serving.Load().same(first) || !w.b.serving.Load().same(first) {
		t.Error("the new one is served before API servers know of it")
	}
	w.clock.SetTime(begin.Add(lifetime - renewal + settle))
	w.settle(w.a, w.b)
	w.taken(service, w.a, w.b)
	second := w.a.serving.Load()
	if second.same(first) || !w.b.serving.Load().same(second) || !trusts(bundleOf(w.config()), first) {
		t.Error("the new one is not served, or the old one is not trusted any more")
	}
	w.clock.SetTime(begin.Add(lifetime))
	w.settle(w.a, w.b)
	w.taken(service, w.a, w.b)
	if trusts(bundleOf(w.config()), first) {
		t.Error("one that has ended is still in the bundle")
	}
}

// TestHeals: what was taken away or overwritten is written again, and who is served meanwhile stays so.
func TestHeals(t *testing.T) {
	for name, tc := range map[string]struct {
		harm func(*world)
		// same: the certificate stays.
		same bool
	}{
		"the Secret is deleted": {harm: func(w *world) { w.must(w.Delete(t.Context(), w.secret())) }},
		"the Secret is emptied": {harm: func(w *world) { w.write(w.secret(), func(s *corev1.Secret) { s.Data = nil }) }},
		"the key is another": {harm: func(w *world) {
			other := at(t, 0)
			w.write(w.secret(), func(s *corev1.Secret) { s.Data[corev1.TLSPrivateKeyKey] = other.keyPEM })
		}},
		"the certificate is for another": {harm: func(w *world) {
			other := at(t, 0, "example.com")
			w.write(w.secret(), func(s *corev1.Secret) {
				s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey] = other.certPEM, other.keyPEM
			})
		}},
		"the bundle is emptied": {same: true, harm: func(w *world) { w.trusting(nil) }},
		"the bundle is another": {same: true, harm: func(w *world) { w.trusting(at(t, 0).certPEM) }},
		"one bundle of the two": {same: true, harm: func(w *world) {
			c := w.config()
			c.Webhooks[1].ClientConfig.CABundle = nil
			w.must(w.Update(t.Context(), c))
		}},
		"the configuration is applied anew": {same: true, harm: func(w *world) {
			w.must(w.Delete(t.Context(), w.config()))
			w.settle(w.a, w.b)
			if err := w.a.Ready(nil); err == nil || !strings.Contains(err.Error(), "there is no ValidatingWebhookConfiguration pod-provisioner with a webhook") {
				t.Errorf("ready without a configuration: %v", err)
			}
			w.must(w.Create(t.Context(), applied()))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := open(t)
			w.settle(w.a, w.b)
			before := w.a.serving.Load()
			tc.harm(w)
			w.settle(w.a, w.b)
			w.taken(service, w.a, w.b)
			if !w.a.serving.Load().same(before) {
				t.Error("another certificate is served at once: API servers do not know it yet")
			}
			w.clock.SetTime(begin.Add(2 * settle))
			w.b = w.replica()
			w.settle(w.a, w.b)
			w.taken(service, w.a, w.b)
			if w.a.serving.Load().same(before) != tc.same {
				t.Errorf("the same certificate: %v", !tc.same)
			}
		})
	}
}

func (w *world) write(s *corev1.Secret, change func(*corev1.Secret)) {
	w.t.Helper()
	change(s)
	w.must(w.Update(w.t.Context(), s))
}

func (w *world) trusting(bundle []byte) {
	w.t.Helper()
	c := w.config()
	for i := range c.Webhooks {
		c.Webhooks[i].ClientConfig.CABundle = bundle
	}
	w.must(w.Update(w.t.Context(), c))
}

// TestURL: a configuration that calls by a URL has a certificate for that.
func TestURL(t *testing.T) {
	for url, host := range map[string]string{
		"https://192.0.2.7:9443/pavprovisioners":     "192.0.2.7",
		"https://[2001:db8::7]:9443/pavprovisioners": "2001:db8::7",
		"https://hub.example.com/pavprovisioners":    "hub.example.com",
	} {
		w := open(t)
		w.settle(w.a)
		c := w.config()
		c.Webhooks = c.Webhooks[:1]
		c.Webhooks[0].ClientConfig.Service, c.Webhooks[0].ClientConfig.URL = nil, &url
		w.must(w.Update(t.Context(), c))
		w.settle(w.a, w.b)
		w.taken(host, w.a, w.b)
		if got := w.config().Webhooks[0].ClientConfig; got.Service != nil || *got.URL != url {
			t.Errorf("the configuration is %+v", got)
		}
	}
	w := open(t)
	c, bad := w.config(), "https://[::1/"
	c.Webhooks[0].ClientConfig.URL = &bad
	w.must(w.Update(t.Context(), c))
	if _, err := w.a.Reconcile(t.Context(), ctrl.Request{}); err == nil || !strings.Contains(err.Error(), "read the URL of webhook") {
		t.Errorf("a URL that is none: %v", err)
	}
}

// TestRefusedWrites: a process that may not write says so, and goes on once it may.
func TestRefusedWrites(t *testing.T) {
	w := open(t)
	w.refuses = errors.New("no right")
	for range 2 {
		_, err := w.a.Reconcile(t.Context(), ctrl.Request{})
		if ready := w.a.Ready(nil); err == nil && ready == nil {
			t.Error("ready, though API servers do not trust it")
		}
	}
	if err := w.a.Ready(nil); err == nil || !strings.Contains(err.Error(), "no right") {
		t.Errorf("says %v", err)
	}
	w.refuses = apierrors.NewConflict(admissionregistrationv1.Resource("validatingwebhookconfigurations"), Configuration, errors.New("changed"))
	if result, err := kube.Retrying(w.a).Reconcile(t.Context(), ctrl.Request{}); err != nil || result.RequeueAfter == 0 {
		t.Errorf("a lost race is %v, %v", result, err)
	}
	w.refuses = nil
	w.settle(w.a)
	w.taken(service, w.a)
}

// TestTwoMakeOne: the replica that comes second takes the certificate of the first.
func TestTwoMakeOne(t *testing.T) {
	w := open(t)
	none := &corev1.Secret{}
	w.must(w.a.make(t.Context(), none, []string{service}, nil))
	one := w.secret()
	w.must(w.b.make(t.Context(), none, []string{service}, nil))
	if two := w.secret(); two.ResourceVersion != one.ResourceVersion {
		t.Error("the second has overwritten the first")
	}
	stale := one.DeepCopy()
	w.must(w.a.make(t.Context(), one, []string{service}, nil))
	if err := w.b.make(t.Context(), stale, []string{service}, nil); !kube.OnlyConflicts(err) {
		t.Errorf("the second renewal of one Secret: %v", err)
	}
}

func TestOptions(t *testing.T) {
	mgr, err := ctrl.NewManager(&rest.Config{Host: "127.0.0.1:1"}, ctrl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		options Options
		check   Check
	}{
		"no check":         {ours, nil},
		"no port":          {Options{Namespace: "n", Secret: "s", Configuration: "c"}, wants()},
		"no namespace":     {Options{Port: 1, Secret: "s", Configuration: "c"}, wants()},
		"no Secret":        {Options{Port: 1, Namespace: "n", Configuration: "c"}, wants()},
		"no configuration": {Options{Port: 1, Namespace: "n", Secret: "s"}, wants()},
	} {
		if err := tc.options.SetupWithManager(mgr, tc.check); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	seen := 0
	for o, by := range ours.Caches() {
		switch o.(type) {
		case *corev1.Secret:
			if in := by.Namespaces["moor-pods"]; len(by.Namespaces) != 1 || in.FieldSelector.String() != "metadata.name="+Secret {
				t.Errorf("Secrets: %+v", by)
			}
			seen++
		case *admissionregistrationv1.ValidatingWebhookConfiguration:
			if by.Field.String() != "metadata.name="+Configuration {
				t.Errorf("configurations: %+v", by)
			}
			seen++
		}
	}
	if seen != 2 {
		t.Errorf("%d kinds are cached", seen)
	}
}
