package vendorplugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	pluginv1 "github.com/moor-storage/moor/api/plugin/v1"
	"github.com/moor-storage/moor/internal/unixsocket"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// root returns a directory short enough for a socket.
func root(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "vp")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// start serves a plugin at <dir>/p/dpu.sock until the returned stop is called.
func start(t *testing.T, dir string, o Options) (stop func()) {
	t.Helper()
	socket, err := SocketPath(dir, "p")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	l, err := listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- NewServer(o).serveOn(ctx, l) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func client(t *testing.T, dir string, timeout time.Duration) *Client {
	t.Helper()
	c, err := New(dir, "p", timeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

var all = Capabilities{Block: true, Filesystem: true, Get: true, List: true}

func fakeOptions(h provisioner.Host) Options {
	return Options{Info: Info{Name: "fake.moor.dev", Version: "1.0"}, Capabilities: all, Host: h}
}

func TestKeepsTheContractOverTheWire(t *testing.T) {
	provisionertest.TestHost(t, func(t *testing.T) provisionertest.HostUnderTest {
		dir := root(t)
		start(t, dir, fakeOptions(provisionertest.NewFake().Platform().Host))
		return provisionertest.HostUnderTest{
			Host: HostOf(client(t, dir, time.Minute)),
			Prepare: func(_ *testing.T, name string) provisioner.OpenSpec {
				return provisioner.OpenSpec{VolumeID: name, Mode: provisioner.Block}
			},
		}
	})
}

// heldEpochs opens the devices of a Host under epochs, in memory.
type heldEpochs struct {
	provisioner.Host
	mu   sync.Mutex
	open map[string]int64
}

func (e *heldEpochs) OpenAtEpoch(ctx context.Context, volumeID, deviceName string, epoch int64) error {
	d, err := e.Lookup(ctx, volumeID)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case d.Name != deviceName:
		return fmt.Errorf("device %s: %w", deviceName, provisioner.ErrNotFound)
	case epoch < e.open[d.Name]:
		return fmt.Errorf("it is at epoch %d: %w", e.open[d.Name], provisioner.ErrPrecondition)
	}
	e.open[d.Name] = epoch
	return nil
}

func TestKeepsTheContractOfEpochsOverTheWire(t *testing.T) {
	provisionertest.TestEpochs(t, func(t *testing.T) provisionertest.EpochsUnderTest {
		dir, h := root(t), provisionertest.NewFake().Platform().Host
		o := fakeOptions(h)
		o.Epochs = &heldEpochs{Host: h, open: map[string]int64{}}
		start(t, dir, o)
		c := client(t, dir, time.Minute)
		v, err := Vet(t.Context(), c)
		if err != nil || !v.Can.Epochs {
			t.Fatalf("vetted %+v, %v", v.Can, err)
		}
		return provisionertest.EpochsUnderTest{Epochs: c, HostUnderTest: provisionertest.HostUnderTest{
			Host: HostOf(c),
			Prepare: func(_ *testing.T, name string) provisioner.OpenSpec {
				return provisioner.OpenSpec{VolumeID: name, Mode: provisioner.Block}
			},
		}}
	})
}

// TestPluginsWithoutEpochs are those of DPF: fit, and asked for no epoch.
func TestPluginsWithoutEpochs(t *testing.T) {
	dir := root(t)
	stop := start(t, dir, fakeOptions(provisionertest.NewFake().Platform().Host))
	c := client(t, dir, time.Minute)
	if v, err := Vet(t.Context(), c); err != nil || v.Can.Epochs {
		t.Fatalf("vetted %+v, %v", v.Can, err)
	}
	if err := c.OpenAtEpoch(t.Context(), "v", "dev", 1); !errors.Is(err, provisioner.ErrUnsupported) {
		t.Errorf("open at an epoch: %v", err)
	}
	stop()
	if _, err := c.Epochs(t.Context()); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Errorf("a plugin that does not answer: %v", err)
	}
}

// recordHost keeps what Open was asked.
type recordHost struct {
	provisioner.Host
	spec provisioner.OpenSpec
	err  error
}

func (h *recordHost) Open(_ context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	h.spec = spec
	return provisioner.Device{VolumeID: spec.VolumeID, Name: "dev", Mode: spec.Mode}, h.err
}

func TestIdentityAndRequest(t *testing.T) {
	dir, h := root(t), &recordHost{}
	o := fakeOptions(h)
	o.Manifest, o.Capabilities = map[string]string{"k": "v"}, Capabilities{Block: true, List: true}
	start(t, dir, o)
	c := client(t, dir, time.Minute)
	info, err := c.Info(t.Context())
	if want := (Info{Name: "fake.moor.dev", Version: "1.0", Manifest: o.Manifest}); err != nil || !cmp.Equal(want, info) {
		t.Fatalf("info: %+v, %v", info, err)
	}
	caps, err := c.Capabilities(t.Context())
	if err != nil || caps != o.Capabilities {
		t.Fatalf("capabilities: %+v, %v", caps, err)
	}
	provider, err := c.Provider(t.Context())
	if err != nil || provider != "nvidia" {
		t.Fatalf("provider: %q, %v", provider, err)
	}
	if err := c.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	spec := provisioner.OpenSpec{
		VolumeID: "v", Mode: provisioner.Block,
		AccessModes: []provisioner.AccessMode{
			provisioner.ReadWriteOnce, provisioner.ReadOnlyMany, provisioner.ReadWriteMany, provisioner.ReadWriteOncePod,
		},
		PublishContext: map[string]string{"a": "1"}, VolumeContext: map[string]string{"b": "2"}, Parameters: map[string]string{"c": "3"},
	}
	name, err := c.CreateDevice(t.Context(), spec)
	if err != nil || name != "dev" {
		t.Fatalf("create: %q, %v", name, err)
	}
	if diff := cmp.Diff(spec, h.spec); diff != "" {
		t.Fatalf("the request changed on its way (-sent +got):\n%s", diff)
	}
	spec.Mode = provisioner.Filesystem
	if _, err := c.CreateDevice(t.Context(), spec); !errors.Is(err, provisioner.ErrUnsupported) {
		t.Fatalf("create of a mode that the plugin cannot: %v", err)
	}
	if _, err := c.GetDevice(t.Context(), "v", "dev"); !errors.Is(err, provisioner.ErrUnsupported) {
		t.Fatalf("get without the capability: %v", err)
	}
}

func TestProbe(t *testing.T) {
	cases := map[string]struct {
		ready bool
		err   error
		want  error
	}{
		"ready":    {ready: true},
		"starting": {want: provisioner.ErrUnavailable},
		"ill":      {err: errors.New("the disk is on fire"), want: provisioner.ErrPrecondition},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir, o := root(t), fakeOptions(nil)
			o.Ready = func(context.Context) (bool, error) { return c.ready, c.err }
			start(t, dir, o)
			if err := client(t, dir, time.Minute).Probe(t.Context()); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
}

// raw returns a plain gRPC client, to see the codes on the wire.
func raw(t *testing.T, dir string) pluginv1.StoragePluginServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, "p", "dpu.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pluginv1.NewStoragePluginServiceClient(conn)
}

func TestCodesOnTheWire(t *testing.T) {
	cases := map[string]struct {
		err  error
		want codes.Code
	}{
		"final":       {errors.New("boom"), codes.FailedPrecondition},
		"invalid":     {provisioner.ErrInvalid, codes.FailedPrecondition},
		"not found":   {provisioner.ErrNotFound, codes.FailedPrecondition},
		"exhausted":   {provisioner.ErrExhausted, codes.FailedPrecondition},
		"unsupported": {provisioner.ErrUnsupported, codes.Unimplemented},
		"busy":        {provisioner.ErrBusy, codes.Unavailable},
		"unavailable": {provisioner.ErrUnavailable, codes.Unavailable},
		"deadline":    {context.DeadlineExceeded, codes.DeadlineExceeded},
		"canceled":    {context.Canceled, codes.Canceled},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := root(t)
			start(t, dir, fakeOptions(&recordHost{err: fmt.Errorf("open: %w", c.err)}))
			_, err := raw(t, dir).CreateDevice(t.Context(), &pluginv1.CreateDeviceRequest{VolumeId: "v"})
			if status.Code(err) != c.want || !strings.Contains(err.Error(), c.err.Error()) {
				t.Fatalf("got %v, want %s and the words", err, c.want)
			}
		})
	}
	t.Run("get of an unknown device", func(t *testing.T) {
		dir := root(t)
		start(t, dir, fakeOptions(provisionertest.NewFake().Platform().Host))
		_, err := raw(t, dir).GetDevice(t.Context(), &pluginv1.GetDeviceRequest{VolumeId: "v", DeviceName: "d"})
		if status.Code(err) != codes.NotFound {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("panic", func(t *testing.T) {
		dir := root(t)
		start(t, dir, fakeOptions(nil))
		_, err := raw(t, dir).GetDevice(t.Context(), &pluginv1.GetDeviceRequest{VolumeId: "v"})
		if status.Code(err) != codes.FailedPrecondition {
			t.Fatalf("got %v", err)
		}
	})
}

func TestListPages(t *testing.T) {
	dir, f := root(t), provisionertest.NewFake()
	h := f.Platform().Host
	start(t, dir, fakeOptions(h))
	open := func(id string) {
		if _, err := h.Open(t.Context(), provisioner.OpenSpec{VolumeID: id}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		open(id)
	}
	c, token := raw(t, dir), ""
	var got []string
	for pages := 0; ; pages++ {
		p, err := c.ListDevices(t.Context(), &pluginv1.ListDevicesRequest{MaxEntries: 2, StartingToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range p.GetEntries() {
			got = append(got, e.GetVolumeId())
		}
		if pages == 0 { // churn: what was seen goes, something before it comes
			if err := h.Close(t.Context(), "a", ""); err != nil {
				t.Fatal(err)
			}
			open("aa")
		}
		if token = p.GetNextToken(); token == "" {
			break
		}
	}
	if want := []string{"a", "b", "c", "d", "e"}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for _, bad := range []string{"2", "zzz!", tokenOf("x")[1:]} {
		_, err := c.ListDevices(t.Context(), &pluginv1.ListDevicesRequest{StartingToken: bad})
		if status.Code(err) != codes.Aborted {
			t.Errorf("token %q: got %v, want ABORTED", bad, err)
		}
	}
	_, err := c.ListDevices(t.Context(), &pluginv1.ListDevicesRequest{MaxEntries: -1})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("negative max_entries: %v", err)
	}
}

func TestSocketPath(t *testing.T) {
	if got, err := SocketPath(DefaultRoot, "nvidia-block"); err != nil || got != DefaultRoot+"/nvidia-block/dpu.sock" {
		t.Fatalf("got %q, %v", got, err)
	}
	for _, bad := range []string{"", ".", "..", "a/b", strings.Repeat("x", 63)} {
		if _, err := SocketPath(DefaultRoot, bad); !errors.Is(err, provisioner.ErrInvalid) {
			t.Errorf("plugin %q: got %v, want ErrInvalid", bad, err)
		}
	}
	if _, err := SocketPath("relative", "p"); !errors.Is(err, provisioner.ErrInvalid) {
		t.Errorf("relative root: got %v", err)
	}
}

func TestListen(t *testing.T) {
	t.Run("stale socket", func(t *testing.T) {
		socket := filepath.Join(root(t), "p", "dpu.sock")
		first, err := listen(socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := listen(socket); !errors.Is(err, unixsocket.ErrServed) {
			t.Fatalf("a served socket was taken: %v", err)
		}
		_ = first.Close()
		second, err := listen(socket)
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		fi, err := os.Stat(filepath.Dir(socket))
		if err != nil || fi.Mode().Perm() != 0o755 {
			t.Fatalf("directory: %v, %v", fi.Mode(), err)
		}
	})
	t.Run("not a socket", func(t *testing.T) {
		path := filepath.Join(root(t), "dpu.sock")
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := listen(path); !errors.Is(err, unixsocket.ErrForeign) {
			t.Fatalf("got %v", err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != "precious" {
			t.Fatalf("the file was touched: %q, %v", got, err)
		}
	})
}
