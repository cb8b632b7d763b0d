package dpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/moor-storage/moor/internal/vendorplugin"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Identity is what a vendor plugin says of itself.
type Identity interface {
	Info(ctx context.Context) (vendorplugin.Info, error)
	Probe(ctx context.Context) error
	Capabilities(ctx context.Context) (vendorplugin.Capabilities, error)
	Provider(ctx context.Context) (string, error)
}

// Devices are what a vendor plugin makes.
type Devices interface {
	CreateDevice(ctx context.Context, spec provisioner.OpenSpec) (string, error)
	DeleteDevice(ctx context.Context, volumeID, deviceName string) error
	GetDevice(ctx context.Context, volumeID, deviceName string) (provisioner.Device, error)
	ListDevices(ctx context.Context) ([]provisioner.Device, error)
}

// Plugin is a vendor plugin on this DPU; vendorplugin.Client is one.
type Plugin interface {
	Identity
	Devices
}

var _ Plugin = (*vendorplugin.Client)(nil)

// Plugins finds the vendor plugins by their sockets, and checks each once for
// as long as its socket stays the same. Safe for concurrent use.
type Plugins struct {
	node, root string
	open       func(name string) (Plugin, error)

	mu      sync.Mutex
	checked map[string]*vendor
}

// vendor is a plugin that was checked.
type vendor struct {
	Plugin
	name     string
	can      vendorplugin.Capabilities
	provider string
	socket   os.FileInfo
}

// NewPlugins returns the plugins under root on the DPU called node. open makes
// the client of one; it is asked again when a socket is replaced.
func NewPlugins(node, root string, open func(name string) (Plugin, error)) *Plugins {
	return &Plugins{node: node, root: root, open: open, checked: map[string]*vendor{}}
}

// names returns the plugins whose sockets there are, in order.
func (p *Plugins) names() ([]string, error) { return having(p.root, "dpu.sock") }

// get returns the plugin called name, checked as DPF does before the first use
// of a connection: who it is, whether it is ready, what it can do, and which
// SNAP service it works with.
func (p *Plugins) get(ctx context.Context, name string) (*vendor, error) {
	path, err := vendorplugin.SocketPath(p.root, name)
	if err != nil {
		return nil, err
	}
	socket, err := os.Stat(path)
	if err != nil {
		p.forget(name)
		return nil, fmt.Errorf("vendor plugin %s on DPU %s does not answer at %s: is its pod running? %w", name, p.node, path, provisioner.ErrUnavailable)
	}
	if v := p.known(name); v != nil && sameSocket(v.socket, socket) {
		return v, nil
	}
	v := &vendor{name: name, socket: socket}
	if v.Plugin, err = p.open(name); err != nil {
		return nil, fmt.Errorf("vendor plugin %s on DPU %s: %w", name, p.node, err)
	}
	if err := v.check(ctx); err != nil {
		return nil, fmt.Errorf("vendor plugin %s on DPU %s at %s: %w", name, p.node, path, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checked[name] = v
	return v, nil
}

func (v *vendor) check(ctx context.Context) error {
	if _, err := v.Info(ctx); err != nil {
		return err
	}
	if err := v.Probe(ctx); err != nil {
		return err
	}
	var err error
	if v.can, err = v.Capabilities(ctx); err != nil {
		return err
	}
	v.provider, err = v.Provider(ctx)
	return err
}

func (p *Plugins) known(name string) *vendor {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.checked[name]
}

// forget makes the next use check the plugin again.
func (p *Plugins) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.checked, name)
}

// lost forgets the plugin if err says that it did not answer, and returns err.
func (p *Plugins) lost(name string, err error) error {
	if errors.Is(err, provisioner.ErrUnavailable) {
		p.forget(name)
	}
	return err
}

func sameSocket(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

// having returns the directories in root that hold a file, in order. A root
// that does not exist holds none.
func having(root, file string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("look for services under %s: %w", root, err)
	}
	var out []string
	for _, e := range entries {
		if _, err := os.Lstat(filepath.Join(root, e.Name(), file)); err == nil {
			out = append(out, e.Name())
		}
	}
	return out, nil
}
