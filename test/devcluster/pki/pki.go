// Package pki makes the keys, certificates and kubeconfigs of one cluster of
// the test bed. Each cluster has authorities of its own, so that credentials of
// the host cluster are worth nothing in the DPU cluster, as with real DPUs.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// lifetime is how long certificates are valid; a bed lives for hours.
const lifetime = 30 * 24 * time.Hour

// Identity is a client certificate in a kubeconfig, or a server certificate.
type Identity struct {
	// File is the base name, without extension, of what is written.
	File string
	// Name is the common name, for a client its user name.
	Name string
	// Groups are the organizations, for a client its groups.
	Groups []string
	// Hosts are the addresses and names that a server certificate covers.
	Hosts []string
}

// Cluster is what Generate makes keys for.
type Cluster struct {
	// Server is the URL of the API server in every kubeconfig.
	Server string
	// Clients get NAME.kubeconfig each.
	Clients []Identity
	// Servers get NAME.crt and NAME.key each.
	Servers []Identity
}

type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	pem  []byte
}

// Generate writes the authorities ca and front-proxy-ca, the client
// certificates apiserver-kubelet and front-proxy, the service-account key pair
// sa.key and sa.pub, and what the cluster lists, into a directory. Files that
// are there are replaced.
func Generate(dir string, c Cluster, now time.Time) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the key directory: %w", err)
	}
	ca, err := newAuthority(dir, "ca", now)
	if err != nil {
		return err
	}
	front, err := newAuthority(dir, "front-proxy-ca", now)
	if err != nil {
		return err
	}
	if err := ca.write(dir, Identity{File: "apiserver-kubelet", Name: "apiserver-kubelet-client", Groups: []string{"system:masters"}}, now); err != nil {
		return err
	}
	if err := front.write(dir, Identity{File: "front-proxy", Name: "front-proxy-client"}, now); err != nil {
		return err
	}
	for _, s := range c.Servers {
		if err := ca.write(dir, s, now); err != nil {
			return err
		}
	}
	for _, client := range c.Clients {
		if err := ca.kubeconfig(dir, c.Server, client, now); err != nil {
			return err
		}
	}
	return serviceAccountKey(dir)
}

func newAuthority(dir, name string, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of authority %s: %w", name, err)
	}
	template, err := newCertificate(pkix.Name{CommonName: "moor-dev " + name}, now)
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign authority %s: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back authority %s: %w", name, err)
	}
	a := &authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	return a, writeFile(dir, name+".crt", a.pem)
}

func newCertificate(subject pkix.Name, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a certificate serial: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}, nil
}

type pair struct{ cert, key []byte }

func (a *authority) issue(id Identity, now time.Time) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("make the key of %s: %w", id.File, err)
	}
	template, err := newCertificate(pkix.Name{CommonName: id.Name, Organization: id.Groups}, now)
	if err != nil {
		return pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if len(id.Hosts) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range id.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
			continue
		}
		template.DNSNames = append(template.DNSNames, h)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("sign the certificate of %s: %w", id.File, err)
	}
	private, err := privateKey(key)
	if err != nil {
		return pair{}, err
	}
	return pair{cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: private}, nil
}

func (a *authority) write(dir string, id Identity, now time.Time) error {
	p, err := a.issue(id, now)
	if err != nil {
		return err
	}
	if err := writeFile(dir, id.File+".crt", p.cert); err != nil {
		return err
	}
	return writeFile(dir, id.File+".key", p.key)
}

func (a *authority) kubeconfig(dir, server string, id Identity, now time.Time) error {
	p, err := a.issue(id, now)
	if err != nil {
		return err
	}
	auth := &clientcmdapi.AuthInfo{ClientCertificateData: p.cert, ClientKeyData: p.key}
	return WriteKubeconfig(filepath.Join(dir, id.File+".kubeconfig"), server, a.pem, auth)
}

// WriteKubeconfig writes a kubeconfig of one cluster and one user, readable by
// its owner only.
func WriteKubeconfig(path, server string, ca []byte, user *clientcmdapi.AuthInfo) error {
	const name = "moor-dev"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[name] = user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}

func serviceAccountKey(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the service-account key: %w", err)
	}
	private, err := privateKey(key)
	if err != nil {
		return err
	}
	if err := writeFile(dir, "sa.key", private); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("encode the service-account key: %w", err)
	}
	return writeFile(dir, "sa.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func privateKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func writeFile(dir, name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
