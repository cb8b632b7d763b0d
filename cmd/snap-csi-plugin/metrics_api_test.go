//go:build api

package main

import (
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/moor-storage/moor/internal/freeport"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/test/api/apiserver"
)

// token makes an account, which may get /metrics or not, and returns a token of it.
func (b *bed) token(name string, mayRead bool) string {
	b.t.Helper()
	ctx, account := b.t.Context(), metav1.ObjectMeta{Name: name, Namespace: namespace}
	b.must(b.Create(ctx, &corev1.ServiceAccount{ObjectMeta: account}))
	if mayRead {
		b.must(b.Create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
		}))
		b.must(b.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}},
		}))
	}
	clients, err := kubernetes.NewForConfig(b.Config)
	b.must(err)
	request, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	b.must(err)
	return request.Status.Token
}

// TestMetricsAreSecured: who reads the metrics of a program, with the rights of its
// manifest, and of a controller's, shows who it is, and may read them or not. What the
// kubelet asks is answered to all.
func TestMetricsAreSecured(t *testing.T) {
	b := &bed{One: apiserver.StartOne(t, apiserver.Host), t: t}
	b.Deploy("snap-csi-plugin-rbac.yaml", "snap-host-controller-rbac.yaml")
	var o options
	o.name, o.namespace, o.mode, o.kubeconfig = podvolume.DefaultDriver, namespace, "node", b.Kubeconfig("snap-csi-plugin-node")
	var err error
	o.metrics, err = freeport.Address()
	b.must(err)
	cfg, err := o.api.Config(o.kubeconfig)
	b.must(err)
	side, err := o.sideServer(cfg, func() error { return io.ErrUnexpectedEOF })
	b.must(err)
	apiserver.InBackground(t, "metrics of the node", side.Start)

	flags := kube.Flags{HealthProbeBindAddress: "0", Concurrency: 1, SyncPeriod: time.Hour}
	flags.MetricsBindAddress, err = freeport.Address()
	b.must(err)
	if cfg, err = o.api.Config(b.Kubeconfig("snap-host-controller")); err != nil {
		t.Fatal(err)
	}
	mgr, err := kube.NewManager(cfg, b.Scheme(), flags, "", cache.Options{})
	b.must(err)
	apiserver.InBackground(t, "metrics of a controller", mgr.Start)

	reader, other := b.token("reader", true), b.token("other", false)
	for _, program := range []struct{ name, address string }{{"node", o.metrics}, {"controller", flags.MetricsBindAddress}} {
		for name, c := range map[string]struct {
			path, token string
			code        int
		}{
			"no token":          {"/metrics", "", http.StatusUnauthorized},
			"a wrong token":     {"/metrics", reader + "x", http.StatusUnauthorized},
			"without the right": {"/metrics", other, http.StatusForbidden},
			"with the right":    {"/metrics", reader, http.StatusOK},
			"alive":             {"/healthz", "", http.StatusOK},
			"not ready":         {"/readyz", "", http.StatusServiceUnavailable},
		} {
			if program.name == "controller" && c.path != "/metrics" {
				continue // it has another address for these
			}
			code, text := b.securely(program.address, c.path, c.token)
			if code != c.code || strings.Contains(text, "\ngo_goroutines ") != (c.path == "/metrics" && code == http.StatusOK) {
				t.Errorf("%s, %s: %d, want %d: %.200s", program.name, name, code, c.code, text)
			}
		}
		if resp, err := http.Get("http://" + program.address + "/metrics"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: without TLS the answer is %s", program.name, resp.Status)
			}
		}
	}
}

// securely asks by HTTPS, and again while nothing listens yet.
func (b *bed) securely(address, path, token string) (code int, text string) {
	b.t.Helper()
	// The certificate is made at the start, and signed by itself.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "https://"+address+path, http.NoBody)
	b.must(err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	b.until("it listens", func() bool {
		answer, err := client.Do(request)
		if err != nil {
			return false
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		b.must(err)
		if answer.ProtoMajor != 1 {
			b.t.Errorf("it speaks %s", answer.Proto)
		}
		code, text = answer.StatusCode, string(body)
		return true
	})
	return code, text
}
