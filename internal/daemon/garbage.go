package daemon

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// How much garbage there may be before it is collected, in percent of what lives. Most of
// what these processes hold are caches, which live long, and at rest they make little
// garbage: memory is dearer than the collections. With 2,000 attachments, snap-host-controller
// has 118 MB at 100, 101 MB at 50 and 92 MB at 25, and uses 3.6, 4.1 and 4.3 % of a core at
// rest, all beside other work. A process that is busy makes much garbage, and there the
// collections are dearer: with 10,000 attachments and 25 %, a third of the processor time of
// a start was for them, and a host's 20 pods were back in 10.6 s instead of 9.5 s on two
// cores. The environment variable GOGC overrides both.
const (
	restPercent = 25
	busyPercent = 100 // Go's own
)

// A process is busy that makes as much garbage as lives within busyBelow, and at rest if that
// takes it longer than restAbove; between the two it stays what it is. With 10,000 attachments
// snap-host-controller takes some 30 s for it at rest, and less than 10 s while it starts. Go
// itself collects every two minutes at the latest, so that one that ends its work comes to rest.
const (
	busyBelow = 10 * time.Second
	restAbove = 20 * time.Second
)

// percentAfter is the percentage to go on with when a collection ends that came since after
// the one before, at percent.
func percentAfter(percent int, since time.Duration) int {
	switch whole := since * 100 / time.Duration(percent); {
	case whole < busyBelow:
		return busyPercent
	case whole > restAbove:
		return restPercent
	}
	return percent
}

// collections chooses the percentage again whenever garbage was collected.
type collections struct {
	percent int
	count   uint64
	last    time.Time
	// automatic is how many collections there were that the process did not ask for.
	automatic func() uint64
	// set has the runtime work with a percentage.
	set func(percent int)
}

// spareMemory has the process collect its garbage as its work asks for, from now on to its end.
func spareMemory() {
	c := &collections{percent: busyPercent, count: automatic(), last: time.Now(), automatic: automatic, set: setPercent}
	c.follow()
}

// follow waits for the end of the next collection without a clock: by an object that it frees.
func (c *collections) follow() {
	freed := &struct{ c *collections }{c}
	runtime.AddCleanup(freed, func(c *collections) {
		go func() {
			c.ended(time.Now())
			c.follow()
		}()
	}, c)
}

func (c *collections) ended(now time.Time) {
	count := c.automatic()
	if count == c.count {
		return // it was asked for, as by FreeOSMemory, and tells nothing of the work
	}
	percent := percentAfter(c.percent, now.Sub(c.last))
	c.count, c.last = count, now
	if percent != c.percent {
		c.percent = percent
		c.set(percent)
	}
}

func automatic() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/automatic:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// setPercent also gives back what work has left.
func setPercent(percent int) {
	debug.SetGCPercent(percent)
	if percent == restPercent {
		debug.FreeOSMemory()
	}
}
