package kube

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/moor-storage/moor/internal/kube/metricsauth"
)

// Metrics are the flags of who may read /metrics, with DPF's names.
type Metrics struct {
	// Insecure serves them by HTTP, to whatever reaches the port.
	Insecure bool
	// CertDir has tls.crt and tls.key; empty: each start has a certificate of its own.
	CertDir string
}

// Bind adds the flags to fs.
func (m *Metrics) Bind(fs *pflag.FlagSet) {
	fs.BoolVar(&m.Insecure, "insecure-metrics", false, "serve /metrics by HTTP and without asking who reads it; otherwise by HTTPS, to accounts that may get /metrics")
	fs.StringVar(&m.CertDir, "metrics-cert-dir", "", "directory with tls.crt and tls.key of /metrics, looked at again when they change; empty: a certificate made at each start")
}

// Validate says which flag is wrong.
func (m *Metrics) Validate() error {
	if m.CertDir == "" {
		return nil
	}
	for _, name := range []string{"tls.crt", "tls.key"} { // the server would make one of its own
		if _, err := os.Stat(filepath.Join(m.CertDir, name)); err != nil {
			return fmt.Errorf("--metrics-cert-dir: %w", err)
		}
	}
	return nil
}

// Options are those of a server of metrics at address. It asks the API server of its
// configuration who a token is of (TokenReview), and whether that account may get the path
// /metrics (SubjectAccessReview), and remembers the answers for a minute and for five.
func (m *Metrics) Options(address string) metricsserver.Options {
	o := metricsserver.Options{BindAddress: address}
	if m.Insecure {
		return o
	}
	o.SecureServing, o.CertDir, o.FilterProvider = true, m.CertDir, metricsauth.Filter
	// Not HTTP/2: a stream is cheap to open and dear to end (CVE-2023-44487).
	o.TLSOpts = []func(*tls.Config){func(c *tls.Config) { c.NextProtos, c.MinVersion = []string{"http/1.1"}, tls.VersionTLS12 }}
	return o
}
