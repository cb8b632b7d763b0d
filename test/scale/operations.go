package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/bench/audit"
	"github.com/moor-storage/moor/test/scale/fleet"
	"github.com/moor-storage/moor/test/scale/world"
)

const (
	// singles is how many volumes are attached one after the other, together how
	// many at once.
	singles  = 10
	together = 50
	// onOne is how many volumes the host has that dies alone.
	onOne = 20
	// rackHosts is how many hosts die together, at most; in a small world a fifth of
	// all, as a third that looks dead makes the observer suspect.
	rackHosts = 40
	rackShare = 5
	// patience bounds every operation.
	patience = 2 * time.Minute
	// attachAgain is how soon a call that failed is made again.
	attachAgain = time.Second
)

// operation is one that is measured in the world at rest, with all beats.
type operation struct {
	// of is the result that fails with it.
	of  result
	run func(context.Context) error
}

func (b *bench) operations() []operation {
	return []operation{
		{millis("attach.grant"), b.attachSingle},
		{millis("attach50.granted"), b.attachTogether},
		{millis("list.pages"), b.listVolumes},
		{millis("extender.filter"), b.askExtender},
		{millis("restart"), b.restart},
		{millis("leader"), b.leaderDies},
		{millis("server.host"), b.serverDies(apiserver.Host)},
		{millis("server.dpu"), b.serverDies(apiserver.DPU)},
		{millis("host.freed"), b.hostDead},
		{millis("rack.freed"), b.rackDead},
	}
}

// each measures operations one after the other. One that fails does not keep the
// others from being measured.
func (b *bench) each(ctx context.Context, name string, operations []operation) {
	for _, op := range operations {
		if ctx.Err() != nil {
			return
		}
		if !b.o.measures(op.of.name) {
			continue
		}
		b.say("measuring %s", op.of.name)
		// What the one before left is not measured with it.
		_, _, err := b.settleAll(ctx)
		if err := errors.Join(err, b.rest(ctx, 2*time.Second, patience)); err != nil {
			b.say("  %v", err)
		}
		if err := op.run(ctx); err != nil {
			b.say("  %v", err)
			b.record.fail(op.of, err)
		}
		// In less than a period not everything has beaten: that is judged with what
		// comes next.
		if b.fleet.Counted() >= b.fleet.Period() {
			b.beats(name + ".beats")
		}
	}
}

// make makes volumes that nothing uses yet.
func (b *bench) make(ctx context.Context, name string, n int) ([]world.Made, error) {
	out := make([]world.Made, n)
	var all errgroup.Group
	for i := range n {
		all.Go(func() (err error) {
			out[i], err = b.user.Make(ctx, fmt.Sprintf("%s-%d", name, i))
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	return out, b.rest(ctx, 2*time.Second, patience)
}

// host is the name of the host that operations use one after the other: neither the
// first, which dies, nor one of the last, whose rack dies.
func (b *bench) host(i int) string {
	return fleet.NamesOf(2 + i%max(b.o.hosts-2-b.rackHosts(), 1)).Host
}

func (b *bench) rackHosts() int { return min(rackHosts, b.o.hosts/rackShare) }

// attachSingle attaches volumes one after the other.
func (b *bench) attachSingle(ctx context.Context) error {
	volumes, err := b.make(ctx, "single", singles)
	if err != nil {
		return err
	}
	marks, err := b.mark()
	if err != nil {
		return err
	}
	for i, v := range volumes {
		begin := time.Now()
		if _, err := b.user.Attach(ctx, v, b.host(i)); err != nil {
			return err
		}
		ready := time.Now()
		granted, err := b.history.last(ctx, b.history.granted, []string{v.Name}, patience)
		if err != nil {
			return err
		}
		asked, err := b.history.last(ctx, b.history.asked, []string{v.Name}, patience)
		if err != nil {
			return err
		}
		b.record.took(millis("attach.grant"), granted.Sub(asked), nil)
		b.record.took(millis("attach.ready"), ready.Sub(begin), nil)
	}
	return b.cost(ctx, "attach", marks)
}

// cost records what an operation cost the API servers until the world was at rest
// again.
func (b *bench) cost(ctx context.Context, name string, marks []audit.Mark) error {
	restless := b.rest(ctx, 2*time.Second, patience)
	got, err := b.asked(ctx, name, marks, "")
	if err != nil {
		return err
	}
	b.say("  %d reads, %d writes: %s", got.Reads, got.Writes, got)
	return restless
}

// attachTogether attaches many volumes at once, over all hosts.
func (b *bench) attachTogether(ctx context.Context) error {
	volumes, err := b.make(ctx, "together", together)
	if err != nil {
		return err
	}
	marks, err := b.mark()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := b.attachAll(ctx, volumes); err != nil {
		return err
	}
	b.record.took(millis("attach50.ready"), time.Since(begin), nil)
	granted, err := b.history.last(ctx, b.history.granted, namesOf(volumes), patience)
	if err != nil {
		return err
	}
	b.record.took(millis("attach50.granted"), granted.Sub(begin), nil)
	return b.cost(ctx, "attach50", marks)
}

// attachAll attaches volumes at once, over all hosts. What the driver refuses is asked
// for again, as csi-attacher does.
func (b *bench) attachAll(ctx context.Context, volumes []world.Made) error {
	ctx, cancel := context.WithTimeout(ctx, b.patience())
	defer cancel()
	var all errgroup.Group
	for i, v := range volumes {
		all.Go(func() error {
			for {
				_, err := b.user.Attach(ctx, v, b.host(i))
				if err == nil {
					return nil
				}
				if sleep(ctx, attachAgain) != nil {
					return err
				}
			}
		})
	}
	return all.Wait()
}

func namesOf(volumes []world.Made) []string {
	var out []string
	for _, v := range volumes {
		out = append(out, v.Name)
	}
	return out
}

// hostDead gives a host more volumes and takes its power away.
func (b *bench) hostDead(ctx context.Context) error {
	const victim = 1
	volumes := b.volumesOf(victim)
	var more errgroup.Group
	for n := b.o.volumes; n < onOne; n++ {
		volumes = append(volumes, fmt.Sprintf("more-%d", n))
		more.Go(func() error { return b.user.Run(ctx, fmt.Sprintf("more-%d", n), fleet.NamesOf(victim).Host) })
	}
	if err := errors.Join(more.Wait(), b.rest(ctx, 2*time.Second, patience)); err != nil {
		return err
	}
	marks, err := b.mark()
	if err != nil {
		return err
	}
	begin := time.Now()
	b.fleet.Kill(victim)
	return b.freed(ctx, "host", volumes, begin, marks)
}

// rackDead takes the power of the last hosts away.
func (b *bench) rackDead(ctx context.Context) error {
	marks, err := b.mark()
	if err != nil {
		return err
	}
	var volumes []string
	begin := time.Now()
	for i := b.o.hosts - b.rackHosts(); i < b.o.hosts; i++ {
		volumes = append(volumes, b.volumesOf(i)...)
		b.fleet.Kill(i)
	}
	return b.freed(ctx, "rack", volumes, begin, marks)
}

// volumesOf are those that a host has from the beginning.
func (b *bench) volumesOf(i int) []string {
	var out []string
	for n := range b.o.volumes {
		out = append(out, world.Volume(i, n))
	}
	return out
}

// freed waits until nothing holds the volumes any more. No others may be taken back.
func (b *bench) freed(ctx context.Context, name string, volumes []string, begin time.Time, marks []audit.Mark) error {
	last, err := b.history.last(ctx, b.history.free, volumes, b.patience())
	if err == nil {
		b.record.took(millis(name+".freed"), last.Sub(begin), nil)
	} else {
		err = fmt.Errorf("wait until the claims of dead hosts are free: %w", err)
	}
	return errors.Join(err, b.cost(ctx, name, marks), b.unharmed(begin, volumes))
}

// unharmed is an error if the right to write to any volumes but these was taken back
// since a moment.
func (b *bench) unharmed(since time.Time, but []string) error {
	if taken := b.history.takenBack(since, but); len(taken) > 0 {
		return fmt.Errorf("the right to write to %d volumes was taken back without cause, among them to %s", len(taken), taken[0])
	}
	return nil
}

// patience bounds an operation whose steps wait for beats.
func (b *bench) patience() time.Duration {
	return time.Duration(float64(patience) * max(b.o.slow, 1))
}
