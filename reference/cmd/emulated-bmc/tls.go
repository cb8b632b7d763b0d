package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"

	"k8s.io/client-go/util/cert"
)

// tls is the certificate of the flags, or one that is made for this run and written where
// a client finds it.
func (o *options) tls() (*tls.Config, error) {
	if o.certFile != "" {
		pair, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
		if err != nil {
			return nil, fmt.Errorf("read --tls-cert-file and --tls-private-key-file: %w", err)
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
	}
	if o.caFile == "" {
		return nil, errors.New("--tls-cert-file or --ca-file is required")
	}
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return nil, fmt.Errorf("read --listen: %w", err)
	}
	chain, key, err := cert.GenerateSelfSignedCertKey(host, []net.IP{net.IPv4(127, 0, 0, 1)}, []string{"localhost"})
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("read the certificate that was made: %w", err)
	}
	if err := os.WriteFile(o.caFile, chain, 0o644); err != nil { //nolint:gosec // a certificate is for all to read
		return nil, fmt.Errorf("write --ca-file: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}
