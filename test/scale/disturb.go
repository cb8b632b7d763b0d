package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/test/scale/world"
)

const (
	// tooOften is how many times too often a host beats, hasty one of how many hosts
	// does.
	tooOften = 10
	hasty    = 50
	// cutEvery is how often all watches break, cuts how many times.
	cutEvery = 30 * time.Second
	cuts     = 3
	// slowness is how long all that is sent to an API server, or from it, takes.
	slowness = 100 * time.Millisecond
	// meanwhile is how many volumes are attached during a disturbance.
	meanwhile = 20
)

// disturbed starts the programs and measures disturbances: what must hold is that all
// that is asked for is done in the end, that no right to write is taken back from a
// host that lives, and that those of dead hosts are freed no later than the last of
// what users asked for at the same moment is done.
func (b *bench) disturbed(ctx context.Context) error {
	for _, p := range b.programs {
		if err := p.Start(ctx, b.o.bin, b.work); err != nil {
			return err
		}
	}
	if _, _, err := b.settleAll(ctx); err != nil {
		return err
	}
	// An observer is young until it could have heard all.
	if err := sleep(ctx, 3*b.fleet.Period()); err != nil {
		return err
	}
	b.each(ctx, "disturbed", []operation{
		{millis("disturbed.hasty.attached"), b.hastyHosts},
		{millis("disturbed.cut.attached"), b.cutWatches},
		{millis("disturbed.slow.freed"), b.slowServers},
		{millis("disturbed.refused.freed"), b.refusingServers},
		{millis("disturbed.return"), b.allReturn},
	})
	return nil
}

// hastyHosts lets some hosts beat too often: nothing is read or written for it.
func (b *bench) hastyHosts(ctx context.Context) error {
	const name, first = "disturbed.hasty", 2
	n := max(b.o.hosts/hasty, 1)
	marks, err := b.mark()
	if err != nil {
		return err
	}
	before, err := b.look(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	b.beats("disturbed.beats")
	for i := first; i < first+n; i++ {
		b.fleet.Hasten(ctx, i, tooOften)
	}
	err = sleep(ctx, 3*b.fleet.Period())
	b.beats(name + ".beats")
	after, lookErr := b.look(ctx)
	for i := first; i < first+n; i++ {
		b.fleet.Hasten(ctx, i, 1)
	}
	if err := errors.Join(err, lookErr); err != nil {
		return err
	}
	got, err := b.asked(ctx, name, marks, "")
	if err != nil {
		return err
	}
	b.say("  %d hosts beat %d times too often: %d reads, %d writes, %.1f passes a second: %s", n, tooOften, got.Reads, got.Writes, b.passes(before, after), got)
	if got.Reads > 0 || got.Writes > 0 {
		err = fmt.Errorf("because hosts beat too often, there were %d reads and %d writes", got.Reads, got.Writes)
	}
	volumes, makeErr := b.make(ctx, "hasty", 1)
	if makeErr != nil {
		return errors.Join(err, makeErr)
	}
	asked := time.Now()
	attachErr := b.attachAll(ctx, volumes)
	b.record.took(millis(name+".attached"), time.Since(asked), attachErr)
	return errors.Join(err, b.unharmed(begin, nil))
}

// cutWatches cuts all connections of the programs again and again: what was asked for
// meanwhile is done, and nothing is written for it.
func (b *bench) cutWatches(ctx context.Context) error {
	const name = "disturbed.cut"
	volumes, err := b.make(ctx, "cut", cuts)
	if err != nil {
		return err
	}
	marks, err := b.mark()
	if err != nil {
		return err
	}
	begin := time.Now()
	for _, v := range volumes {
		n := 0
		for _, l := range b.links {
			n += l.Cut()
		}
		asked := time.Now()
		if err := b.attachAll(ctx, []world.Made{v}); err != nil {
			return err
		}
		took := time.Since(asked)
		b.record.took(millis(name+".attached"), took, nil)
		b.say("  %d connections were cut; a volume was attached %s later", n, took.Round(time.Millisecond))
		if err := sleep(ctx, cutEvery-took); err != nil {
			return err
		}
	}
	return errors.Join(b.cost(ctx, name, marks), b.unharmed(begin, nil))
}

// slowServers makes both API servers slow, while a host dies and volumes are attached.
func (b *bench) slowServers(ctx context.Context) error {
	return b.whileDisturbed(ctx, "disturbed.slow", b.o.hosts-1, func(context.Context) error { b.delay(slowness); return nil }, func(context.Context) error { b.delay(0); return nil })
}

func (b *bench) delay(d time.Duration) {
	for _, l := range b.links {
		l.Delay(d)
	}
}

// refusingServers makes both API servers refuse most requests with 429, while a host
// dies and volumes are attached.
func (b *bench) refusingServers(ctx context.Context) error {
	return b.whileDisturbed(ctx, "disturbed.refused", b.o.hosts-2, b.world.Squeeze, b.world.Loosen)
}

// whileDisturbed attaches volumes and lets a host die at the same moment, in a world
// that is disturbed: the fences come first.
func (b *bench) whileDisturbed(ctx context.Context, name string, victim int, disturb, relieve func(context.Context) error) error {
	volumes, err := b.make(ctx, name[len("disturbed."):], meanwhile)
	if err != nil {
		return err
	}
	marks, err := b.mark()
	if err != nil {
		return err
	}
	if err := disturb(ctx); err != nil {
		return errors.Join(err, relieve(ctx))
	}
	begin, attached := time.Now(), make(chan error, 1)
	var last time.Time
	go func() { err := b.attachAll(ctx, volumes); last = time.Now(); attached <- err }()
	b.fleet.Kill(victim)
	freed, freeErr := b.history.last(ctx, b.history.free, b.volumesOf(victim), b.patience())
	attachErr := <-attached
	if err := errors.Join(freeErr, attachErr, relieve(ctx)); err != nil {
		return err
	}
	b.record.took(millis(name+".freed"), freed.Sub(begin), nil)
	b.record.took(millis(name+".attached"), last.Sub(begin), nil)
	b.say("  claims of the dead host free after %s, %d volumes attached after %s", freed.Sub(begin).Round(time.Millisecond), meanwhile, last.Sub(begin).Round(time.Millisecond))
	if freed.After(last) {
		err = fmt.Errorf("the claims of a dead host were freed %s after the last of %d volumes that users asked for", freed.Sub(last).Round(time.Millisecond), meanwhile)
	}
	return errors.Join(err, b.cost(ctx, name, marks), b.unharmed(begin, b.volumesOf(victim)))
}

// allReturn lets all hosts and DPUs fall silent for longer than any timeout, and then
// beat again, all in the same moment: nothing is fenced.
func (b *bench) allReturn(ctx context.Context) error {
	const name = "disturbed.return"
	marks, err := b.mark()
	if err != nil {
		return err
	}
	begin := time.Now()
	b.beats("disturbed.beats")
	b.fleet.Silence(0, b.o.hosts)
	err = sleep(ctx, time.Duration(2*b.o.slow*float64(nodehealth.DefaultTimeout)))
	b.fleet.Return(ctx)
	b.fleet.Beats() // those that were not due do not count
	if err != nil {
		return err
	}
	back := time.Now()
	last, ended, err := b.settleAll(ctx)
	if err != nil {
		return err
	}
	b.record.took(millis(name), last.Sub(back), nil)
	b.record.add(count(name+".programs_ended"), float64(ended))
	return errors.Join(b.cost(ctx, name, marks), b.unharmed(begin, nil))
}
