package snapemulatortest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/moor-storage/moor/reference/snapemulator/datapath"
	"github.com/moor-storage/moor/reference/snapemulator/functions"
)

// keepFor is how long what a host asks for waits for a service.
const keepFor = time.Minute

// Host is a host without a kernel: it reads and writes what it sees.
type Host struct {
	tb     testing.TB
	socket string

	mu   sync.Mutex
	sees map[functions.Key]datapath.Target
}

func newHost(tb testing.TB, socket string) *Host {
	tb.Helper()
	h := &Host{tb: tb, socket: socket, sees: map[functions.Key]datapath.Target{}}
	server, err := functions.New(functions.Options{Socket: socket, DataPath: h, RecoveryTime: keepFor, Log: logr.Discard()})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("the functions ended: %v", err)
		}
	})
	return h
}

func (h *Host) open() datapath.DataPath {
	h.tb.Helper()
	p, err := functions.Open(context.WithoutCancel(h.tb.Context()), h.socket)
	if err != nil {
		h.tb.Fatal(err)
	}
	return p
}

// Sees is how many namespaces the host sees.
func (h *Host) Sees() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sees)
}

// Write begins a write into the one namespace that the host sees, and returns where its end is
// told.
func (h *Host) Write(text string) <-chan error {
	h.tb.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	ended := make(chan error, 1)
	if len(h.sees) != 1 {
		h.tb.Fatalf("the host sees %d namespaces, not one", len(h.sees))
	}
	for _, t := range h.sees {
		go func() {
			_, err := t.Backing.WriteAt([]byte(text), 0)
			ended <- err
		}()
	}
	return ended
}

// Attach implements datapath.DataPath.
func (h *Host) Attach(_ context.Context, t datapath.Target) (datapath.Device, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := functions.Key{Function: t.Function, NSID: t.NSID}
	if _, sees := h.sees[key]; sees {
		return nil, fmt.Errorf("the host sees namespace %d of function %s", t.NSID, t.Function)
	}
	h.sees[key] = t
	return seen{host: h, key: key}, nil
}

// Close implements datapath.DataPath.
func (*Host) Close() error { return nil }

type seen struct {
	host *Host
	key  functions.Key
}

func (seen) Node(string) error  { return nil }
func (seen) Number() string     { return "" }
func (seen) Pause(bool)         {}
func (seen) Resize(int64) error { return nil }
func (seen) Fence()             {} // nothing but its backing, which is fenced already

func (s seen) Detach() error {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	delete(s.host.sees, s.key)
	return nil
}
