package bmc

import (
	"fmt"
	"slices"
)

// Lie is a way in which a BMC does not do, or say, what is so.
type Lie string

// The lies.
const (
	// None: it does what it is asked, and says what is so.
	None Lie = ""
	// Accepts: it accepts what it is asked, and does nothing.
	Accepts Lie = "accepts"
	// SaysOff: it does nothing, and says that the machine is off.
	SaysOff Lie = "says-off"
	// ChassisOn: it says that the chassis is on while the system is off.
	ChassisOn Lie = "chassis-on"
	// OtherMachine: it answers for another machine.
	OtherMachine Lie = "other-machine"
	// Hangs: it answers with headers, and with nothing after them.
	Hangs Lie = "hangs"
	// Unauthorized: it refuses the credentials that it accepted before.
	Unauthorized Lie = "unauthorized"
	// Returns: a machine that was switched off comes back by itself.
	Returns Lie = "returns"
	// NoState: it does not say whether the machine is on.
	NoState Lie = "no-state"
	// Refuses: it refuses to do what it is asked.
	Refuses Lie = "refuses"
)

// Lies are all of them.
var Lies = []Lie{None, Accepts, SaysOff, ChassisOn, OtherMachine, Hangs, Unauthorized, Returns, NoState, Refuses}

// Lie is the one that it tells now.
func (s *Server) Lie() Lie {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lie
}

// SetLie has it tell a lie from now on; it is an error if there is no such lie.
func (s *Server) SetLie(l Lie) error {
	if !slices.Contains(Lies, l) {
		return fmt.Errorf("lie %q: there are %q", l, Lies)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lie = l
	return nil
}

// tell turns what is so into what it says.
func (l Lie) tell(s *state) {
	switch l {
	case SaysOff:
		s.system, s.chassis = "Off", "Off"
	case ChassisOn:
		s.chassis = "On"
	case OtherMachine:
		s.serial += "-other"
	case NoState:
		s.system, s.chassis = "", ""
	case None, Accepts, Hangs, Unauthorized, Returns, Refuses: // in what it does
	}
}
