// Package bmc is the BMC (baseboard management controller) of one emulated machine: a
// Redfish service that switches the machine off and on by a hook. It lies on demand, in
// the ways in which real ones were seen to, so that what believes it can be tested.
package bmc

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Machine is the power of the emulated machine itself. The server makes no two calls at
// once that change it.
type Machine interface {
	// IsOn reports whether the machine has power.
	IsOn(ctx context.Context) (bool, error)
	// PowerOff takes it, and returns when it is gone. Of a machine that is off it does nothing.
	PowerOff(ctx context.Context) error
	// PowerOn gives it. Of a machine that is on it does nothing.
	PowerOn(ctx context.Context) error
}

// Options of a Server.
type Options struct {
	// Machine that is behind the BMC.
	Machine Machine
	// SystemID is the id of the system in the Redfish service, such as 1 or Bluefield.
	SystemID string
	// SerialNumber and UUID of the machine.
	SerialNumber, UUID string
	// User and Password that are accepted.
	User, Password string
	// RestorePolicy is what it says of the machine's PowerRestorePolicy; it does nothing
	// by it.
	RestorePolicy string
	// BootTime is for how long the machine says that it boots, after a reset or a power-on.
	BootTime time.Duration
	// Failed is told when the hook fails: a BMC has answered by then. Nil: no one is.
	Failed func(error)
	// Clock is the machine's if nil.
	Clock clock.WithTicker
}

// Server is the state of a BMC. It is safe for concurrent use.
type Server struct {
	o       Options
	pending sync.WaitGroup
	// changing is held while the hook changes the machine.
	changing sync.Mutex

	mu        sync.Mutex
	lie       Lie
	lastReset time.Time
	sessions  map[string]bool
	resets    []string
}

// New returns the BMC of a machine that came up now.
func New(o Options) *Server {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	return &Server{o: o, lastReset: o.Clock.Now(), sessions: map[string]bool{}}
}

// Resets are the types of reset that it was asked for since it started, in their order,
// done or not.
func (s *Server) Resets() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.resets...)
}

// Wait returns when what was accepted is done.
func (s *Server) Wait() { s.pending.Wait() }

// accept begins what a reset asks for, as a BMC does: it has answered before it is done.
// False: there is no such type.
func (s *Server) accept(ctx context.Context, kind string) bool {
	var do func(context.Context) error
	switch kind {
	case "ForceOff":
		do = s.off
	case "On":
		do = s.on
	case "ForceRestart":
		do = s.restart
	default:
		return false
	}
	s.mu.Lock()
	s.resets = append(s.resets, kind)
	idle := s.lie == Accepts || s.lie == SaysOff
	s.mu.Unlock()
	if idle {
		return true
	}
	ctx = context.WithoutCancel(ctx)
	s.pending.Go(func() {
		s.changing.Lock()
		defer s.changing.Unlock()
		if err := do(ctx); err != nil {
			s.o.Failed(fmt.Errorf("%s of machine %s: %w", kind, s.o.SerialNumber, err))
		}
	})
	return true
}

func (s *Server) off(ctx context.Context) error {
	if err := s.o.Machine.PowerOff(ctx); err != nil {
		return err
	}
	if s.Lie() == Returns {
		return s.on(ctx)
	}
	return nil
}

func (s *Server) on(ctx context.Context) error {
	is, err := s.o.Machine.IsOn(ctx)
	if err != nil || is {
		return err
	}
	if err := s.o.Machine.PowerOn(ctx); err != nil {
		return err
	}
	s.up()
	return nil
}

func (s *Server) restart(ctx context.Context) error {
	if err := s.o.Machine.PowerOff(ctx); err != nil {
		return err
	}
	if err := s.o.Machine.PowerOn(ctx); err != nil {
		return err
	}
	s.up()
	return nil
}

// up notes that the machine came out of a reset.
func (s *Server) up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastReset = s.o.Clock.Now()
}

// state is what the BMC says of the machine.
type state struct {
	system, chassis, serial, stage string
	lastReset                      time.Time
}

func (s *Server) state(ctx context.Context) (state, error) {
	on, err := s.o.Machine.IsOn(ctx)
	if err != nil {
		return state{}, fmt.Errorf("look whether machine %s is on: %w", s.o.SerialNumber, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := state{system: "Off", serial: s.o.SerialNumber, stage: "None", lastReset: s.lastReset}
	if on {
		out.system, out.stage = "On", "OSRunning"
		if s.o.Clock.Since(s.lastReset) < s.o.BootTime {
			out.stage = "OSBootStarted"
		}
	}
	out.chassis = out.system
	s.lie.tell(&out)
	return out, nil
}

// login opens a session, and returns its token; "" if the credentials are wrong.
func (s *Server) login(user, password string) string {
	if !s.knows(user, password) {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	token := strings.ToLower(rand.Text())
	s.sessions[token] = true
	return token
}

func (s *Server) logout(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, token)
}

func (s *Server) knows(user, password string) bool {
	return s.Lie() != Unauthorized && user == s.o.User && password == s.o.Password
}

func (s *Server) session(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lie != Unauthorized && s.sessions[token]
}
