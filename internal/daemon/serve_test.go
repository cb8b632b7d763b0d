package daemon

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/moor-storage/moor/internal/freeport"
)

func TestMain(m *testing.M) {
	// klog flushes as long as the process lives.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// free is an address that nothing listens on.
func free(t *testing.T) string {
	t.Helper()
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// get asks until something listens, and returns the answer.
func get(t *testing.T, address, path string) (code int, body string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for t.Context().Err() == nil {
		resp, err := c.Get("http://" + address + path)
		if err != nil {
			continue
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	t.Fatal("nothing listens")
	return 0, ""
}

func TestServe(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "moor_tries_total", Help: "tries"})
	registry.MustRegister(counter)
	counter.Add(7)
	for name, c := range map[string]struct {
		ready      func() error
		path, body string
		code       int
	}{
		"metrics":              {nil, "/metrics", "moor_tries_total 7", 200},
		"alive":                {func() error { return errors.New("not yet") }, "/healthz", "ok", 200},
		"ready at once":        {nil, "/readyz", "ok", 200},
		"ready":                {func() error { return nil }, "/readyz", "ok", 200},
		"not ready, and why":   {func() error { return errors.New("no cluster") }, "/readyz", "no cluster", 503},
		"nothing else":         {nil, "/debug/pprof/", "", 404},
		"metrics though alive": {func() error { return errors.New("not yet") }, "/metrics", "moor_tries_total 7", 200},
	} {
		t.Run(name, func(t *testing.T) {
			address := free(t)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- Serve(ctx, address, registry, c.ready) }()
			if code, body := get(t, address, c.path); code != c.code || !strings.Contains(body, c.body) {
				t.Errorf("%d, %q; want %d with %q", code, body, c.code, c.body)
			}
			cancel()
			if err := <-done; err != nil {
				t.Errorf("its end is an error: %v", err)
			}
		})
	}
}

func TestServeNothing(t *testing.T) {
	for _, address := range []string{"", "0"} {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Serve(ctx, address, nil, nil) }()
		select {
		case err := <-done:
			t.Errorf("address %q: it ended by itself: %v", address, err)
		default:
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("address %q: %v", address, err)
		}
	}
}

func TestServeWhereItCannot(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := Serve(t.Context(), l.Addr().String(), prometheus.NewRegistry(), nil); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("an address that is taken: %v", err)
	}
}

// TestBeside: the end of what is served is the end of its metrics, and the other
// way round.
func TestBeside(t *testing.T) {
	failed := errors.New("the socket is gone")
	err := Beside(t.Context(), free(t), prometheus.NewRegistry(), nil, func(context.Context) error { return failed })
	if !errors.Is(err, failed) {
		t.Errorf("what is served has failed: %v", err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	err = Beside(t.Context(), taken.Addr().String(), prometheus.NewRegistry(), nil, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	})
	if err == nil {
		t.Error("metrics cannot be served, and nothing says so")
	}
}
