package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/moor-storage/moor/test/bench/audit"
	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/devcluster"
)

const (
	// warmups are runs before those that count: caches fill, connections are
	// made.
	warmups = 3
	// crowd is how many volumes attach.parallel50 attaches at once.
	crowd = 50
	// calm is how long no write may come before all are taken to be there.
	calm = time.Second
)

// attachSingle attaches and detaches new volumes one at a time: a volume's
// first attachment is what a new pod waits for.
func (b *bench) attachSingle(ctx context.Context) error {
	volumes, err := b.warmedUp(ctx)
	if err != nil {
		return err
	}
	count, err := b.countWrites(ctx)
	if err != nil {
		return err
	}
	starts, err := b.attachInTurn(ctx, "", volumes)
	if err != nil {
		return err
	}
	return count.finish(ctx, b, starts)
}

// attachUnderEpochs is attachSingle on a bed whose storage knows epochs: it fences each
// volume for each grant before the host sees the device.
func (b *bench) attachUnderEpochs(ctx context.Context) error {
	volumes, err := b.warmedUp(ctx)
	if err == nil {
		_, err = b.attachInTurn(ctx, "epochs.", volumes)
	}
	return err
}

// warmedUp makes the volumes to attach, after a few that do not count.
func (b *bench) warmedUp(ctx context.Context) ([]volume, error) {
	volumes, err := b.create(ctx, warmups+b.options.times(100), plain())
	if err != nil {
		return nil, err
	}
	for i, v := range volumes[:warmups] {
		if _, _, err := b.attachDetach(ctx, v, b.turn(i)); err != nil {
			return nil, err
		}
	}
	return volumes[warmups:], nil
}

// attachInTurn attaches and detaches volumes, and returns when each attach began. The names of
// the results begin with prefix.
func (b *bench) attachInTurn(ctx context.Context, prefix string, volumes []volume) (starts []time.Time, err error) {
	attached := b.series(prefix+"attach.single", results.Millis, results.Median)
	detached := b.series(prefix+"detach.single", results.Millis, results.Median)
	for i, v := range volumes {
		starts = append(starts, time.Now())
		in, out, err := b.attachDetach(ctx, v, b.turn(i))
		if err != nil {
			return nil, err
		}
		attached.add(millis(in))
		detached.add(millis(out))
	}
	return starts, nil
}

// turn is the host whose turn it is.
func (b *bench) turn(i int) int { return i % len(b.bed.Nodes()) }

func (b *bench) attachDetach(ctx context.Context, v volume, node int) (in, out time.Duration, err error) {
	begin := time.Now()
	if _, err := b.attach(ctx, v, node); err != nil {
		return 0, 0, err
	}
	in = time.Since(begin)
	begin = time.Now()
	err = b.detach(ctx, v, node)
	return in, time.Since(begin), err
}

// writeCount counts the writes in both audit logs from its making on.
type writeCount struct{ marks map[string]audit.Mark }

// clusters in the order of the results.
var clusters = []string{devcluster.HostCluster, devcluster.DPUCluster}

func (b *bench) countWrites(ctx context.Context) (writeCount, error) {
	c := writeCount{marks: map[string]audit.Mark{}}
	for _, cluster := range clusters {
		mark, err := audit.MarkEnd(b.bed.AuditLog(cluster))
		if err != nil {
			return c, err
		}
		c.marks[cluster] = mark
	}
	// What still goes on from before must not count.
	if err := c.settle(ctx); err != nil {
		return c, err
	}
	for cluster := range c.marks {
		mark, err := audit.MarkEnd(b.bed.AuditLog(cluster))
		if err != nil {
			return c, err
		}
		c.marks[cluster] = mark
	}
	return c, nil
}

// settle returns when no write that counts has come for a while.
func (c writeCount) settle(ctx context.Context) error {
	last := -1
	err := wait.PollUntilContextTimeout(ctx, calm, patience, false, func(context.Context) (bool, error) {
		now := 0
		for _, mark := range c.marks {
			events, err := mark.Since()
			if err != nil {
				return false, err
			}
			now += len(events)
		}
		quiet := now == last
		last = now
		return quiet, nil
	})
	if err != nil {
		return fmt.Errorf("wait until nothing more is written to the API servers: %w", err)
	}
	return nil
}

// finish adds the results; each run starts at one of starts.
func (c writeCount) finish(ctx context.Context, b *bench, starts []time.Time) error {
	if err := c.settle(ctx); err != nil {
		return err
	}
	b.writeRuns = len(starts)
	for _, cluster := range clusters {
		events, err := c.marks[cluster].Since()
		if err != nil {
			return err
		}
		writes := b.series("attach.api_writes."+cluster, results.Writes, results.Mean)
		for run, n := range audit.PerRun(events, starts) {
			writes.addAt(starts[run], n)
		}
		b.writes = append(b.writes, audit.Tally(cluster, events)...)
	}
	return nil
}

// wantFunctions refuses a bed whose hosts have fewer virtual functions than one of them gets
// volumes.
func (b *bench) wantFunctions(volumes int) error {
	if have := b.bed.Options().VFs; have < volumes {
		return fmt.Errorf("a host gets %d volumes, each needs a virtual function, and it has %d: run make bench, or moor-dev up --vfs=64", volumes, have)
	}
	return nil
}

// wantCrowd refuses a bed whose hosts have fewer virtual functions than a crowd needs.
func (b *bench) wantCrowd() error {
	return b.wantFunctions((crowd + len(b.bed.Nodes()) - 1) / len(b.bed.Nodes()))
}

// attachParallel attaches a crowd of new volumes at once over all hosts. The
// first round is a warm-up.
func (b *bench) attachParallel(ctx context.Context) error {
	if err := b.wantCrowd(); err != nil {
		return err
	}
	single := b.series("attach.parallel50", results.Millis, results.Median)
	all := b.series("attach.parallel50.all", results.Millis, results.Worst)
	for round := range 1 + b.options.times(3) {
		took, end, err := b.attachCrowd(ctx, crowd, plain(), b.turn)
		if err != nil {
			return err
		}
		if round > 0 {
			single.add(took...)
			all.add(end)
		}
	}
	return nil
}

// attachCrowd attaches n new volumes at once, each to the host that is its own.
// It returns how long each took and how long all did, and removes the volumes.
func (b *bench) attachCrowd(ctx context.Context, n int, w wish, host func(int) int) (took []float64, all float64, err error) {
	volumes, err := b.create(ctx, n, w)
	if err != nil {
		return nil, 0, err
	}
	if took, all, err = b.attachAtOnce(ctx, volumes, host); err != nil {
		return nil, 0, err
	}
	return took, all, b.clearVolumes(ctx)
}

// attachAtOnce attaches volumes at once, each to the host that is its own. It returns how long
// each took, and how long all did.
func (b *bench) attachAtOnce(ctx context.Context, volumes []volume, host func(int) int) (took []float64, all float64, err error) {
	var mu sync.Mutex
	begin := time.Now()
	err = each(len(volumes), func(i int) error {
		start := time.Now()
		if _, err := b.attach(ctx, volumes[i], host(i)); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, millis(time.Since(start)))
		return nil
	})
	return took, millis(time.Since(begin)), err
}
