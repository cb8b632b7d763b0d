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
)

const (
	// maxSocketPath is the longest unix socket path in bytes: sun_path of
	// unix(7) has 108, one of them the final NUL.
	maxSocketPath = 107
	// defaultTimeout bounds a call for which the caller gave no nearer
	// deadline; as long as DPF waits for a volume or an attachment.
	defaultTimeout = 2 * time.Minute
	// defaultDrain is how long calls under way may take to end after ctx.
	defaultDrain = 10 * time.Second
	// dialProbe bounds the question whether a socket file is still served.
	dialProbe = time.Second
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
	return o
}

// Serve listens on endpoint (unix:///absolute/path or tcp://host:port), lets
// register add its services, and serves until ctx is done; then it refuses new
// calls, lets the others end (Options.Drain) and returns nil. A socket file that
// nobody answers on is replaced; one that is answered is an error.
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
		<-done
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
		if err := removeStale(ctx, address); err != nil {
			return nil, err
		}
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
	if n := len(address); n > maxSocketPath {
		return "", "", fmt.Errorf("endpoint %q: the socket path has %d bytes, the kernel allows %d: choose a shorter directory",
			endpoint, n, maxSocketPath)
	}
	return "unix", address, nil
}

// removeStale removes a socket file that an earlier process left behind. What
// is not a socket, or is still answered, is left alone and is an error.
func removeStale(ctx context.Context, path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at socket %s: %w", path, err)
	}
	if fi.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("socket %s: there is a file of another kind (%s) in its place: remove it or choose another path",
			path, fi.Mode().Type())
	}
	d := net.Dialer{Timeout: dialProbe}
	if c, err := d.DialContext(ctx, "unix", path); err == nil {
		_ = c.Close()
		return fmt.Errorf("socket %s: another process serves on it: stop that one first", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove stale socket %s: %w", path, err)
	}
	return nil
}
