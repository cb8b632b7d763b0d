package plugins

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/vendorplugin"
)

// DefaultPeriod is how often a plugin that works is checked again: a plugin
// that hangs keeps its connection.
const DefaultPeriod = 10 * time.Second

// socketName is a plugin's socket in its directory.
const socketName = "dpu.sock"

// Client calls one plugin, and tells when its connection is lost;
// vendorplugin.Client is one.
type Client interface {
	vendorplugin.Plugin
	AwaitLoss(ctx context.Context) error
}

// Options of a Registry.
type Options struct {
	// Node is this DPU's name, for messages.
	Node string
	// Root holds a directory for each plugin. It is made if it is missing.
	Root string
	// Open makes the client of a plugin. Each call of it has a deadline.
	Open func(name string) (Client, error)
	// Period between checks of a plugin that works; DefaultPeriod if 0.
	Period time.Duration
	// OnChange is called after the plugins, or the health of one, changed.
	// It must not block. Optional.
	OnChange func()
	// Clock is the machine's if nil.
	Clock clock.WithTicker
}

// Registry holds the plugins of this DPU. Safe for concurrent use.
type Registry struct {
	o Options

	mu sync.Mutex
	// scanned: root was read once, so that what is not in entries is not there.
	scanned bool
	entries map[string]*entry
	// tracking counts the goroutines that watch over one socket each.
	tracking sync.WaitGroup
}

// entry is one plugin; guarded by the registry's lock.
type entry struct {
	// socket is nil while there is none.
	socket os.FileInfo
	// vetted is set while the plugin may be used; err says why not.
	vetted *vendorplugin.Vetted
	err    error
	// stop ends the tracker of this socket, and suspect hurries it.
	stop    context.CancelFunc
	suspect chan struct{}
}

// New returns a registry that knows no plugins until Start runs.
func New(o Options) *Registry {
	if o.Period <= 0 {
		o.Period = DefaultPeriod
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	return &Registry{o: o, entries: map[string]*entry{}}
}

// Names returns the plugins that there are, in order, whether they may be used
// or not; also one whose socket has gone, while its directory is there.
// ErrUnavailable before the first scan.
func (r *Registry) Names() ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.scanned {
		return nil, fmt.Errorf("the vendor plugins of DPU %s are not known yet: %w", r.o.Node, provisioner.ErrUnavailable)
	}
	return slices.Sorted(maps.Keys(r.entries)), nil
}

// Get returns the plugin called name. The error says why it may not be used:
// ErrUnavailable if it does not answer, ErrPrecondition and so on if it was
// refused.
func (r *Registry) Get(name string) (vendorplugin.Vetted, error) {
	path, err := vendorplugin.SocketPath(r.o.Root, name)
	if err != nil {
		return vendorplugin.Vetted{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e, known := r.entries[name]
	if !known {
		return vendorplugin.Vetted{}, r.noSocket(name, path)
	}
	if err := r.fault(name, e); err != nil {
		return vendorplugin.Vetted{}, err
	}
	return *e.vetted, nil
}

func (r *Registry) noSocket(name, path string) error {
	return fmt.Errorf("vendor plugin %s on DPU %s does not answer at %s: is its pod running? %w", name, r.o.Node, path, provisioner.ErrUnavailable)
}

// fault says why the plugin may not be used; nil if it may. The lock is held.
func (r *Registry) fault(name string, e *entry) error {
	if e.err != nil {
		return fmt.Errorf("vendor plugin %s on DPU %s: %w", name, r.o.Node, e.err)
	}
	if holder, no := refused(r.names())[name]; no {
		return fmt.Errorf("vendor plugin %s on DPU %s calls itself %s, and so does the plugin in directory %s, which was there before: remove one of them, or give it another name: %w",
			name, r.o.Node, e.vetted.Info.Name, holder, provisioner.ErrPrecondition)
	}
	return nil
}

// names are those that the plugins which passed their checks give themselves.
func (r *Registry) names() []ownName {
	var out []ownName
	for dir, e := range r.entries {
		if e.vetted != nil {
			out = append(out, ownName{dir: dir, name: e.vetted.Info.Name, since: e.socket.ModTime()})
		}
	}
	return out
}

// Suspect has the plugin checked at once: a call of it went unanswered.
func (r *Registry) Suspect(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[name]; e != nil && e.vetted != nil {
		select {
		case e.suspect <- struct{}{}:
		default:
		}
	}
}

// States says how every plugin is, in order of their names.
func (r *Registry) States() []moorv1alpha1.PluginState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.states()
}

func (r *Registry) states() []moorv1alpha1.PluginState {
	var out []moorv1alpha1.PluginState
	for _, name := range slices.Sorted(maps.Keys(r.entries)) {
		e := r.entries[name]
		state := moorv1alpha1.PluginState{Name: name, Ready: true}
		if v := e.vetted; v != nil {
			state.Version, state.Provider, state.Message = v.Info.Version, v.Provider, strings.Join(v.Remarks, "; ")
		}
		if err := r.fault(name, e); err != nil {
			state.Ready, state.Message = false, err.Error()
		}
		out = append(out, state)
	}
	return out
}

// update changes the entries, and logs and reports what that changes in the
// states.
func (r *Registry) update(ctx context.Context, change func()) {
	r.mu.Lock()
	before := r.states()
	change()
	after := r.states()
	r.mu.Unlock()
	if slices.Equal(before, after) {
		return
	}
	log := ctrl.LoggerFrom(ctx)
	for _, s := range after {
		if !slices.Contains(before, s) {
			log.Info("vendor plugin", daemon.KeyVendor, s.Name, "ready", s.Ready, "version", s.Version, "provider", s.Provider, "message", s.Message)
		}
	}
	for _, s := range before {
		if _, still := r.find(after, s.Name); !still {
			log.Info("vendor plugin is gone", daemon.KeyVendor, s.Name)
		}
	}
	r.o.OnChange()
}

func (r *Registry) find(all []moorv1alpha1.PluginState, name string) (moorv1alpha1.PluginState, bool) {
	i := slices.IndexFunc(all, func(s moorv1alpha1.PluginState) bool { return s.Name == name })
	if i < 0 {
		return moorv1alpha1.PluginState{}, false
	}
	return all[i], true
}

func (r *Registry) path(name string) string { return filepath.Join(r.o.Root, name, socketName) }
