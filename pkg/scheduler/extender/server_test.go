package extender

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// serve runs a server until the test ends and returns its address.
func serve(t *testing.T, s *Server) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	addresses, ended := make(chan net.Addr, 1), make(chan error, 1)
	s.Address, s.listening = "127.0.0.1:0", func(a net.Addr) { addresses <- a }
	go func() { ended <- s.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error("serve:", err)
		}
	})
	return (<-addresses).String()
}

func TestServer(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("plain", func(t *testing.T) {
		address := serve(t, &Server{Handler: handler(t, &source{index: cluster()}, nil)})
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()
		// One connection, as a scheduler keeps it: a deadline of one request
		// must not reach into the next.
		for range 3 {
			answer, err := client.Post("http://"+address+"/prioritize", "application/json", strings.NewReader(question([]string{"a"}, "n1")))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if want := `[{"Host":"n1","Score":10}]`; err != nil || string(body) != want {
				t.Errorf("%s, %v; want %s", body, err, want)
			}
		}
	})
}

// certificate signs itself, for servers and clients on 127.0.0.1.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, pool
}

func TestServerTLS(t *testing.T) {
	ours, authorities := certificate(t)
	strange, _ := certificate(t)
	address := serve(t, &Server{
		Handler: handler(t, &source{index: cluster()}, nil),
		TLS:     &tls.Config{Certificates: []tls.Certificate{ours}, ClientCAs: authorities, ClientAuth: tls.RequireAndVerifyClientCert},
	})
	for name, test := range map[string]struct {
		scheme string
		config *tls.Config
		ok     bool
	}{
		"known to each other":        {"https", &tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{ours}}, true},
		"client without certificate": {"https", &tls.Config{RootCAs: authorities}, false},
		"client of another authority": {"https", &tls.Config{RootCAs: authorities, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &strange, nil
		}}, false},
		"server not known to client": {"https", &tls.Config{Certificates: []tls.Certificate{ours}}, false},
		"plain HTTP":                 {"http", &tls.Config{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: test.config}}
			defer client.CloseIdleConnections()
			answer, err := client.Get(test.scheme + "://" + address + "/healthz")
			ok := err == nil && answer.StatusCode == http.StatusOK
			if err == nil {
				_ = answer.Body.Close()
			}
			if ok != test.ok {
				t.Errorf("answered %v, want %v: %v", ok, test.ok, err)
			}
		})
	}
}

func TestServerAddressTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	err = (&Server{Address: taken.Addr().String(), Handler: http.NotFoundHandler()}).Start(t.Context())
	var op *net.OpError
	if !errors.As(err, &op) || !strings.Contains(err.Error(), "listen for the scheduler on") {
		t.Errorf("start: %v", err)
	}
}

// A scheduler that stops in the middle of its body holds a connection for the
// timeout, no longer.
func TestSlowBody(t *testing.T) {
	address := serve(t, &Server{Handler: handler(t, &source{index: cluster()}, func(o *Options) { o.Timeout = time.Second })})
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	fmt.Fprintf(conn, "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"Pod\":")
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !bytes.Contains(answer, []byte("408 Request Timeout")) || !bytes.Contains(answer, []byte("read the body")) {
		t.Errorf("%q, %v", answer, err)
	}
}
