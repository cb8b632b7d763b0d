// Package power says what can be asked of, and done to, the power of one machine through
// its BMC (baseboard management controller), and what an answer is. It reads and writes
// nothing itself: pkg/power/redfish does, and what a series of readings proves is a rule
// of pkg/writer.
package power

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// State is whether a machine has power, as its BMC says.
type State string

// The states that count. All else that Redfish knows (PoweringOff, PoweringOn, Paused, a
// property that is missing) is StateUnknown: only a literal Off says that a machine is off.
const (
	StateOn      State = "On"
	StateOff     State = "Off"
	StateUnknown State = "Unknown"
)

// Stage is how far a machine is in its boot, as its BMC says.
type Stage string

// The stages.
const (
	// StageUnknown: the BMC does not say, or says what is not known here.
	StageUnknown Stage = ""
	// StageBooting: after a reset, before the operating system runs.
	StageBooting Stage = "Booting"
	// StageRunning: the operating system runs.
	StageRunning Stage = "Running"
)

// Identity is which machine a BMC stands for. A serial number alone names a machine; the
// UUID, where one is on record, has to agree as well.
type Identity struct {
	SerialNumber string
	// UUID is that of Redfish's ComputerSystem, in whichever case.
	UUID string
}

// Refuse says why what a BMC answers is not about the machine that is on record as want; ""
// if it is. Nothing on record names no machine.
func (want Identity) Refuse(is Identity) string {
	switch {
	case want.SerialNumber == "":
		return "no serial number is on record of the machine"
	case is.SerialNumber != want.SerialNumber:
		return fmt.Sprintf("the BMC answers for the machine with serial number %q, and %q is on record", is.SerialNumber, want.SerialNumber)
	case want.UUID != "" && !strings.EqualFold(is.UUID, want.UUID):
		return fmt.Sprintf("the BMC answers for the machine with UUID %q, and %q is on record", is.UUID, want.UUID)
	}
	return ""
}

// Reading is one answer of a BMC about its machine.
type Reading struct {
	// At is when the question was begun, by the asker's clock: what it says was so then or
	// later.
	At time.Time
	// Is is which machine it is about.
	Is Identity
	// System is the state of the computer system, and Chassis that of the chassis around
	// it: "" where the BMC names none.
	System, Chassis State
	// LastReset is when the machine came out of its last reset, by the BMC's clock: it is
	// compared with other values of the same BMC only. Zero: the BMC does not say.
	LastReset time.Time
	// Stage of its boot.
	Stage Stage
	// RestorePolicy is what the machine does when its mains come back, for people: AlwaysOn,
	// AlwaysOff, LastState or "".
	RestorePolicy string
}

// Machine is the power of one machine, through its BMC. Each call is bounded in time, and
// each error says in words what was tried, on what; none holds a credential. Calls of one
// Machine do not overlap.
//
// What changes something reads first which machine answers, and does nothing if it is not
// the one that is on record: the error is ErrOtherMachine then.
type Machine interface {
	// Read identifies the machine and reads its state, in one reading: a BMC may answer for
	// another machine at any time.
	Read(ctx context.Context) (Reading, error)
	// PowerOff asks for a power-off without the operating system. Nil means that the BMC has
	// accepted it, which says nothing of the machine. Asked of a machine that is off, it
	// changes nothing, and is accepted.
	PowerOff(ctx context.Context) error
	// Restart asks for a reset without the operating system. Nil: it was accepted.
	Restart(ctx context.Context) error
	// PowerOn asks for power. Nil: it was accepted. Of a machine that is on it asks nothing.
	PowerOn(ctx context.Context) error
}

// The causes of errors, each of which wants something else of a person.
var (
	// ErrUnreachable: there is no answer, or none in time.
	ErrUnreachable = errors.New("the BMC does not answer")
	// ErrCredentials: the BMC does not accept user and password.
	ErrCredentials = errors.New("the BMC refuses the credentials")
	// ErrOtherMachine: the BMC answers for another machine, or for none that is on record.
	ErrOtherMachine = errors.New("the BMC answers for another machine")
	// ErrRefused: the BMC answers, and does not do what it was asked.
	ErrRefused = errors.New("the BMC refuses the request")
)
