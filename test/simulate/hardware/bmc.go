package hardware

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/moor-storage/moor/pkg/power"
)

// BMCLies are what a BMC can say that is not so, to find out whether it is noticed.
type BMCLies struct {
	// Idle: it accepts all requests, and does nothing.
	Idle bool
	// Off: it says that its machine is off, whatever that is.
	Off bool
	// Reset: it says that its machine has just been reset once it was asked to, and does nothing.
	Reset bool
}

// BMC switches the power of a host, or of the DPU in it.
type BMC struct {
	Serial string
	Lies   BMCLies
	// Away: it does not answer. Well: it does each time what it has accepted. Other: that of
	// another machine answers, which is off and has just been reset.
	Away, Well, Other bool
	// Off, On and Reset are what it has its machine do.
	Off, On, Reset func()

	// DPU that it is of, or whose host it is of.
	DPU  *DPU
	host bool
	dice *rand.Rand
	// lied is when it said that there was a reset.
	lied time.Time
}

// NewBMC is the BMC of a DPU, or of its host.
func NewBMC(d *DPU, host bool) *BMC {
	name := d.Name
	if host {
		name = "host-" + d.Host
	}
	return &BMC{Serial: "serial-of-" + name, DPU: d, host: host, dice: d.engine.Dice("bmc of " + name)}
}

// answers: that of a card that has no power does not.
func (b *BMC) answers() error {
	if b.Away || !b.host && !b.DPU.On && !b.DPU.Resetting {
		return fmt.Errorf("the BMC %s: %w", b.Serial, power.ErrUnreachable)
	}
	return nil
}

// Is is the serial number of the machine that it says it is of.
func (b *BMC) Is() string {
	if b.Other {
		return "serial-of-another"
	}
	return b.Serial
}

// LosePower takes the power from the machine, and at times from the BMC too.
func (b *BMC) LosePower() { b.Away = b.dice.IntN(5) == 0 }

// Read is what it says of its machine.
func (b *BMC) Read() (power.Reading, error) {
	if b.Other {
		return power.Reading{Is: power.Identity{SerialNumber: b.Is()}, System: power.StateOff, Stage: power.StageRunning, LastReset: time.Now()}, nil
	}
	if err := b.answers(); err != nil {
		return power.Reading{}, err
	}
	out := power.Reading{Is: power.Identity{SerialNumber: b.Is()}, System: power.StateOn}
	if !b.host {
		out.Stage, out.LastReset = power.StageRunning, b.DPU.Up
		if b.DPU.Resetting {
			out.Stage = power.StageBooting
		}
		if !b.lied.IsZero() {
			out.LastReset = b.lied
		}
		return out, nil
	}
	switch {
	case b.Lies.Off || !b.DPU.HostOn:
		out.System = power.StateOff
	case !b.Well && b.dice.IntN(20) == 0:
		out.System = power.StateUnknown
	}
	return out, nil
}

// Ask has it do one of Off, On and Reset, or accept that and do nothing. It takes some seconds over it.
func (b *BMC) Ask(do func()) error {
	if err := b.answers(); err != nil {
		return err
	}
	if b.Lies.Reset {
		b.lied = time.Now()
	}
	if b.Lies.Idle || b.Lies.Off || b.Lies.Reset || !b.Well && b.dice.IntN(4) == 0 {
		return nil
	}
	b.DPU.engine.After(time.Duration(b.dice.Int64N(int64(4*time.Second))), do)
	return nil
}
