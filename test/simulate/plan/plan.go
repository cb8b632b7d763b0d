// Package plan says what a schedule of the simulation is made of, beside the dice of its seed: how many there
// are of what, what the machines and the storage can do, and what happens from outside.
package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/moor-storage/moor/test/simulate/engine"
)

// What can happen.
const (
	// Move wants a volume on a host, or nowhere if that is "".
	Move = "move"
	// Kill ends a process, which starts again by itself.
	Kill = "kill"
	// Stall lets a process stand still for a time.
	Stall = "stall"
	// Cut cuts a process, or a whole cluster's API server, off for a time.
	Cut = "cut"
	// EndSNAP ends the SNAP service of a DPU, which starts again after a time.
	EndSNAP = "end SNAP"
	// HostDies and DPUDies take the power from a host, or from a DPU alone, for a time.
	HostDies = "power off host"
	DPUDies  = "power off"
	// Vanish cuts the host where a volume is wanted, and its DPU, off from both clusters for a
	// time; they write on.
	Vanish = "cut off host and DPU of"
	// BothDie takes the power from the host where a volume is wanted, and from its DPU.
	BothDie = "power off host and DPU of"
	// ReplaceCard takes the power from the host where a volume is wanted, and puts another card in the
	// place of its DPU, of the same name.
	ReplaceCard = "replace the DPU in the host of"
	// OtherCard does so with one of another name. That of before is put on a shelf, or into a host of
	// no cluster.
	OtherCard = "replace by one of another name the DPU in the host of"
	// NameWrongly names the DPUs of the host where a volume is wanted, and of another one, for each
	// other, for a time.
	NameWrongly = "name another's DPU for the host of"
	// LoseWay cuts the DPU of the host where a volume is wanted off from the storage alone, for a
	// time; all DPUs if no volume is named.
	LoseWay = "cut off from the storage: DPU of"
	// CutLink cuts the link between the host where a volume is wanted and its DPU for a time: the
	// DPU sees its host dead.
	CutLink = "cut the link between host and DPU of"
	// Isolate cuts the link, and the host off from its cluster: nothing hears the host, which
	// writes on.
	Isolate = "cut off from its DPU and its cluster: host of"
	// RestartStorage ends the storage, which starts again after a time; where DPUs watch their ways.
	RestartStorage = "restart the storage after"
	// SwapBMC has other machines answer for a time in place of the BMCs of the host where a volume
	// is wanted.
	SwapBMC = "swap the BMCs of"
	// Strip and StripOwner take the VolumeAttachment of a volume to a host away by force,
	// or the DPUVolumeAttachment; LetGo takes the finalizer of the node driver off.
	Strip      = "strip"
	StripOwner = "strip the owner of"
	LetGo      = "take the finalizer off"
	// LoseClaim deletes the claim of a volume by force.
	LoseClaim = "lose the claim of"
	// Ask is a person's request that a host fails over, Vouch an operator's word about who
	// holds a volume and cannot say that it is over.
	Ask   = "request a failover of"
	Vouch = "vouch for"
	// Restore lets persons restore the DPU cluster, after a time, from a backup of now;
	// RestoreHosts the host cluster, and RestoreBoth both, from backups of different times.
	Restore      = "take a backup, which is restored after"
	RestoreHosts = "take a backup of the host cluster, which is restored after"
	RestoreBoth  = "take backups of both clusters, which are restored after"
	// Twice lets a second snap-host-controller run beside the first for a time.
	Twice = "a second"
)

// Which BMCs there are; none if that is "".
const (
	// PowerByHost: that of each host, whose DPU has all of its power from it.
	PowerByHost = "host"
	// PowerOfDPU: that of each DPU. PowerOfBoth: one of each, and DPUs have power of their own.
	PowerOfDPU  = "DPU"
	PowerOfBoth = "both"
)

// Event is something that happens from outside.
type Event struct {
	At         time.Duration
	What       string
	Who, Where string
	For        time.Duration
}

// String is what happens.
func (e Event) String() string {
	out := e.What + " " + e.Who
	if e.Where != "" || e.What == Move {
		out += " to " + e.Where
	}
	if e.Who == "" {
		return fmt.Sprintf("%s %s", e.What, e.For)
	}
	if e.For > 0 {
		out += fmt.Sprintf(" for %s", e.For)
	}
	return out
}

// Plan is what a schedule is made of, beside its seed.
type Plan struct {
	// Hosts and Volumes are how many there are.
	Hosts, Volumes int
	// Revokes: the vendor's storage revokes, and says so.
	Revokes bool
	// Eager: an attachment is asked for before the one before it is gone.
	Eager bool
	// Replicas: each volume has one on every host where it is not.
	Replicas bool
	// Nodes: nodes ask for their volumes by themselves.
	Nodes bool
	// Leases: DPUs promise to stop by themselves.
	Leases bool
	// Epochs: the vendor's storage knows epochs.
	Epochs bool
	// Power says which machines have a BMC that is on record.
	Power string
	// Ways: DPUs watch their ways to the storage, and lose them; clusters are away for a minute.
	Ways bool
	// Prompt: no watch is late.
	Prompt bool
	// Faults are those of calls.
	Faults engine.Faults
	// Length is the time after which all is healed.
	Length time.Duration
	Events []Event
}

// HostNames and VolumeNames are names in the order in which they are used.
var (
	HostNames   = []string{"a", "b", "c"}
	VolumeNames = []string{"v1", "v2"}
)

// New is the plan of a seed.
func New(seed uint64) Plan {
	dice := rand.New(rand.NewPCG(seed, 0))
	p := Plan{
		Hosts: 2 + dice.IntN(2), Volumes: 1 + dice.IntN(2), Revokes: dice.IntN(2) == 0, Eager: dice.IntN(2) == 0,
		Length: time.Duration(60+dice.IntN(90)) * time.Second,
	}
	if dice.IntN(5) > 0 {
		p.Faults = engine.Faults{
			LoseRequest: dice.IntN(20), LoseAnswer: dice.IntN(30), CrashBefore: dice.IntN(8), CrashAfter: dice.IntN(12),
			Slow: dice.IntN(60), Stuck: dice.IntN(6),
		}
	}
	for _, v := range VolumeNames[:p.Volumes] {
		p.Add(Event{What: Move, Who: v, Where: HostNames[dice.IntN(p.Hosts)], At: time.Duration(dice.Int64N(int64(2 * time.Second)))})
	}
	for range 4 + dice.IntN(10) {
		p.Add(p.random(dice))
	}
	restore := ""
	switch roll := dice.IntN(18); { // drawn last, so that the other events are what they were
	case roll < 3:
		restore = Restore
	case roll < 6:
		restore = RestoreHosts
	case roll < 8:
		restore = RestoreBoth
	}
	if restore != "" {
		at := time.Duration(dice.Int64N(int64(p.Length / 2)))
		p.Add(Event{What: restore, At: at, For: time.Duration(dice.Int64N(int64(p.Length/2 - 10*time.Second)))})
	}
	p.Replicas = dice.IntN(3) == 0
	p.Nodes, p.Leases = dice.IntN(4) == 0, dice.IntN(3) == 0
	p.medium(rand.New(rand.NewPCG(seed, 1)))
	p.power(rand.New(rand.NewPCG(seed, 2)))
	p.ways(rand.New(rand.NewPCG(seed, 3)))
	p.around(rand.New(rand.NewPCG(seed, 5)))
	p.named(rand.New(rand.NewPCG(seed, 6)))
	slices.SortStableFunc(p.Events, func(a, b Event) int { return int(a.At - b.At) })
	return p
}

// medium draws whether the storage knows epochs, and then has hosts and their DPUs vanish. These
// dice are of its own: where it is off, all else is what it was.
func (p *Plan) medium(dice *rand.Rand) {
	if p.Epochs = dice.IntN(3) == 0; !p.Epochs {
		return
	}
	for range 1 + dice.IntN(2) {
		p.Add(p.vanish(dice))
	}
}

// power draws which machines have BMCs, and then has hosts and their DPUs die or vanish, mostly of
// a storage that has no word of its own.
func (p *Plan) power(dice *rand.Rand) {
	switch dice.IntN(10) {
	case 0:
		p.Power = PowerByHost
	case 2:
		p.Power = PowerOfDPU
	case 3:
		p.Power = PowerOfBoth
	default:
		return
	}
	p.Revokes = p.Revokes && dice.IntN(3) == 0
	p.Length += time.Minute // such a failover takes longer than any other
	for range 1 + dice.IntN(2) {
		e := p.vanish(dice)
		if e.At, e.For = 10*time.Second+e.At/2, 2*e.For+time.Minute; dice.IntN(2) == 0 {
			e.What = BothDie
		}
		p.Add(e)
	}
	p.Epochs = p.Epochs && dice.IntN(3) == 0
}

// shortest is the least time for which a way is lost: it may be back before a driver, which looks each
// second, has seen that.
const shortest = 200 * time.Millisecond

// ways draws whether ways to the storage are lost, mostly of volumes that can move for that, and
// whether a cluster is away.
func (p *Plan) ways(dice *rand.Rand) {
	if p.Ways = dice.IntN(4) == 0; !p.Ways {
		return
	}
	if dice.IntN(3) > 0 {
		p.Replicas = true
		p.Revokes = p.Revokes || !p.Epochs
	}
	for range 1 + dice.IntN(3) {
		e := Event{
			What: LoseWay, Who: VolumeNames[dice.IntN(p.Volumes)], At: 8*time.Second + time.Duration(dice.Int64N(int64(p.Length*2/3))),
			For: shortest + time.Duration(dice.Int64N(int64(80*time.Second))),
		}
		if dice.IntN(6) == 0 {
			e.Who = ""
		}
		p.Add(e)
	}
	if which := dice.IntN(4); which < 2 {
		p.Add(Event{What: Cut, Who: []string{"host cluster", "DPU cluster"}[which], At: time.Duration(dice.Int64N(int64(p.Length))), For: time.Minute})
	}
}

// around draws what goes wrong around the machines, by dice of its own: links, the storage, BMCs and cards.
func (p *Plan) around(dice *rand.Rand) {
	at := func() time.Duration { return 5*time.Second + time.Duration(dice.Int64N(int64(p.Length*2/3))) }
	volume := func() string { return VolumeNames[dice.IntN(p.Volumes)] }
	for range max(0, dice.IntN(4)-1) {
		p.Add(Event{What: []string{CutLink, Isolate}[dice.IntN(2)], Who: volume(), At: at(), For: time.Duration(dice.Int64N(int64(90 * time.Second)))})
	}
	if p.Ways && dice.IntN(2) == 0 {
		p.Add(Event{What: RestartStorage, At: at(), For: shortest + time.Duration(dice.Int64N(int64(20*time.Second)))})
	}
	if p.Power != "" && dice.IntN(2) == 0 {
		p.Add(Event{What: SwapBMC, Who: volume(), At: at(), For: time.Duration(dice.Int64N(int64(2 * time.Minute)))})
	}
	if dice.IntN(6) == 0 {
		p.Add(Event{What: ReplaceCard, Who: volume(), At: at(), For: 5*time.Second + time.Duration(dice.Int64N(int64(2*time.Minute)))})
	}
}

// named draws whether hosts get DPUs of other names, by dice of its own.
func (p *Plan) named(dice *rand.Rand) {
	e := Event{
		Who: VolumeNames[dice.IntN(p.Volumes)], At: 5*time.Second + time.Duration(dice.Int64N(int64(p.Length*2/3))),
		For: 5*time.Second + time.Duration(dice.Int64N(int64(time.Minute))),
	}
	switch dice.IntN(12) {
	case 0:
		e.What = OtherCard
	case 1:
		e.What, e.Where = OtherCard, "another host"
	case 2, 3:
		e.What, e.Where = NameWrongly, HostNames[dice.IntN(p.Hosts)]
	default:
		return
	}
	p.Add(e)
}

// vanish is some Vanish, long enough to be taken for dead in most cases.
func (p *Plan) vanish(dice *rand.Rand) Event {
	return Event{
		What: Vanish, Who: VolumeNames[dice.IntN(p.Volumes)], At: 5*time.Second + time.Duration(dice.Int64N(int64(p.Length/2))),
		For: 15*time.Second + time.Duration(dice.Int64N(int64(75*time.Second))),
	}
}

// Add has an event happen.
func (p *Plan) Add(e Event) { p.Events = append(p.Events, e) }

// random is some event.
func (p *Plan) random(dice *rand.Rand) Event {
	e := Event{At: time.Duration(dice.Int64N(int64(p.Length))), For: time.Duration(dice.Int64N(int64(45 * time.Second)))}
	host := HostNames[dice.IntN(p.Hosts)]
	processes := []string{"hosts", "hosts", "storage", "attacher", "dpu-" + host, "dpu-" + host}
	e.Who = processes[dice.IntN(len(processes))]
	switch roll := dice.IntN(18); {
	case roll < 4:
		e.What, e.Who, e.Where, e.For = Move, VolumeNames[dice.IntN(p.Volumes)], append([]string{""}, HostNames[:p.Hosts]...)[dice.IntN(p.Hosts+1)], 0
	case roll < 6:
		e.What, e.For = Kill, 0
	case roll < 7:
		e.What = Stall
	case roll < 9:
		e.What = Cut
		if dice.IntN(3) == 0 {
			e.Who = []string{"host cluster", "DPU cluster", "host " + host}[dice.IntN(3)]
		}
	case roll < 11:
		e.What, e.Who, e.For = HostDies, host, 2*e.For
	case roll < 12:
		e.What, e.Who, e.For = DPUDies, "dpu-"+host, 2*e.For
	case roll < 13:
		e.What, e.Who = Twice, "hosts"
	case roll < 14:
		e.What, e.Who = EndSNAP, "dpu-"+host
	default:
		return byPersons(dice, Event{At: e.At, Who: VolumeNames[dice.IntN(p.Volumes)], Where: host})
	}
	return e
}

// byPersons is what people do, of a volume or of a host.
func byPersons(dice *rand.Rand, e Event) Event {
	e.What = []string{Strip, StripOwner, LetGo, LoseClaim, Ask, Ask, Vouch}[dice.IntN(7)]
	switch e.What {
	case Ask:
		e.Who, e.Where = e.Where, ""
	case LoseClaim, Vouch:
		e.Where = ""
	}
	return e
}

// Shrink takes from a plan what is not needed for it to fail in the way that fails says:
// the faults of calls at once, and events.
func Shrink(p Plan, fails func(Plan) bool) Plan {
	if less := p; less.Faults != (engine.Faults{}) {
		if less.Faults = (engine.Faults{}); fails(less) {
			p = less
		}
	}
	for size := (len(p.Events) + 1) / 2; size > 0; size /= 2 {
		for from := 0; from < len(p.Events); {
			less := p
			less.Events = slices.Delete(slices.Clone(p.Events), from, min(from+size, len(p.Events)))
			if fails(less) {
				p = less
			} else {
				from += size
			}
		}
	}
	return p
}

// String lists the plan.
func (p Plan) String() string {
	out := fmt.Sprintf("%d hosts, %d volumes, revokes: %t, eager: %t, replicas: %t, nodes ask: %t, leases: %t, epochs: %t, BMCs: %q, ways are lost: %t, faults %+v, healed after %s\n", p.Hosts, p.Volumes, p.Revokes, p.Eager, p.Replicas, p.Nodes, p.Leases, p.Epochs, p.Power, p.Ways, p.Faults, p.Length)
	for _, e := range p.Events {
		out += fmt.Sprintf("  %10.4fs %s\n", e.At.Seconds(), e)
	}
	return out
}
