package hardware

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// notices is the longest that SNAP takes to notice that its way to the storage is lost.
const notices = 5 * time.Second

// way is that of a DPU to the storage.
type way struct {
	// lost: nothing reaches the storage. noticed: SNAP knows; it has given up what was on its way.
	lost, noticed bool
	// count is how often it was lost.
	count int
}

// connection names the one there is, or was last as far as SNAP knows.
func (w way) connection() string {
	if w.lost {
		return strconv.Itoa(w.count - 1)
	}
	return strconv.Itoa(w.count)
}

// LosesWay cuts a DPU off from the storage alone. What it had sent is on its way still, and may
// arrive after SNAP has noticed and taken the device away.
func (d *DPU) LosesWay() {
	if d.way.lost {
		return
	}
	d.way = way{lost: true, count: d.way.count + 1}
	for _, name := range d.names() {
		x := d.shown[name]
		if x.Visible && d.HostOn {
			f := &flight{Write: Write{Volume: x.volume, DPU: d.Name, Epoch: x.epoch}}
			took := time.Duration(d.dice.Int64N(int64(DrainBound)))
			if d.Lies.Late {
				took = DrainBound
			}
			d.storage.fly(f, took)
			x.flying = append(x.flying, f)
			x.sent++
		}
		for _, f := range x.flying {
			f.stray = true
		}
	}
	count := d.way.count
	d.engine.After(time.Duration(d.dice.Int64N(int64(notices))), func() {
		if d.way.lost && d.way.count == count {
			d.way.noticed = true
			d.engine.Tell(d.Name, "SNAP has lost its connection to the storage")
		}
	})
}

// Forgotten has the storage, which the DPU does not reach, forget some of what it had sent. SNAP
// has no answer to it, and sends it again.
func (d *DPU) Forgotten() {
	for _, name := range d.names() {
		x := d.shown[name]
		for _, f := range x.flying {
			if !f.over && d.dice.IntN(2) == 0 {
				f.over = true
				d.send(x, f.Write)
			}
		}
	}
}

// FindsWay ends that. SNAP sends what has waited.
func (d *DPU) FindsWay() {
	if !d.way.lost {
		return
	}
	d.way.lost, d.way.noticed = false, false
	for _, name := range d.names() {
		x := d.shown[name]
		waiting := x.waiting
		x.waiting = nil
		for _, w := range waiting {
			d.send(x, w)
		}
	}
}

// unreached is the error of what the storage is asked for.
func (d *DPU) unreached() error {
	return fmt.Errorf("the storage is not reached from %s: %w", d.Name, provisioner.ErrUnavailable)
}

// send sends a write of the host, or keeps it for when the way is back.
func (d *DPU) send(x *shown, w Write) {
	if d.way.lost {
		if len(x.waiting) == 0 { // one is as good as many
			x.waiting = append(x.waiting, w)
		}
		return
	}
	x.flying = slices.DeleteFunc(x.flying, func(f *flight) bool { return f.over })
	x.flying = append(x.flying, d.storage.send(w))
	x.sent++
}

// ended says that a device cannot be taken away: something of it is on its way, and SNAP, which does
// not know that the way is lost, waits for its end.
func (d *DPU) ended(x *shown) error {
	if d.way.lost && !d.way.noticed && (len(x.waiting) > 0 || slices.ContainsFunc(x.flying, func(f *flight) bool { return !f.over })) {
		return fmt.Errorf("I/O of %s is in flight, and does not end: %w", x.Device, provisioner.ErrUnavailable)
	}
	return nil
}

// Paths are SNAP's, of the devices that it has.
func (d *DPU) Paths(devices []string) ([]provisioner.Path, error) {
	if d.answers() != nil {
		return nil, provisioner.ErrSilent
	}
	var out []provisioner.Path
	for _, name := range slices.Compact(slices.Sorted(slices.Values(devices))) {
		if d.devices[name] == "" {
			continue
		}
		p := provisioner.Path{Device: name, State: provisioner.PathConnected, Connections: d.way.connection()}
		if d.way.noticed {
			p.State, p.Detail, p.Connections = provisioner.PathReconnecting, "reconnect_is_delayed", ""
		}
		if x := d.shown[name]; x != nil {
			for _, f := range x.flying {
				if !f.over || f.stray && d.way.lost && !d.way.noticed { // no answer comes
					p.InFlight++
				}
			}
			p.Completed = x.sent - p.InFlight
			p.InFlight += int64(len(x.waiting))
		}
		out = append(out, p)
	}
	return out, nil
}

// Probe is SNAP's: it asks the storage.
func (d *DPU) Probe() error {
	if err := d.answers(); err != nil {
		return err
	}
	if d.way.lost {
		return d.unreached()
	}
	return nil
}
