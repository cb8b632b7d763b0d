package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/scale/program"
)

// duringOutage is how many volumes are attached while an API server is away.
const duringOutage = 10

// leader is the program that leads, the last that was started.
func (b *bench) leader() *program.Program { return b.programs[len(b.programs)-1] }

// restart restarts the program that leads.
func (b *bench) restart(ctx context.Context) error {
	b.leader().Stop()
	return b.start(ctx, b.leader(), "restart")
}

// leaderDies starts a second replica of the program that leads, and kills the first.
func (b *bench) leaderDies(ctx context.Context) error {
	old := b.leader()
	fresh := old.Another()
	if err := fresh.Start(ctx, b.o.bin, b.work); err != nil {
		return err
	}
	b.programs = append(b.programs, fresh)
	if err := kit.Until(ctx, "the second replica is ready", func(ctx context.Context) (bool, error) { return fresh.Ready(ctx), fresh.Running() }); err != nil {
		return err
	}
	// What its start leaves behind is not measured.
	if err := b.rest(ctx, 2*time.Second, patience); err != nil {
		return err
	}
	marks, err := b.mark()
	if err != nil {
		return err
	}
	begin := time.Now()
	old.Kill()
	b.programs = append(b.programs[:len(b.programs)-2], fresh)
	at, err := fresh.Settled(ctx, b.few(), b.startTimeout())
	if err != nil {
		return err
	}
	b.record.took(millis("leader"), at.Sub(begin), nil)
	return errors.Join(b.cost(ctx, "leader", marks), b.unharmed(begin, nil))
}

// serverDies kills the API server of a cluster, and starts it again, while volumes
// are attached.
func (b *bench) serverDies(cluster string) func(context.Context) error {
	name := "server." + cluster
	return func(ctx context.Context) error {
		volumes, err := b.make(ctx, "server-"+cluster, duringOutage)
		if err != nil {
			return err
		}
		marks, err := b.mark()
		if err != nil {
			return err
		}
		begin, attached := time.Now(), make(chan error, 1)
		go func() { attached <- b.attachAll(ctx, volumes) }()
		if err := b.world.RestartAPIServer(ctx, cluster); err != nil {
			return errors.Join(err, <-attached)
		}
		b.record.took(millis(name+".ready"), time.Since(begin), nil)
		last, ended, settleErr := b.settleAll(ctx)
		if err := errors.Join(<-attached, settleErr); err != nil {
			return fmt.Errorf("after the API server of the %s cluster was restarted: %w", cluster, err)
		}
		b.record.took(millis(name+".attached"), time.Since(begin), nil)
		b.record.took(millis(name), last.Sub(begin), nil)
		// One that lost its lease may end some seconds later.
		_, late, err := b.settleAll(ctx)
		if err != nil {
			return err
		}
		b.record.add(count(name+".programs_ended"), float64(ended+late))
		return errors.Join(b.cost(ctx, name, marks), b.unharmed(begin, nil))
	}
}

// settleAll waits until all programs have settled, and returns when the last had, and
// how many ended meanwhile: these are started again, as a kubelet does.
func (b *bench) settleAll(ctx context.Context) (last time.Time, ended int, _ error) {
	for _, p := range b.programs {
		for {
			at, err := p.Settled(ctx, b.few(), b.startTimeout())
			if err == nil {
				if at.After(last) {
					last = at
				}
				break
			}
			if p.Running() == nil || ctx.Err() != nil {
				return last, ended, err
			}
			b.say("  %v", err)
			if ended++; ended > starts*len(b.programs) {
				return last, ended, err
			}
			if err := p.Start(ctx, b.o.bin, b.work); err != nil {
				return last, ended, err
			}
		}
	}
	return last, ended, nil
}
