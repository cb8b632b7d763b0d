package plugins

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what has to happen.
const patience = 30 * time.Second

// world is a directory of plugins and a registry that follows it.
type world struct {
	*Registry
	t    *testing.T
	root string
	// clock is nil while the registry runs on real time.
	clock   *clocktesting.FakeClock
	changes atomic.Int64

	mu    sync.Mutex
	fakes map[string]*plugin
}

// newWorld returns a registry that is not started. On a fake clock nothing
// happens by itself.
func newWorld(t *testing.T, o Options) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "pl") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{t: t, root: filepath.Join(dir, "plugins"), fakes: map[string]*plugin{}}
	o.Node, o.Root = "dpu-1", w.root
	if o.Open == nil {
		o.Open = func(name string) (Client, error) { return w.plugin(name), nil }
	}
	o.OnChange = func() { w.changes.Add(1) }
	w.clock, _ = o.Clock.(*clocktesting.FakeClock)
	w.Registry = New(o)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

// plugin returns what answers behind the socket of that name.
func (w *world) plugin(name string) *plugin {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fakes[name] == nil {
		w.fakes[name] = newPlugin(vendorplugin.Info{Name: "storage.dpu." + name + ".com", Version: "1.0"})
	}
	return w.fakes[name]
}

// socket makes a socket, in the place of what may be there.
func (w *world) socket(name string) {
	w.t.Helper()
	w.must(os.MkdirAll(filepath.Join(w.root, name), 0o755))
	old := filepath.Join(w.root, name, "old")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: old})
	w.must(err)
	l.SetUnlinkOnClose(false)
	w.must(l.Close())
	w.must(os.Rename(old, filepath.Join(w.root, name, socketName)))
}

// eventually waits until ok.
func (w *world) eventually(ok func() bool, complain func()) {
	w.t.Helper()
	deadline, again := time.After(patience), time.NewTicker(time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-deadline:
			complain()
		}
	}
}

// until waits for the plugins to be as ok wants them.
func (w *world) until(what string, ok func([]moorv1alpha1.PluginState) bool) []moorv1alpha1.PluginState {
	w.t.Helper()
	var states []moorv1alpha1.PluginState
	w.eventually(func() bool { states = w.States(); return ok(states) },
		func() { w.t.Fatalf("%s: the plugins are %+v", what, states) })
	return states
}

// ready waits until that plugin is, or is not, ready.
func (w *world) ready(name string, want bool) moorv1alpha1.PluginState {
	w.t.Helper()
	is := func(s moorv1alpha1.PluginState) bool {
		return s.Name == name && s.Ready == want && s.Message != w.checking(name)
	}
	states := w.until(name, func(all []moorv1alpha1.PluginState) bool { return slices.ContainsFunc(all, is) })
	return states[slices.IndexFunc(states, is)]
}

func (w *world) checking(name string) string {
	return "vendor plugin " + name + " on DPU dpu-1: " + errChecking.Error()
}

// sleeps waits until the registry waits for that many timers.
func (w *world) sleeps(timers int) {
	w.t.Helper()
	w.eventually(func() bool { return w.clock.Waiters() == timers },
		func() { w.t.Fatalf("%d timers, want %d", w.clock.Waiters(), timers) })
}

// plugin answers as it is told.
type plugin struct {
	vendorplugin.Devices
	mu       sync.Mutex
	info     vendorplugin.Info
	can      vendorplugin.Capabilities
	provider string
	fail     map[string]error
	calls    []string
	lost     chan struct{}
	// hang, if set, keeps Probe until it is closed or the call ends.
	hang chan struct{}
}

func newPlugin(info vendorplugin.Info) *plugin {
	return &plugin{
		info: info, can: vendorplugin.Capabilities{Block: true}, provider: "nvidia",
		fail: map[string]error{}, lost: make(chan struct{}, 1),
	}
}

func (p *plugin) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

func (p *plugin) count(verb string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, c := range p.calls {
		if c == verb {
			n++
		}
	}
	return n
}

func (p *plugin) call(verb string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, verb)
	return p.fail[verb]
}

func (p *plugin) Info(context.Context) (vendorplugin.Info, error) { return p.info, p.call("Info") }

func (p *plugin) Probe(ctx context.Context) error {
	if p.hang != nil {
		select {
		case <-ctx.Done():
		case <-p.hang:
		}
		return errors.Join(ctx.Err(), provisioner.ErrUnavailable)
	}
	return p.call("Probe")
}

func (p *plugin) Capabilities(context.Context) (vendorplugin.Capabilities, error) {
	return p.can, p.call("Capabilities")
}

func (p *plugin) Provider(context.Context) (string, error) { return p.provider, p.call("Provider") }

func (p *plugin) AwaitLoss(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-p.lost:
		return nil
	}
}

func (p *plugin) Epochs(context.Context) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.can.Epochs, nil
}
