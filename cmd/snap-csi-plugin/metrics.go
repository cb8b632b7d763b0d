package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/moor-storage/moor/internal/daemon"
)

// serveSide answers /metrics, /healthz and /readyz until ctx ends: metrics as the flags
// say, and the others to the kubelet, which has no token. Without a configuration, in a
// process without credentials, nothing can be asked about who reads the metrics: they are
// served as with --insecure-metrics.
func (o *options) serveSide(ctx context.Context, cfg *rest.Config, ready func() error) error {
	if o.guard.Insecure || cfg == nil || o.metrics == "" || o.metrics == "0" {
		if cfg == nil && !o.guard.Insecure {
			ctrl.Log.Info("metrics are served by HTTP to all: without credentials this process cannot ask who reads them")
		}
		return daemon.Serve(ctx, o.metrics, metrics.Registry, ready)
	}
	server, err := o.sideServer(cfg, ready)
	if err != nil {
		return err
	}
	if err := server.Start(ctx); err != nil {
		return fmt.Errorf("serve metrics and health on %s: %w", o.metrics, err)
	}
	return nil
}

func (o *options) sideServer(cfg *rest.Config, ready func() error) (metricsserver.Server, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server, to ask who reads the metrics: %w", err)
	}
	options := o.guard.Options(o.metrics)
	options.ExtraHandlers = daemon.Health(ready)
	options.FilterProvider = openTo(options.ExtraHandlers, options.FilterProvider)
	server, err := metricsserver.NewServer(options, cfg, client)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	return server, nil
}

type filterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error)

// openTo leaves what is asked for at the paths of open unguarded.
func openTo(open map[string]http.Handler, guard filterProvider) filterProvider {
	return func(c *rest.Config, h *http.Client) (metricsserver.Filter, error) {
		filter, err := guard(c, h)
		if err != nil {
			return nil, err
		}
		return func(log logr.Logger, handler http.Handler) (http.Handler, error) {
			guarded, err := filter(log, handler)
			if err != nil {
				return nil, err
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if free := open[r.URL.Path]; free != nil {
					free.ServeHTTP(w, r)
					return
				}
				guarded.ServeHTTP(w, r)
			}), nil
		}, nil
	}
}
