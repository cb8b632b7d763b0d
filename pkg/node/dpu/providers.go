package dpu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// socketName is where a SNAP service listens in its provider's directory.
const socketName = "snap.sock"

// Providers finds the SNAP services by their sockets. Safe for concurrent use.
type Providers struct {
	root string
	open func(socket string) provisioner.DPU

	mu   sync.Mutex
	used map[string]provisioner.DPU
}

// NewProviders returns the SNAP services under root; open makes the face of
// the one on a socket.
func NewProviders(root string, open func(socket string) provisioner.DPU) *Providers {
	return &Providers{root: root, open: open, used: map[string]provisioner.DPU{}}
}

// get returns the service called name, whether it answers or not.
func (p *Providers) get(name string) provisioner.DPU {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used[name] == nil {
		p.used[name] = p.open(filepath.Join(p.root, name, socketName))
	}
	return p.used[name]
}

// names returns the services that have a socket, or were used before, in
// order: one that is down now may still show devices.
func (p *Providers) names() ([]string, error) {
	there, err := having(p.root, socketName)
	p.mu.Lock()
	defer p.mu.Unlock()
	out := slices.Collect(maps.Keys(p.used))
	for _, name := range there {
		if p.used[name] == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, err
}

// shown is what all services show together.
type shown struct {
	// by device; the provider's name is kept for each.
	exposures map[string]provisioner.Exposure
	provider  map[string]string
	// complete: every service answered.
	complete bool
}

// list asks every service once what it shows. The error joins those of the
// services that did not answer; the rest is there all the same.
func (p *Providers) list(ctx context.Context) (shown, error) {
	out := shown{exposures: map[string]provisioner.Exposure{}, provider: map[string]string{}}
	names, failed := p.names()
	for _, name := range names {
		all, err := p.get(name).List(ctx)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("SNAP service %s: %w", name, err))
		}
		for _, e := range all {
			if have := out.exposures[e.Device]; !have.Visible { // where two have it, what is seen counts
				out.exposures[e.Device], out.provider[e.Device] = e, name
			}
		}
	}
	out.complete = failed == nil && len(names) > 0
	return out, failed
}

// hide withdraws the device from every service. Those that do not answer count
// unless it is known that another one shows the volume.
func (p *Providers) hide(ctx context.Context, device, known string) error {
	names, err := p.names()
	if err != nil {
		return err
	}
	if known != "" && !slices.Contains(names, known) {
		names = append(names, known)
	}
	if len(names) == 0 {
		return fmt.Errorf("no SNAP service has a socket %s under %s, so nobody can tell whether device %s is still shown: is its pod running? %w",
			socketName, p.root, device, provisioner.ErrUnavailable)
	}
	var failed error
	for _, name := range names {
		err := p.get(name).Withdraw(ctx, device)
		if err != nil && (known == "" || known == name) {
			failed = errors.Join(failed, fmt.Errorf("SNAP service %s: %w", name, err))
		}
	}
	return failed
}
