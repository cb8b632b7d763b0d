package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

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
)

// operations measures single operations in the world at rest, with all beats. One
// that fails does not keep the others from being measured.
func (b *bench) operations(ctx context.Context) {
	for _, op := range []struct {
		of  result
		run func(context.Context) error
	}{
		{millis("attach.grant"), b.attachSingle},
		{millis("attach50.granted"), b.attachTogether},
		{millis("restart"), b.restart},
		{millis("list.pages"), b.listVolumes},
		{millis("extender.filter"), b.askExtender},
		{millis("host.freed"), b.hostDead},
		{millis("rack.freed"), b.rackDead},
	} {
		if ctx.Err() != nil {
			return
		}
		b.say("measuring %s", op.of.name)
		// What the one before left is not measured with it.
		if err := b.rest(ctx, 2*time.Second, patience); err != nil {
			b.say("  %v", err)
		}
		if err := op.run(ctx); err != nil {
			b.say("  %v", err)
			b.record.fail(op.of, err)
		}
		// In less than a period not everything has beaten: that is judged with what
		// comes next.
		if b.fleet.Counted() >= b.fleet.Period() {
			b.beats("operations.beats")
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
	return nil
}

// attachTogether attaches many volumes at once, over all hosts.
func (b *bench) attachTogether(ctx context.Context) error {
	volumes, err := b.make(ctx, "together", together)
	if err != nil {
		return err
	}
	begin := time.Now()
	var all errgroup.Group
	for i, v := range volumes {
		all.Go(func() error { _, err := b.user.Attach(ctx, v, b.host(i)); return err })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	b.record.took(millis("attach50.ready"), time.Since(begin), nil)
	var names []string
	for _, v := range volumes {
		names = append(names, v.Name)
	}
	granted, err := b.history.last(ctx, b.history.granted, names, patience)
	if err != nil {
		return err
	}
	b.record.took(millis("attach50.granted"), granted.Sub(begin), nil)
	return nil
}

// hostDead gives a host more volumes and takes its power away.
func (b *bench) hostDead(ctx context.Context) error {
	const victim = 1
	var volumes []string
	for n := range b.o.volumes {
		volumes = append(volumes, world.Volume(victim, n))
	}
	var more errgroup.Group
	for n := b.o.volumes; n < onOne; n++ {
		volumes = append(volumes, fmt.Sprintf("more-%d", n))
		more.Go(func() error { return b.user.Run(ctx, fmt.Sprintf("more-%d", n), fleet.NamesOf(victim).Host) })
	}
	if err := errors.Join(more.Wait(), b.rest(ctx, 2*time.Second, patience)); err != nil {
		return err
	}
	begin := time.Now()
	b.fleet.Kill(victim)
	return b.freed(ctx, millis("host.freed"), volumes, begin)
}

// rackDead takes the power of the last hosts away.
func (b *bench) rackDead(ctx context.Context) error {
	var volumes []string
	begin := time.Now()
	for i := b.o.hosts - b.rackHosts(); i < b.o.hosts; i++ {
		for n := range b.o.volumes {
			volumes = append(volumes, world.Volume(i, n))
		}
		b.fleet.Kill(i)
	}
	return b.freed(ctx, millis("rack.freed"), volumes, begin)
}

// freed waits until nothing holds the volumes any more.
func (b *bench) freed(ctx context.Context, of result, volumes []string, begin time.Time) error {
	last, err := b.history.last(ctx, b.history.free, volumes, time.Duration(float64(patience)*max(b.o.slow, 1)))
	if err != nil {
		return fmt.Errorf("wait until the claims of dead hosts are free: %w", err)
	}
	b.record.took(of, last.Sub(begin), nil)
	return nil
}

// restart restarts the program that leads.
func (b *bench) restart(ctx context.Context) error {
	leader := b.programs[len(b.programs)-1]
	leader.Stop()
	return b.start(ctx, leader, "restart")
}
