package csiserver

import (
	"context"
	"errors"
	"fmt"
	"path"
	"runtime/debug"
	"strings"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/moor-storage/moor/internal/keylock"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// chain is what happens around every call, in the order of intercept.
type chain struct {
	o     Options
	locks keylock.Locks
	took  *prometheus.HistogramVec
}

func newChain(o Options) (*chain, error) {
	c := &chain{o: o.withDefaults()}
	c.took = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "moor_csi_request_seconds",
		Help:    "Time from the arrival of a CSI call to its answer.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"method", "code"})
	if o.Metrics == nil {
		return c, nil
	}
	if err := o.Metrics.Register(c.took); err != nil {
		var there prometheus.AlreadyRegisteredError
		if !errors.As(err, &there) {
			return nil, fmt.Errorf("register metric moor_csi_request_seconds: %w", err)
		}
		c.took = there.ExistingCollector.(*prometheus.HistogramVec)
	}
	return c, nil
}

// UnaryInterceptor is what Serve puts around its services, for servers that
// listen by themselves.
func UnaryInterceptor(o Options) (grpc.UnaryServerInterceptor, error) {
	c, err := newChain(o)
	if err != nil {
		return nil, err
	}
	return c.intercept, nil
}

func (c *chain) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	start := time.Now()
	method := path.Base(info.FullMethod)
	log := c.o.Logger.WithValues("requestID", uuid.NewString(), "method", method)
	if key := volumeOf(req); key != "" {
		log = log.WithValues("volume", key)
	}
	log.V(2).Info("call", "request", loggable{req})
	ctx, cancel := context.WithTimeout(logr.NewContext(ctx, log), c.o.Timeout)
	defer cancel()

	resp, err := c.admitted(ctx, req, info.FullMethod, h)
	code := Code(err)
	took := time.Since(start)
	c.took.WithLabelValues(method, code.String()).Observe(took.Seconds())
	if err != nil {
		log.Error(err, "call failed", "code", code.String(), "took", took)
		return nil, ToStatus(err)
	}
	log.V(2).Info("answer", "response", loggable{resp}, "took", took)
	return resp, nil
}

// admitted lets calls through once the plugin is ready. The Identity service
// answers before: a plugin that fills its caches is alive, and Probe says the rest
// (CSI spec, Probe). So do the calls that ask what a service can do, which depends on no
// cache: sidecars end if they are refused it, right after Probe.
func (c *chain) admitted(ctx context.Context, req any, method string, h grpc.UnaryHandler) (any, error) {
	static := path.Dir(method) == "/"+csispec.Identity_ServiceDesc.ServiceName || strings.HasSuffix(method, "GetCapabilities")
	if c.o.Ready != nil && !static {
		if err := c.o.Ready(ctx); err != nil {
			return nil, fmt.Errorf("%w: not ready yet, repeat later: %w", provisioner.ErrUnavailable, err)
		}
	}
	return c.serialized(ctx, req, path.Base(method), h)
}

// serialized lets one call per key, which is the volume mostly, through at a time: CSI allows the CO to
// repeat a call whose answer it lost, while the first is still at work.
func (c *chain) serialized(ctx context.Context, req any, method string, h grpc.UnaryHandler) (any, error) {
	if key := c.o.Key(req); key != "" {
		unlock, ok := c.locks.TryLock(key)
		if !ok {
			return nil, fmt.Errorf("%s of volume %q: another call on this volume is pending, repeat later: %w",
				method, volumeOf(req), provisioner.ErrBusy)
		}
		defer unlock()
	}
	return recovered(ctx, req, method, h)
}

// recovered turns a panic of the handler into an error, so that one bad
// request does not end the process for all volumes.
func recovered(ctx context.Context, req any, method string, h grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			logr.FromContextOrDiscard(ctx).Info("handler panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			resp, err = nil, fmt.Errorf("%s: this is a defect of the driver, please report it: panic: %v", method, p)
		}
	}()
	return h(ctx, req)
}

// volumeOf is the volume a request is about: its id, or for CreateVolume its
// name; empty if it is about none.
func volumeOf(req any) string {
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		return r.GetVolumeId()
	}
	if r, ok := req.(interface {
		GetName() string
		GetParameters() map[string]string
	}); ok {
		return r.GetName()
	}
	return ""
}
