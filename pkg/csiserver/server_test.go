package csiserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// controller is a CSI controller whose calls a test steers.
type controller struct {
	csispec.UnimplementedControllerServer
	create func(context.Context, *csispec.CreateVolumeRequest) (*csispec.CreateVolumeResponse, error)
	remove func(context.Context, *csispec.DeleteVolumeRequest) (*csispec.DeleteVolumeResponse, error)
}

func (c *controller) CreateVolume(ctx context.Context, r *csispec.CreateVolumeRequest) (*csispec.CreateVolumeResponse, error) {
	return c.create(ctx, r)
}

func (c *controller) DeleteVolume(ctx context.Context, r *csispec.DeleteVolumeRequest) (*csispec.DeleteVolumeResponse, error) {
	return c.remove(ctx, r)
}

// serve runs c and returns a connection; the end of the test ends both.
func serve(t *testing.T, c *controller, o Options) *grpc.ClientConn {
	t.Helper()
	endpoint := "unix://" + filepath.Join(t.TempDir(), "csi.sock")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	l, err := Listen(ctx, endpoint)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		done <- serveOn(ctx, l, func(s *grpc.Server) {
			csispec.RegisterControllerServer(s, c)
			csispec.RegisterIdentityServer(s, NewIdentity("d", "v", o.Ready, csispec.PluginCapability_Service_CONTROLLER_SERVICE))
		}, o.withDefaults())
	}()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve ended with %v", err)
		}
	})
	return conn
}

func TestOneCallPerVolume(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	c := &controller{
		create: func(context.Context, *csispec.CreateVolumeRequest) (*csispec.CreateVolumeResponse, error) {
			close(entered)
			<-leave
			return &csispec.CreateVolumeResponse{}, nil
		},
		remove: func(context.Context, *csispec.DeleteVolumeRequest) (*csispec.DeleteVolumeResponse, error) {
			return &csispec.DeleteVolumeResponse{}, nil
		},
	}
	client := csispec.NewControllerClient(serve(t, c, Options{}))
	first := make(chan error, 1)
	go func() {
		_, err := client.CreateVolume(t.Context(), &csispec.CreateVolumeRequest{Name: "v1"})
		first <- err
	}()
	<-entered
	_, err := client.DeleteVolume(t.Context(), &csispec.DeleteVolumeRequest{VolumeId: "v1"})
	if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "pending") {
		t.Errorf("second call on the volume: %v, want Aborted with the word pending", err)
	}
	if _, err := client.DeleteVolume(t.Context(), &csispec.DeleteVolumeRequest{VolumeId: "v2"}); err != nil {
		t.Errorf("call on another volume: %v", err)
	}
	close(leave)
	if err := <-first; err != nil {
		t.Errorf("first call: %v", err)
	}
	if _, err := client.DeleteVolume(t.Context(), &csispec.DeleteVolumeRequest{VolumeId: "v1"}); err != nil {
		t.Errorf("call after the first ended: %v", err)
	}
}

// TestNotReadyIsAlive: before it is ready the plugin says who it is and that it is
// not ready, and refuses all else with the reason.
func TestNotReadyIsAlive(t *testing.T) {
	var ready atomic.Bool
	c := &controller{remove: func(context.Context, *csispec.DeleteVolumeRequest) (*csispec.DeleteVolumeResponse, error) {
		return &csispec.DeleteVolumeResponse{}, nil
	}}
	conn := serve(t, c, Options{Ready: func(context.Context) error {
		if !ready.Load() {
			return errors.New("the cache of DPUVolume is not filled yet")
		}
		return nil
	}})
	identity, client := csispec.NewIdentityClient(conn), csispec.NewControllerClient(conn)
	for _, is := range []bool{false, true} {
		ready.Store(is)
		if info, err := identity.GetPluginInfo(t.Context(), &csispec.GetPluginInfoRequest{}); err != nil || info.GetName() != "d" {
			t.Errorf("ready %v: its name is %q, error %v", is, info.GetName(), err)
		}
		if probe, err := identity.Probe(t.Context(), &csispec.ProbeRequest{}); err != nil || probe.GetReady().GetValue() != is {
			t.Errorf("ready %v: Probe says %v, error %v", is, probe.GetReady(), err)
		}
		if _, err := client.ControllerGetCapabilities(t.Context(), &csispec.ControllerGetCapabilitiesRequest{}); status.Code(err) == codes.Unavailable {
			t.Errorf("ready %v: what it can do is not told: %v", is, err)
		}
		_, err := client.DeleteVolume(t.Context(), &csispec.DeleteVolumeRequest{VolumeId: "v"})
		switch {
		case is && err != nil:
			t.Errorf("ready, and refused: %v", err)
		case !is && (status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "DPUVolume")):
			t.Errorf("not ready: %v, want Unavailable and what is waited for", err)
		}
	}
}

func TestPanicIsInternalAndServerLives(t *testing.T) {
	c := &controller{remove: func(_ context.Context, r *csispec.DeleteVolumeRequest) (*csispec.DeleteVolumeResponse, error) {
		if r.VolumeId == "bad" {
			panic("index out of range")
		}
		return &csispec.DeleteVolumeResponse{}, nil
	}}
	client := csispec.NewControllerClient(serve(t, c, Options{}))
	for range 2 { // twice: the lock of the volume must be free again
		_, err := client.DeleteVolume(t.Context(), &csispec.DeleteVolumeRequest{VolumeId: "bad"})
		if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "index out of range") {
			t.Fatalf("panic gave %v, want Internal with its words", err)
		}
	}
	if _, err := client.DeleteVolume(t.Context(), &csispec.DeleteVolumeRequest{VolumeId: "good"}); err != nil {
		t.Fatalf("after a panic: %v", err)
	}
}

func TestDeadlineAndContext(t *testing.T) {
	var requestLogged bool
	c := &controller{remove: func(ctx context.Context, _ *csispec.DeleteVolumeRequest) (*csispec.DeleteVolumeResponse, error) {
		if _, err := logr.FromContext(ctx); err == nil {
			requestLogged = true
		}
		<-ctx.Done()
		return nil, fmt.Errorf("wait for the volume to go: %w", ctx.Err())
	}}
	client := csispec.NewControllerClient(serve(t, c, Options{Timeout: time.Millisecond}))
	_, err := client.DeleteVolume(t.Context(), &csispec.DeleteVolumeRequest{VolumeId: "v"})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	if !requestLogged {
		t.Error("no logger in the handler's context")
	}
}

func TestSecretsAreNotLogged(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{Verbosity: 3})
	c := &controller{create: func(context.Context, *csispec.CreateVolumeRequest) (*csispec.CreateVolumeResponse, error) {
		return nil, errors.New("no")
	}}
	chain, err := newChain(Options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	_, err = chain.intercept(t.Context(), &csispec.CreateVolumeRequest{Name: "v1", Secrets: map[string]string{"key": "hunter2"}},
		&grpc.UnaryServerInfo{FullMethod: "/csi.v1.Controller/CreateVolume"},
		func(ctx context.Context, req any) (any, error) {
			return c.create(ctx, req.(*csispec.CreateVolumeRequest))
		})
	if status.Code(err) != codes.Internal {
		t.Fatalf("got %v, want Internal", err)
	}
	all := strings.Join(lines, "\n")
	if strings.Contains(all, "hunter2") {
		t.Errorf("a secret is in the log:\n%s", all)
	}
	for _, want := range []string{"requestID", `"volume"="v1"`, "CreateVolume", "Internal"} {
		if !strings.Contains(all, want) {
			t.Errorf("the log lacks %s:\n%s", want, all)
		}
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := &controller{remove: func(context.Context, *csispec.DeleteVolumeRequest) (*csispec.DeleteVolumeResponse, error) {
		return nil, fmt.Errorf("delete: %w", provisioner.ErrInUse)
	}}
	client := csispec.NewControllerClient(serve(t, c, Options{Metrics: reg}))
	if _, err := client.DeleteVolume(t.Context(), &csispec.DeleteVolumeRequest{VolumeId: "v"}); status.Code(err) != codes.FailedPrecondition {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "moor_csi_request_seconds" {
		t.Fatalf("gathered %v, %v", families, err)
	}
	labels := families[0].Metric[0].Label
	if labels[0].GetValue() != "FailedPrecondition" || labels[1].GetValue() != "DeleteVolume" {
		t.Errorf("labels %v", labels)
	}
	if _, err := newChain(Options{Metrics: reg}); err != nil {
		t.Errorf("a second server on the same registry: %v", err)
	}
}

func TestParseEndpoint(t *testing.T) {
	for endpoint, want := range map[string]struct{ network, address, words string }{
		"unix:///run/csi.sock":                {"unix", "/run/csi.sock", ""},
		"unix:/run/csi.sock":                  {"unix", "/run/csi.sock", ""},
		"/run/csi.sock":                       {"unix", "/run/csi.sock", ""},
		"tcp://127.0.0.1:9000":                {"tcp", "127.0.0.1:9000", ""},
		"tcp://nowhere":                       {"", "", "want tcp://host:port"},
		"unix://csi.sock":                     {"", "", "want unix:///absolute/path"},
		"":                                    {"", "", "want unix:///absolute/path"},
		"http://x":                            {"", "", "want unix:///absolute/path"},
		"unix:///" + strings.Repeat("a", 106): {"unix", "/" + strings.Repeat("a", 106), ""},
		"unix:///" + strings.Repeat("a", 107): {"", "", "108 bytes, the kernel allows 107"},
		"unix:///" + strings.Repeat("a/very", 90): {"", "", "choose a shorter directory"},
	} {
		network, address, err := ParseEndpoint(endpoint)
		if want.words != "" {
			if err == nil || !strings.Contains(err.Error(), want.words) {
				t.Errorf("%q: error %v, want one with %q", endpoint, err, want.words)
			}
			continue
		}
		if err != nil || network != want.network || address != want.address {
			t.Errorf("%q: %s %s %v, want %s %s", endpoint, network, address, err, want.network, want.address)
		}
	}
}

// FuzzParseEndpoint: what is accepted can be listened on, and its own spelling
// means the same.
func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"unix:///run/csi.sock", "unix:/run/csi.sock", "/run/csi.sock", "tcp://127.0.0.1:9000", "tcp://[::1]:0", "tcp://", "unix:x", "", "unix:tcp://a:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, endpoint string) {
		network, address, err := ParseEndpoint(endpoint)
		if err != nil {
			if network != "" || address != "" {
				t.Fatalf("%q was refused as %q %q", endpoint, network, address)
			}
			return
		}
		switch network {
		case "tcp":
			if _, _, err := net.SplitHostPort(address); err != nil {
				t.Fatal(err)
			}
		case "unix":
			if !filepath.IsAbs(address) || len(address) > 107 {
				t.Fatalf("%q is a socket at %q", endpoint, address)
			}
		default:
			t.Fatalf("%q has network %q", endpoint, network)
		}
		if n, a, err := ParseEndpoint(network + "://" + address); n != network || a != address || err != nil {
			t.Fatalf("%q is %q %q, and that is %q %q, %v", endpoint, network, address, n, a, err)
		}
	})
}

func TestSocketInTheWay(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as a process that was killed leaves it
	if _, err := Listen(t.Context(), "unix://"+stale); err == nil || !strings.Contains(err.Error(), "another process serves") {
		t.Errorf("a served socket was taken: %v", err)
	}
	_ = l.Close()
	again, err := Listen(t.Context(), "unix://"+stale)
	if err != nil {
		t.Fatalf("a stale socket was not replaced: %v", err)
	}
	_ = again.Close()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(t.Context(), plain); err == nil || !strings.Contains(err.Error(), "another kind") {
		t.Errorf("a plain file in the way: %v", err)
	}
	if b, _ := os.ReadFile(plain); string(b) != "precious" {
		t.Error("the plain file was removed")
	}
	deep, err := Listen(t.Context(), filepath.Join(dir, "a", "b", "csi.sock"))
	if err != nil {
		t.Fatalf("missing directories: %v", err)
	}
	_ = deep.Close()
}

func TestServeOverTCPAndDrain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, err := Listen(ctx, "tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	entered := make(chan struct{})
	c := &controller{remove: func(ctx context.Context, _ *csispec.DeleteVolumeRequest) (*csispec.DeleteVolumeResponse, error) {
		close(entered)
		<-ctx.Done() // longer than the drain allows
		return nil, ctx.Err()
	}}
	done := make(chan error, 1)
	go func() {
		done <- serveOn(ctx, l, func(s *grpc.Server) { csispec.RegisterControllerServer(s, c) }, Options{Drain: time.Millisecond}.withDefaults())
	}()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	call := make(chan error, 1)
	go func() {
		_, err := csispec.NewControllerClient(conn).DeleteVolume(context.Background(), &csispec.DeleteVolumeRequest{VolumeId: "v"})
		call <- err
	}()
	<-entered
	cancel()
	if err := <-done; err != nil {
		t.Errorf("serve ended with %v, want nil", err)
	}
	if err := <-call; err == nil {
		t.Error("the call that was cut off succeeded")
	}
}

func TestIdentity(t *testing.T) {
	notReady := errors.New("cache not filled")
	var err error
	i := NewIdentity("csi.example.com", "1.2.3", func(context.Context) error { return err }, csispec.PluginCapability_Service_CONTROLLER_SERVICE)
	info, _ := i.GetPluginInfo(t.Context(), nil)
	if info.GetName() != "csi.example.com" || info.GetVendorVersion() != "1.2.3" {
		t.Errorf("info %v", info)
	}
	caps, _ := i.GetPluginCapabilities(t.Context(), nil)
	if len(caps.Capabilities) != 1 || caps.Capabilities[0].GetService().GetType() != csispec.PluginCapability_Service_CONTROLLER_SERVICE {
		t.Errorf("capabilities %v", caps)
	}
	if p, _ := i.Probe(t.Context(), nil); !p.GetReady().GetValue() {
		t.Error("ready, but Probe says no")
	}
	err = notReady
	if p, _ := i.Probe(t.Context(), nil); p.GetReady().GetValue() {
		t.Error("not ready, but Probe says yes")
	}
}
