package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

func generate(t *testing.T, now time.Time) string {
	t.Helper()
	dir := t.TempDir()
	err := Generate(dir, Cluster{
		Server:  "https://10.0.0.1:6443",
		Clients: []Identity{{File: "admin", Name: "admin", Groups: []string{"system:masters"}}},
		Servers: []Identity{{File: "apiserver", Name: "kube-apiserver", Hosts: []string{"10.0.0.1", "kubernetes"}}},
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func pool(t *testing.T, path string) *x509.CertPool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(text) {
		t.Fatalf("%s holds no certificate", path)
	}
	return p
}

func leaf(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatal("no PEM")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestServerCertificateCoversItsHosts(t *testing.T) {
	now := time.Now()
	dir := generate(t, now)
	loaded, err := tls.LoadX509KeyPair(filepath.Join(dir, "apiserver.crt"), filepath.Join(dir, "apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(loaded.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{"10.0.0.1": true, "kubernetes": true, "10.0.0.2": false} {
		_, err := cert.Verify(x509.VerifyOptions{Roots: pool(t, filepath.Join(dir, "ca.crt")), DNSName: host, CurrentTime: now})
		if (err == nil) != want {
			t.Errorf("host %s: verified %v, want %v (%v)", host, err == nil, want, err)
		}
	}
}

func TestClientIsWorthNothingInAnotherCluster(t *testing.T) {
	now := time.Now()
	mine, other := generate(t, now), generate(t, now)
	config, err := clientcmd.LoadFromFile(filepath.Join(mine, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	cert := leaf(t, user.ClientCertificateData)
	if got := cert.Subject.Organization; len(got) != 1 || got[0] != "system:masters" || cert.Subject.CommonName != "admin" {
		t.Errorf("subject %s, want admin of system:masters", cert.Subject)
	}
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, c := range []struct {
		dir, ca string
		want    bool
	}{{mine, "ca.crt", true}, {mine, "front-proxy-ca.crt", false}, {other, "ca.crt", false}} {
		_, err := cert.Verify(x509.VerifyOptions{Roots: pool(t, filepath.Join(c.dir, c.ca)), KeyUsages: client, CurrentTime: now})
		if (err == nil) != c.want {
			t.Errorf("%s/%s: verified %v, want %v", c.dir, c.ca, err == nil, c.want)
		}
	}
}

func TestPrivateFilesAreReadableByTheOwnerOnly(t *testing.T) {
	dir := generate(t, time.Now())
	for _, name := range []string{"sa.key", "apiserver.key", "front-proxy.key", "apiserver-kubelet.key", "admin.kubeconfig"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := info.Mode().Perm(); got != 0o600 {
			t.Errorf("%s has mode %o, want 600", name, got)
		}
	}
}
