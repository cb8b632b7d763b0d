package daemon

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Most of what these processes hold are caches, which live long, and at rest they make little
// garbage: memory is dearer than the collections. With 2,000 attachments, snap-host-controller
// has 118 MB if there may be as much garbage as lives, Go's own rule, and 92 MB at a quarter of it, and
// uses 3.6 and 4.3 % of a core at rest, all beside other work. But a collection in the midst of
// work delays it, by as much as all that lives takes to be looked through. So Go's own
// rule stays for large heaps, half of it is for small ones, which are soon looked through, and a process that is
// at rest collects earlier by itself: the work that comes next then has room for what it makes. The environment variable GOGC turns this off.
const (
	// lookPeriod is the time between two looks at the heap.
	lookPeriod = 5 * time.Second
	// sparePercent is how much garbage there may be at rest, in percent of what lives.
	sparePercent = 25
	// restAbove is how long a process that is at rest takes at the least to make as much garbage
	// as lives. With 10,000 attachments it takes snap-host-controller some 30 s, and less than
	// 10 s while it starts.
	restAbove = 20 * time.Second
	// smallHeap is, in bytes, more than lives in any of these processes with 1,000 volumes. With as
	// many at once, snap-controller had 83.5 MB by Go's own rule.
	smallHeap = 64 << 20
	// smallPercent and largePercent are how much garbage there may be in the midst of work, in
	// percent of what lives, of small heaps and of others; the latter is Go's own rule.
	smallPercent, largePercent = 50, 100
)

// heap is what the runtime tells of it, in bytes.
type heap struct {
	// live is what the last collection found alive, used is that with what was made since, and
	// made is all that was ever made.
	live, used, made uint64
}

// rests reports whether the process has made little since a look before.
func (h heap) rests(before heap, period time.Duration) bool {
	return float64(h.made-before.made)*restAbove.Seconds() < float64(h.live)*period.Seconds()
}

// spoiled reports whether there is more garbage than there may be at rest.
func (h heap) spoiled() bool { return h.used > h.live+h.live*sparePercent/100 }

// spareMemory has the process collect its garbage early whenever it is at rest, until ctx ends.
func spareMemory(ctx context.Context) {
	spare(ctx, collector{read: readHeap, allow: func(percent int) { debug.SetGCPercent(percent) }, collect: runtime.GC, release: debug.FreeOSMemory})
}

// percent is how much garbage there may be in the midst of work.
func (h heap) percent() int {
	if h.live < smallHeap {
		return smallPercent
	}
	return largePercent
}

// collector is the runtime's: what the heap is, how much garbage there may be from now on, in
// percent of what lives, and a collection, which gives memory back too if it is a release.
type collector struct {
	read             func() heap
	allow            func(percent int)
	collect, release func()
}

// spare collects, and gives memory back too if the process has worked since it last did.
func spare(ctx context.Context, c collector) {
	ticker := time.NewTicker(lookPeriod)
	defer ticker.Stop()
	worked, before := true, c.read()
	c.allow(before.percent())
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := c.read()
		if now.percent() != before.percent() {
			c.allow(now.percent())
		}
		switch {
		case !now.rests(before, lookPeriod):
			worked = true
		case worked:
			c.release()
			worked = false
		case now.spoiled():
			c.collect()
		}
		before = now
	}
}

func readHeap() heap {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(samples)
	return heap{live: samples[0].Value.Uint64(), used: samples[1].Value.Uint64(), made: samples[2].Value.Uint64()}
}
