package writer

import (
	"fmt"
	"slices"
	"time"

	"github.com/moor-storage/moor/pkg/power"
)

// The bounds of a series of readings that says that a machine is off.
const (
	// PowerSettle is for how long a machine has to be read as off before that is believed. A
	// BMC that drives the power button needs four seconds of it, and some say Off before it
	// is so. It is more than a period of the DPU's heartbeats (10 s), any of which refutes it.
	PowerSettle = 15 * time.Second
	// PowerWasOff is the same of a machine that was off already when our request was made,
	// while its DPU had not been heard for PowerSilence: no button is pressed that takes
	// effect later, and a heartbeat that refutes it would have come. What is left is the
	// button of a machine whose BMC was wrong about that.
	PowerWasOff = 5 * time.Second
	// PowerSilence is a period of the DPU's heartbeats (10 s), with time for one that is late.
	PowerSilence = 12 * time.Second
	// PowerReadings is how many readings have to say so.
	PowerReadings = 3
	// PowerGap is the longest time between two of them, and the oldest that the last may be
	// when it counts: no machine boots and shows a volume within it.
	PowerGap = 15 * time.Second
	// PowerPeriod is how often a machine is to be read.
	PowerPeriod = 3 * time.Second
)

// Power is what is known of the power of the DPU that holds a claim. Times are those of one
// clock, which is the asker's.
type Power struct {
	// Asked: a BMC is asked by which something can be proven of this DPU.
	Asked bool
	// ByHost: the machine is the host, which the DPU gets all of its power from; else it is
	// the DPU itself, which is reset and not switched off.
	ByHost bool
	// Want is the machine that is on record.
	Want power.Identity
	// Fencing is when the claim was known to be in Fencing, at the latest. What was read
	// before it proves nothing: the DPU may have been granted the volume since.
	Fencing time.Time
	// Accepted is when our request was accepted; zero: it was not.
	Accepted time.Time
	// Before is the last reading before the request was sent.
	Before power.Reading
	// Readings since, in their order.
	Readings []power.Reading
	// Heard is when a sign of life of the DPU was heard last; zero: never.
	Heard time.Time
	// Drain is how long the storage may take over what it has received.
	Drain time.Duration
	// Trouble says why there is no newer reading, or why no BMC is asked; "" if there is no
	// reason.
	Trouble string
	// Now is the time at which all this is so.
	Now time.Time
}

// JudgePower says by what it is proven that the DPU can no longer write under an epoch
// whose claim is in Fencing; if it is not, what is missing. What a machine has in its
// memory is gone with its power, or with its reset; what it had sent is executed within the
// drain; and once it is up again it finds a claim from which it shows nothing.
func JudgePower(p Power) (proven, missing string) {
	if refused := p.Want.Refuse(p.Want); refused != "" {
		return "", refused
	}
	if p.Accepted.IsZero() || p.Accepted.Before(p.Fencing) && !p.ByHost {
		return "", p.waits("its BMC has not accepted a request of ours since the right to write is being taken back")
	}
	if p.ByHost {
		return p.off()
	}
	return p.reset()
}

// machine names what is asked, for people.
func (p Power) machine() string {
	if p.ByHost {
		return fmt.Sprintf("the host with serial number %s, from which the DPU has its power,", p.Want.SerialNumber)
	}
	return fmt.Sprintf("the DPU with serial number %s", p.Want.SerialNumber)
}

// Words say what the proof by the power of the DPU lacks, to be put after what else is
// waited for; "" if there is nothing to say.
func (p *Power) Words() string {
	switch {
	case p == nil:
		return ""
	case p.Asked:
		if _, missing := JudgePower(*p); missing != "" {
			return "; power: " + missing
		}
	case p.Trouble != "":
		return "; power: " + p.Trouble
	}
	return ""
}

func (p Power) waits(what string) string {
	if p.Trouble != "" {
		what += "; " + p.Trouble
	}
	return what
}

// off is the proof that the host is off, and with it the DPU. A sign of life of the DPU begins
// the series anew: one that lives beats more often than a series takes.
func (p Power) off() (proven, missing string) {
	after := latest(p.Accepted, p.Fencing, p.Heard)
	series, words := p.offSince(after)
	if len(series) == 0 {
		return "", p.waits(words)
	}
	last := series[len(series)-1].At
	first, need := p.settles(series)
	switch {
	case len(series) < PowerReadings || last.Sub(first) < need:
		return "", p.waits(fmt.Sprintf("%s is off by %d readings over %s since %s, and %d over %s are needed without a sign of life of the DPU",
			p.machine(), len(series), last.Sub(first).Round(time.Second), stamp(after), PowerReadings, need))
	case p.Now.Sub(last) > PowerGap:
		return "", p.waits(p.old(last))
	}
	return fmt.Sprintf("%s is off since %s, by %d readings after our request, the last at %s (power restore policy %q)",
		p.machine(), stamp(first), len(series), stamp(last), series[len(series)-1].RestorePolicy), ""
}

// settles is since when the host counts as off, and for how long it has to be read so. One
// that was off already is off since then, if it was never seen otherwise.
func (p Power) settles(series []power.Reading) (first time.Time, need time.Duration) {
	first = series[0].At
	all := slices.IndexFunc(p.Readings, func(r power.Reading) bool { return r.At.After(p.Accepted) })
	unbroken := p.Readings[all].At.Equal(first) && first.Sub(p.Before.At) <= PowerGap
	before := p.notOff(p.Before) == "" && p.Before.At.After(p.Fencing) && p.Before.At.Sub(p.Heard) > PowerSilence
	if unbroken && before {
		return p.Before.At, PowerWasOff + p.Drain
	}
	return first, PowerSettle + p.Drain
}

// old says that the last reading does not say how the machine is now.
func (p Power) old(last time.Time) string {
	return fmt.Sprintf("the last reading of %s is %s old", p.machine(), p.Now.Sub(last).Round(time.Second))
}

func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare)
}

// offSince are the readings up to the last that say without a break that the machine is
// off; none if the last one does not, with the reason.
func (p Power) offSince(after time.Time) (series []power.Reading, words string) {
	words = "no reading of " + p.machine() + " has come since our request was accepted"
	for _, r := range p.Readings {
		if !r.At.After(after) {
			continue
		}
		if words = p.notOff(r); words != "" {
			series = nil
			continue
		}
		if n := len(series); n > 0 && r.At.Sub(series[n-1].At) > PowerGap {
			series = nil
		}
		series = append(series, r)
	}
	return series, words
}

// notOff says why a reading does not say that the machine is off.
func (p Power) notOff(r power.Reading) string {
	switch {
	case p.Want.Refuse(r.Is) != "":
		return p.Want.Refuse(r.Is)
	case r.System != power.StateOff:
		return fmt.Sprintf("%s is %s at %s, though our request was accepted (power restore policy %q)", p.machine(), r.System, stamp(r.At), r.RestorePolicy)
	case r.Chassis != "" && r.Chassis != power.StateOff:
		return fmt.Sprintf("the system of %s is said to be off, and its chassis to be %s: its BMC is not believed", p.machine(), r.Chassis)
	}
	return ""
}

// reset is the proof that the DPU was reset after the claim went to Fencing.
func (p Power) reset() (proven, missing string) {
	if !p.Before.At.After(p.Fencing) || p.Want.Refuse(p.Before.Is) != "" {
		return "", p.waits(fmt.Sprintf("how %s was before our request was not read since the right to write is being taken back", p.machine()))
	}
	seen, words := p.resetSince()
	if len(seen) == 0 {
		return "", p.waits(words)
	}
	first, last := seen[0].At, seen[len(seen)-1].At
	switch {
	case !p.Heard.Before(first):
		return "", fmt.Sprintf("%s was reset by %s, and is heard since: it can withdraw the volume and say so itself", p.machine(), stamp(first))
	case len(seen) < PowerReadings || last.Sub(first) < p.Drain:
		return "", p.waits(fmt.Sprintf("%s was reset by %s, and what the storage had received may take until %s", p.machine(), stamp(first), stamp(first.Add(p.Drain))))
	case p.Now.Sub(last) > PowerGap:
		return "", p.waits(p.old(last))
	}
	return fmt.Sprintf("%s was reset after our request, which was accepted at %s, and seen so at %s", p.machine(), stamp(p.Accepted), stamp(first)), ""
}

// resetSince are the readings from the first on that says that the machine was reset; none
// if there is none, or another machine has answered meanwhile, with the reason.
func (p Power) resetSince() (seen []power.Reading, words string) {
	words = fmt.Sprintf("a reset of %s is not seen, though our request was accepted at %s", p.machine(), stamp(p.Accepted))
	for _, r := range p.Readings {
		if !r.At.After(p.Accepted) {
			continue
		}
		if refused := p.Want.Refuse(r.Is); refused != "" {
			return nil, refused
		}
		if len(seen) > 0 || wasReset(p.Before, r) {
			seen = append(seen, r)
		}
	}
	return seen, words
}

// wasReset reports whether the machine was reset between two readings: its BMC says when,
// and that is later than before; or its operating system ran, and it is booting. That it
// boots says nothing where its system did not run before.
func wasReset(before, after power.Reading) bool {
	return !before.LastReset.IsZero() && after.LastReset.After(before.LastReset) ||
		before.Stage == power.StageRunning && after.Stage == power.StageBooting
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
