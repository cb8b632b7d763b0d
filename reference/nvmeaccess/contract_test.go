package nvmeaccess

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	epochv1 "github.com/moor-storage/moor/api/epoch/v1"
	controllercsi "github.com/moor-storage/moor/pkg/controller/csi"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/pkg/vendorplugin"
	"github.com/moor-storage/moor/reference/nvmeaccess/spdktest"
)

// TestFencingContract: an Access over the stand-in is a provisioner.Fencing.
func TestFencingContract(t *testing.T) {
	provisionertest.TestFencing(t, func(t *testing.T) provisionertest.FencingUnderTest {
		b := newBed(t)
		o := b.options()
		o.Exports = func(_ context.Context, volume string) ([]Export, error) {
			if !strings.HasPrefix(volume, "volume-") {
				return nil, provisioner.ErrNotFound
			}
			return []Export{{b.caller, "t1", sub + volume}}, nil
		}
		a, err := New(o)
		wantNil(t, "new", err)
		b.lie(func(l *spdktest.Lies) { l.AnswersEarly, l.ForgetsHosts = true, true })
		return provisionertest.FencingUnderTest{
			Fencing: a,
			Volume: func(t *testing.T, name string) string {
				id := "volume-" + name
				b.target.AddSubsystem(sub+id, "bdev-"+id)
				wantNil(t, "create", a.Create(t.Context(), id))
				return id
			},
			Open: func(t *testing.T, id, _ string, epoch int64) (func() error, error) {
				name, err := a.Admit(t.Context(), id, epoch)
				if err != nil {
					return nil, err
				}
				c, err := b.target.Connect(sub+id, name)
				return func() error { return c.Write("w") }, err
			},
			Restart: func(*testing.T) { b.target.Restart() },
		}
	})
}

// devices are those of a DPU, by volume.
type devices struct {
	mu     sync.Mutex
	target *spdktest.Target
	by     map[string]string // host NQN
	on     map[string]*spdktest.Connection
}

func (d *devices) HostNQN(_ context.Context, volume, device string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name, ok := d.by[volume]
	if !ok || device != "dev-"+volume {
		return "", provisioner.ErrNotFound
	}
	return name, nil
}

func (d *devices) Connect(_ context.Context, volume, _, hostNQN string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.on[volume]; old != nil {
		old.Close()
	}
	c, err := d.target.Connect(sub, hostNQN)
	if err != nil {
		return errors.Join(err, provisioner.ErrUnavailable)
	}
	d.by[volume], d.on[volume] = hostNQN, c
	return nil
}

// TestServices: the services of api/epoch/v1 over the two, as the attacher and
// snap-node-driver call them.
func TestServices(t *testing.T) {
	b := newBed(t)
	d := &devices{target: b.target, by: map[string]string{"v": ""}, on: map[string]*spdktest.Connection{}}
	fence, open := epochv1.NewFencingServiceClient(fencingServer(t, b.Access)), epochv1.NewEpochServiceClient(epochServer(t, Devices{Base: base, Admit: b.Admit, Connections: d}))
	openAt := func(device string, epoch int64) codes.Code {
		_, err := open.OpenAtEpoch(t.Context(), &epochv1.OpenAtEpochRequest{VolumeId: "v", DeviceName: device, Epoch: epoch})
		return status.Code(err)
	}
	fenceAt := func(volume string, epoch int64) error {
		_, err := fence.Fence(t.Context(), &epochv1.FenceRequest{VolumeId: volume, Epoch: epoch})
		return err
	}
	want := func(what string, got, want codes.Code) {
		t.Helper()
		if got != want {
			t.Fatalf("%s: %s, want %s", what, got, want)
		}
	}
	want("open", openAt("dev-v", 3), codes.OK)
	want("open what is not there", openAt("dev-w", 3), codes.NotFound)
	want("open at no epoch", openAt("dev-v", 0), codes.FailedPrecondition)
	want("open earlier", openAt("dev-v", 2), codes.FailedPrecondition)
	wantNil(t, "fence", fenceAt("v", 3))
	first := d.on["v"]
	want("open again", openAt("dev-v", 3), codes.OK)
	if d.on["v"] != first {
		t.Error("it was connected anew under the same epoch")
	}
	land, err := first.Send("3")
	wantNil(t, "send", err)
	err = fenceAt("v", 4)
	want("fence what writes", status.Code(err), codes.Unavailable)
	wantWords(t, "fence what writes", err, "still has controller 1")
	land()
	wantNil(t, "fence", fenceAt("v", 4))
	want("open what is over", openAt("dev-v", 3), codes.FailedPrecondition)
	want("open at the next", openAt("dev-v", 5), codes.OK)
	wantNil(t, "write", d.on["v"].Write("5"))
	want("fence nothing known", status.Code(fenceAt("w", 1)), codes.NotFound)
	want("fence below no epoch", status.Code(fenceAt("v", 0)), codes.InvalidArgument)
}

func fencingServer(t *testing.T, f provisioner.Fencing) *grpc.ClientConn {
	t.Helper()
	codes, err := csiserver.UnaryInterceptor(csiserver.Options{Logger: logr.Discard()})
	wantNil(t, "interceptor", err)
	s := grpc.NewServer(grpc.UnaryInterceptor(codes))
	controllercsi.RegisterFencing(s, f)
	socket := filepath.Join(t.TempDir(), "c")
	l, err := net.Listen("unix", socket)
	wantNil(t, "listen", err)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return dial(t, socket)
}

func epochServer(t *testing.T, e provisioner.Epochs) *grpc.ClientConn {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	socket, ended := filepath.Join(t.TempDir(), "p"), make(chan error, 1)
	s := vendorplugin.NewServer(vendorplugin.Options{
		Info: vendorplugin.Info{Name: "example.com", Version: "1"}, Epochs: e, Timeout: 10 * time.Second, Logger: logr.Discard(),
	})
	go func() { ended <- s.Serve(ctx, socket) }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	return dial(t, socket)
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	wantNil(t, "dial", err)
	t.Cleanup(func() { c.Close() })
	return c
}
