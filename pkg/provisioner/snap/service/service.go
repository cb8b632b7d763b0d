// Package service is what showing NVMe and showing virtio-fs have in common: one
// SNAP service, the steps in which its state is changed, the kinds of its
// refusals, the wait for a host, and the ports into which functions are plugged.
// It knows no emulation.
package service

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/internal/keylock"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Options of a DPU; the zero value will do.
type Options struct {
	// Reserved returns the PCI addresses that are promised to devices which
	// are not exposed now, such as those of a service that has just
	// restarted: no other device is given them. Nil means none.
	Reserved func(context.Context) map[string]string
	// Recorded returns the VUIDs of the functions that virtio-fs devices were
	// given, by device, as far as they are on record. Nil means none.
	Recorded func(context.Context) map[string]string
	// NewUUID makes identities of namespaces: random version 4 by default.
	NewUUID func() string
	// HotplugLimit is how many functions can be plugged in at a time: 31 if it
	// is 0.
	HotplugLimit int
	// PlugWait is how long Expose waits for the host to enumerate a function
	// that is plugged in: half a second if it is 0.
	PlugWait time.Duration
	// Clock is the machine's if nil.
	Clock clock.Clock
}

// Service is one SNAP service, and what is known about it from elsewhere.
type Service struct {
	RPC *snaprpc.Client
	// reserved returns the PCI addresses that are promised to devices, by address;
	// recorded the VUIDs of the functions that virtio-fs devices were given, by
	// device.
	Reserved, Recorded func(context.Context) map[string]string
	HotplugLimit       int
	plugWait           time.Duration
	clock              clock.Clock
	// cleaners remove what is left of withdrawn devices, as far as the host has
	// let go of it, and return of how many: one for each emulation.
	cleaners []func(context.Context) int

	devices keylock.Locks
	// choosing is held while a function is chosen and taken, so that no two
	// exposures choose the same.
	choosing chan struct{}
}

// New fills in what o leaves out. Nothing is called.
func New(rpc *snaprpc.Client, o Options) *Service {
	s := &Service{
		RPC: rpc, Reserved: o.Reserved, Recorded: o.Recorded, choosing: make(chan struct{}, 1),
		HotplugLimit: cmp.Or(o.HotplugLimit, DefaultHotplugLimit),
		plugWait:     cmp.Or(o.PlugWait, DefaultPlugWait), clock: o.Clock,
	}
	none := func(context.Context) map[string]string { return nil }
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	if s.Reserved == nil {
		s.Reserved = none
	}
	if s.Recorded == nil {
		s.Recorded = none
	}
	return s
}

// CleanBy adds a cleaner, before the first call.
func (s *Service) CleanBy(cleaner func(context.Context) int) {
	s.cleaners = append(s.cleaners, cleaner)
}

// MakeRoom frees the ports of functions that the host has let go of since they
// were withdrawn, and returns of how many. What fails is left for later. The
// caller holds the right to choose a function.
func (s *Service) MakeRoom(ctx context.Context) int {
	freed := 0
	for _, clean := range s.cleaners {
		freed += clean(ctx)
	}
	return freed
}

// Alone runs act while no other call works on the device; key names it.
func (s *Service) Alone(key, device string, act func() error) error {
	if device == "" {
		return fmt.Errorf("no device named: %w", provisioner.ErrInvalid)
	}
	unlock, ok := s.devices.TryLock(key)
	if !ok {
		return fmt.Errorf("device %s: another call works on it: %w", device, provisioner.ErrBusy)
	}
	defer unlock()
	return act()
}

// LockFunctions waits for the right to choose a function.
func (s *Service) LockFunctions(ctx context.Context) (unlock func(), err error) {
	select {
	case s.choosing <- struct{}{}:
		return func() { <-s.choosing }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another exposure to choose its function: %w", ctx.Err())
	}
}
