package admission

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/util/keyutil"
)

const (
	// lifetime of a certificate from when it is made.
	lifetime = 90 * 24 * time.Hour
	// renewal is how long before its end the next one is made.
	renewal = 30 * 24 * time.Hour
	// skew is how far the clock of an API server may be behind the one by which a certificate is
	// made: as far as a machine whose hardware clock is set to another time zone.
	skew = 24 * time.Hour
)

// pair is a self-signed certificate and its key.
type pair struct {
	certificate     *x509.Certificate
	serving         tls.Certificate
	certPEM, keyPEM []byte
}

// newPair makes one for the names and addresses given.
func newPair(now time.Time, hosts []string) (*pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key for the webhook: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("make a serial number for the webhook's certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "webhook of PavProvisioners"},
		NotBefore: now.Add(-skew), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate for %q: %w", hosts, err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key of the webhook: %w", err)
	}
	return parsePair(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM)
}

// parsePair reads one from what a Secret holds. That is wrong if the key is not that of the
// certificate, or if the certificate is not self-signed: an API server could not trust it by itself.
func parsePair(certPEM, keyPEM []byte) (*pair, error) {
	serving, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("read a certificate and its key: %w", err)
	}
	if len(serving.Certificate) != 1 {
		return nil, fmt.Errorf("read a certificate: %d are there, and one is needed", len(serving.Certificate))
	}
	c := serving.Leaf
	if string(c.RawIssuer) != string(c.RawSubject) || c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) != nil {
		return nil, errors.New("read a certificate: it is not signed by itself")
	}
	whole := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	return &pair{certificate: c, serving: serving, certPEM: whole, keyPEM: keyPEM}, nil
}

// made is when it was made, by the clock of who made it.
func (p *pair) made() time.Time { return p.certificate.NotBefore.Add(skew) }

// ends is when no API server takes it any more.
func (p *pair) ends() time.Time { return p.certificate.NotAfter }

// problem is why an API server that calls one of the hosts would not take it; "" if each would.
func (p *pair) problem(now time.Time, hosts []string) string {
	switch {
	case p == nil:
		return "there is no certificate"
	case now.Before(p.certificate.NotBefore):
		return fmt.Sprintf("the certificate counts from %s on, which is in the future: a clock is wrong", stamp(p.certificate.NotBefore))
	case !now.Before(p.ends()):
		return fmt.Sprintf("the certificate ended at %s", stamp(p.ends()))
	}
	for _, host := range hosts {
		if err := p.certificate.VerifyHostname(host); err != nil {
			return fmt.Sprintf("the certificate is not for %s", host)
		}
	}
	return ""
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
