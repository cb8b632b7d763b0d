package extender

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Server listens for a scheduler. It is a manager.Runnable of every replica.
type Server struct {
	// Address to listen on, "host:port".
	Address string
	// TLS is nil for plain HTTP.
	TLS *tls.Config
	// Handler of the requests.
	Handler http.Handler

	// listening, if not nil, is told the address once it is open.
	listening func(net.Addr)
}

// NeedLeaderElection is false: every replica answers.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends, and then lets requests end that have begun.
func (s *Server) Start(ctx context.Context) error {
	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		return fmt.Errorf("listen for the scheduler on %s: %w", s.Address, err)
	}
	if s.listening != nil {
		s.listening(listener.Addr())
	}
	if s.TLS != nil {
		listener = tls.NewListener(listener, s.TLS)
	}
	server := &http.Server{
		Handler: s.Handler, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve the scheduler on %s: %w", s.Address, err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = server.Shutdown(grace)
	<-ended // that it was stopped
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stop serving the scheduler on %s: %w", s.Address, err)
	}
	_ = server.Close()
	return nil
}
