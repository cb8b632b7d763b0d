package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Serve answers /metrics, /healthz and /readyz on address until ctx ends, for
// processes that are not controller-runtime managers. An empty address or "0"
// serves nothing. A nil ready means "ready as soon as alive"; otherwise its
// error is the text of the answer of /readyz, with code 503.
func Serve(ctx context.Context, address string, gatherer prometheus.Gatherer, ready func() error) error {
	if address == "" || address == "0" {
		<-ctx.Done()
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{}))
	for path, handler := range Health(ready) {
		mux.Handle(path, handler)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve metrics and health on %s: %w", address, err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics and health on %s: %w", address, err)
	}
	return nil
}

// Health are the answers of /healthz and /readyz, as of Serve.
func Health(ready func() error) map[string]http.Handler {
	return map[string]http.Handler{
		"/healthz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }),
		"/readyz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if ready != nil {
				if err := ready(); err != nil {
					http.Error(w, err.Error(), http.StatusServiceUnavailable)
					return
				}
			}
			fmt.Fprintln(w, "ok")
		}),
	}
}

// Beside runs serve with metrics and health beside it, as Serve answers them;
// the end of either is the end of both.
func Beside(ctx context.Context, address string, gatherer prometheus.Gatherer, ready func() error, serve func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	side := make(chan error, 1)
	go func() {
		defer cancel()
		side <- Serve(ctx, address, gatherer, ready)
	}()
	err := serve(ctx)
	cancel()
	return errors.Join(err, <-side)
}
