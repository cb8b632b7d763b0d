package dpu

import (
	"context"
	"slices"
	"sync"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// told is what SNAP was told to take away, and to discard.
type told struct {
	mu    sync.Mutex
	calls []string
}

type telling struct {
	provisioner.DPU
	told *told
}

func (d telling) Withdraw(ctx context.Context, device string) error {
	d.told.add("withdraw " + device)
	return d.DPU.Withdraw(ctx, device)
}

func (d telling) Discard(ctx context.Context, device, address string) error {
	d.told.add("discard " + device)
	return d.DPU.Discard(ctx, device, address)
}

func (s *told) add(call string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
}

// since are the calls since it was asked last, in order of what they say.
func (s *told) since() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.calls
	s.calls = nil
	slices.Sort(out)
	return out
}

// listen starts the driver anew, and hears what SNAP is told from then on.
func (m *machine) listen() *told {
	m.t.Helper()
	s := &told{}
	m.watched = func(d provisioner.DPU) provisioner.DPU { return telling{d, s} }
	m.restartDriver()
	return s
}
