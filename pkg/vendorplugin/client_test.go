package vendorplugin

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/moor-storage/moor/api/plugin/v1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
)

// serveRaw accepts connections on the plugin's socket and hands each to handle;
// they are closed when the test ends.
func serveRaw(t *testing.T, dir string, handle func(net.Conn)) {
	t.Helper()
	l, err := listen(filepath.Join(dir, "p", "dpu.sock"))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() { handle(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
}

func wantUnavailable(t *testing.T, err error, word string) {
	t.Helper()
	if !errors.Is(err, provisioner.ErrUnavailable) || !strings.Contains(err.Error(), word) {
		t.Fatalf("got %v, want ErrUnavailable with the words %q", err, word)
	}
}

func TestPluginsThatDoNotAnswer(t *testing.T) {
	const brief, long = 200 * time.Millisecond, time.Minute
	cases := map[string]struct {
		timeout time.Duration
		serve   func(t *testing.T, dir string)
		word    string
	}{
		"socket absent": {long, func(*testing.T, string) {}, "is its pod running on this DPU?"},
		"socket without a server": {long, func(t *testing.T, dir string) {
			l, err := listen(filepath.Join(dir, "p", "dpu.sock"))
			if err != nil {
				t.Fatal(err)
			}
			_ = l.Close()
		}, "is its pod running on this DPU?"},
		"garbage": {long, func(t *testing.T, dir string) {
			serveRaw(t, dir, func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\nwhat?")) })
		}, "is its pod running on this DPU?"},
		"closes at once": {long, func(t *testing.T, dir string) {
			serveRaw(t, dir, func(c net.Conn) { _ = c.Close() })
		}, "is its pod running on this DPU?"},
		"accepts and is silent": {brief, func(t *testing.T, dir string) {
			serveRaw(t, dir, func(net.Conn) {})
		}, "did not answer CreateDevice within 200ms"},
		"late": {brief, func(t *testing.T, dir string) {
			f := provisionertest.NewFake()
			f.Hook = func(ctx context.Context, _ provisionertest.Call) error { <-ctx.Done(); return ctx.Err() }
			start(t, dir, fakeOptions(f.Platform().Host))
		}, "did not answer CreateDevice within 200ms"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := root(t)
			c.serve(t, dir)
			_, err := client(t, dir, c.timeout).CreateDevice(t.Context(), provisioner.OpenSpec{VolumeID: "v"})
			wantUnavailable(t, err, c.word)
		})
	}
}

// closingServer ends its connections in the middle of a call.
type closingServer struct {
	pluginv1.UnimplementedStoragePluginServiceServer
	stop func()
}

func (s *closingServer) CreateDevice(ctx context.Context, _ *pluginv1.CreateDeviceRequest) (*pluginv1.CreateDeviceResponse, error) {
	go s.stop()
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestPluginThatDiesInACall(t *testing.T) {
	dir := root(t)
	serveGRPC(t, dir, func(g *grpc.Server) {
		pluginv1.RegisterStoragePluginServiceServer(g, &closingServer{stop: g.Stop})
	})
	_, err := client(t, dir, time.Minute).CreateDevice(t.Context(), provisioner.OpenSpec{VolumeID: "v"})
	wantUnavailable(t, err, "is its pod running on this DPU?")
}

func serveGRPC(t *testing.T, dir string, register func(*grpc.Server)) {
	t.Helper()
	l, err := listen(filepath.Join(dir, "p", "dpu.sock"))
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	register(g)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
}

// rudeServer answers everything with one code, as another vendor's plugin may.
type rudeServer struct {
	pluginv1.UnimplementedStoragePluginServiceServer
	code codes.Code
}

func (s *rudeServer) CreateDevice(context.Context, *pluginv1.CreateDeviceRequest) (*pluginv1.CreateDeviceResponse, error) {
	return &pluginv1.CreateDeviceResponse{}, status.Error(s.code, "because")
}

func (s *rudeServer) DeleteDevice(context.Context, *pluginv1.DeleteDeviceRequest) (*pluginv1.DeleteDeviceResponse, error) {
	return nil, status.Error(s.code, "because")
}

func (s *rudeServer) ListDevices(context.Context, *pluginv1.ListDevicesRequest) (*pluginv1.ListDevicesResponse, error) {
	return &pluginv1.ListDevicesResponse{NextToken: "again"}, nil
}

func TestForeignCodes(t *testing.T) {
	cases := map[codes.Code]error{
		codes.OK:                 provisioner.ErrPrecondition, // a device without a name
		codes.FailedPrecondition: provisioner.ErrPrecondition,
		codes.InvalidArgument:    provisioner.ErrInvalid,
		codes.NotFound:           provisioner.ErrNotFound,
		codes.AlreadyExists:      provisioner.ErrExists,
		codes.ResourceExhausted:  provisioner.ErrExhausted,
		codes.Unimplemented:      provisioner.ErrUnsupported,
		codes.Aborted:            provisioner.ErrBusy,
		codes.Unavailable:        provisioner.ErrUnavailable,
		codes.DeadlineExceeded:   provisioner.ErrUnavailable,
		codes.Canceled:           provisioner.ErrUnavailable,
		codes.Unknown:            provisioner.ErrUnavailable,
		codes.Internal:           provisioner.ErrUnavailable,
		codes.DataLoss:           provisioner.ErrUnavailable,
		codes.Code(99):           provisioner.ErrUnavailable,
	}
	for code, want := range cases {
		t.Run(code.String(), func(t *testing.T) {
			dir := root(t)
			serveGRPC(t, dir, func(g *grpc.Server) { pluginv1.RegisterStoragePluginServiceServer(g, &rudeServer{code: code}) })
			_, err := client(t, dir, time.Minute).CreateDevice(t.Context(), provisioner.OpenSpec{VolumeID: "v"})
			if !errors.Is(err, want) || !strings.Contains(err.Error(), "vendor plugin p") {
				t.Fatalf("got %v, want %v", err, want)
			}
		})
	}
}

func TestForeignManners(t *testing.T) {
	dir := root(t)
	serveGRPC(t, dir, func(g *grpc.Server) {
		pluginv1.RegisterStoragePluginServiceServer(g, &rudeServer{code: codes.NotFound})
	})
	c := client(t, dir, time.Minute)
	if err := c.DeleteDevice(t.Context(), "v", "d"); err != nil {
		t.Fatalf("delete of a device that is gone: %v", err)
	}
	if _, err := c.ListDevices(t.Context()); !errors.Is(err, provisioner.ErrPrecondition) {
		t.Fatalf("an endless list: %v", err)
	}
	if _, err := c.Info(t.Context()); !errors.Is(err, provisioner.ErrUnsupported) {
		t.Fatalf("a plugin without the identity service: %v", err)
	}
}

func TestCallerGivesUp(t *testing.T) {
	dir := root(t)
	serveRaw(t, dir, func(net.Conn) {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := client(t, dir, time.Minute).Info(ctx)
	if !errors.Is(err, context.Canceled) || errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("got %v, want context.Canceled alone", err)
	}
}

// TestSocketReplaced: a new server takes the socket over while the old one goes
// on with its connections; the next call must reach the new one.
func TestSocketReplaced(t *testing.T) {
	dir := root(t)
	socket := filepath.Join(dir, "p", "dpu.sock")
	named := func(name string) Options {
		o := fakeOptions(nil)
		o.Name = name
		return o
	}
	stopOld := start(t, dir, named("old"))
	c := client(t, dir, time.Minute)
	wantName(t, c, "old")
	kept := c.line.wire
	wantName(t, c, "old")
	if c.line.wire != kept {
		t.Fatal("the connection was not kept")
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	start(t, dir, named("new"))
	wantName(t, c, "new")
	stopOld()
	wantName(t, c, "new")
}

func wantName(t *testing.T, c *Client, want string) {
	t.Helper()
	info, err := c.Info(t.Context())
	if err != nil || info.Name != want {
		t.Fatalf("got %+v, %v; want the plugin called %s", info, err, want)
	}
}

func TestRestartedPluginAnswersAtOnce(t *testing.T) {
	dir := root(t)
	c := client(t, dir, time.Minute)
	for range 3 {
		stop := start(t, dir, fakeOptions(nil))
		wantName(t, c, "fake.moor.dev")
		stop()
		_, err := c.Info(t.Context())
		wantUnavailable(t, err, "is its pod running")
	}
}

func TestClientsKeepsOnePerPlugin(t *testing.T) {
	s := NewClients(root(t), 0)
	defer s.Close()
	a, err := s.Client("p")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := s.Client("p"); err != nil || a != b || a.timeout != DefaultTimeout {
		t.Fatalf("got another client, or %v", err)
	}
	if _, err := s.Client("../p"); !errors.Is(err, provisioner.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
}
