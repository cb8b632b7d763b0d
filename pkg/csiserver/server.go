package csiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/moor-storage/moor/internal/unixsocket"
)

const (
	// defaultTimeout bounds a call for which the caller gave no nearer
	// deadline; as long as DPF waits for a volume or an attachment.
	defaultTimeout = 2 * time.Minute
	// defaultDrain is how long calls under way may take to end after ctx.
	defaultDrain = 10 * time.Second
)

// Options is what a server needs besides its services.
type Options struct {
	// Logger receives one line per failed call and, at V(2), per call.
	Logger logr.Logger
	// Timeout is the deadline of a call; a nearer one of the caller stays.
	// 0 means two minutes.
	Timeout time.Duration
	// Drain is how long calls under way may take to end after ctx is done
	// before they are cut off. 0 means ten seconds.
	Drain time.Duration
	// Ready, if set, says whether the services can do their work; until it
	// returns nil, every call is refused as Unavailable with its error, but those
	// of the Identity service: these tell that the plugin lives.
	Ready func(context.Context) error
	// Key is what a request is about: of the calls with the same key one is let
	// through at a time; those with none are not held back. nil: the volume.
	Key func(req any) string
	// Metrics, if set, gets moor_csi_request_seconds{method,code}.
	Metrics prometheus.Registerer
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Drain <= 0 {
		o.Drain = defaultDrain
	}
	if o.Key == nil {
		o.Key = volumeOf
	}
	return o
}

// Serve listens on endpoint (unix:///absolute/path or tcp://host:port), lets
// register add its services, and serves until ctx is done; then it refuses new
// calls, lets the others end (Options.Drain) and returns nil. A socket file that
// no process answers on is replaced; one that is answered is an error.
func Serve(ctx context.Context, endpoint string, register func(*grpc.Server), o Options) error {
	o = o.withDefaults()
	l, err := Listen(ctx, endpoint)
	if err != nil {
		return err
	}
	return serveOn(ctx, l, register, o)
}

func serveOn(ctx context.Context, l net.Listener, register func(*grpc.Server), o Options) error {
	chain, err := newChain(o)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(chain.intercept))
	register(s)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	o.Logger.Info("serving", "address", l.Addr().String())
	select {
	case err := <-done:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
		drain(s, o.Drain)
		<-done // that it was stopped
		return nil
	}
}

// drain ends s gracefully, and by force after d.
func drain(s *grpc.Server, d time.Duration) {
	timer := time.AfterFunc(d, s.Stop)
	defer timer.Stop()
	s.GracefulStop()
}

// Listen opens the endpoint: unix:///absolute/path or tcp://host:port. The
// directory of a unix socket is made if it is missing.
func Listen(ctx context.Context, endpoint string) (net.Listener, error) {
	network, address, err := ParseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	if network == "unix" {
		if err := os.MkdirAll(filepath.Dir(address), 0o750); err != nil {
			return nil, fmt.Errorf("make the directory of socket %s: %w", address, err)
		}
		l, err := unixsocket.Listen(address)
		if err != nil {
			return nil, err
		}
		return l, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", endpoint, err)
	}
	return l, nil
}

// ParseEndpoint splits unix:///path (or unix:/path, or a bare absolute path)
// and tcp://host:port into the network and address that package net knows.
func ParseEndpoint(endpoint string) (network, address string, err error) {
	switch {
	case strings.HasPrefix(endpoint, "tcp://"):
		address = strings.TrimPrefix(endpoint, "tcp://")
		if _, _, err := net.SplitHostPort(address); err != nil {
			return "", "", fmt.Errorf("endpoint %q: want tcp://host:port: %w", endpoint, err)
		}
		return "tcp", address, nil
	case strings.HasPrefix(endpoint, "unix://"):
		address = strings.TrimPrefix(endpoint, "unix://")
	case strings.HasPrefix(endpoint, "unix:"):
		address = strings.TrimPrefix(endpoint, "unix:")
	default:
		address = endpoint
	}
	if !filepath.IsAbs(address) {
		return "", "", fmt.Errorf("endpoint %q: want unix:///absolute/path or tcp://host:port", endpoint)
	}
	if err := unixsocket.CheckPath(address); err != nil {
		return "", "", fmt.Errorf("endpoint %q: %w", endpoint, err)
	}
	return "unix", address, nil
}
