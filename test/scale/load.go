package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/moor-storage/moor/test/api/apiserver"
	"github.com/moor-storage/moor/test/bench/audit"
	"github.com/moor-storage/moor/test/scale/fleet"
	"github.com/moor-storage/moor/test/scale/program"
	"github.com/moor-storage/moor/test/scale/world"
)

// load has the real programs bring one host to rest, ends them, and copies it.
func (b *bench) load(ctx context.Context) error {
	b.say("the real programs bring one host with %d volumes to rest", b.o.volumes)
	if err := b.world.MakeHost(ctx, 0); err != nil {
		return err
	}
	b.fleet.Start(ctx, 0, 1, b.fleet.Period())
	for _, p := range b.programs {
		if err := p.Start(ctx, b.o.bin, b.work); err != nil {
			return err
		}
	}
	if err := b.world.AwaitHost(ctx, fleet.NamesOf(0).Host); err != nil {
		return err
	}
	var pods errgroup.Group
	for n := range b.o.volumes {
		pods.Go(func() error { return b.user.Run(ctx, world.Volume(0, n), fleet.NamesOf(0).Host) })
	}
	if err := pods.Wait(); err != nil {
		return err
	}
	if err := b.rest(ctx, 5*time.Second, time.Minute); err != nil {
		return err
	}
	for _, p := range b.programs {
		p.Stop()
	}
	if b.o.times > 1 {
		b.say("making each object %d times as large", b.o.times)
		if err := b.world.Enlarge(ctx, b.o.times); err != nil {
			return err
		}
	}
	begin := time.Now()
	objects, err := b.world.Copy(ctx, b.o.hosts, b.o.volumes)
	if err != nil {
		return err
	}
	b.say("made %d hosts of it in %s, each of %d objects in the host cluster and %d in the DPU cluster",
		b.o.hosts, time.Since(begin).Round(time.Second), objects[apiserver.Host], objects[apiserver.DPU])
	// What the API servers have still to take in is not measured with what comes next.
	if err := b.world.AwaitCopy(ctx, b.o.hosts-1, b.o.volumes-1); err != nil {
		return err
	}
	b.say("the API servers have it after %s", time.Since(begin).Round(time.Second))
	within, regular := beginWithin*b.fleet.Period(), regularAfter*b.fleet.Period()
	if b.o.early {
		within, regular = b.fleet.Period(), time.Second
	}
	b.fleet.Start(ctx, 0, b.o.hosts, within)
	b.say("the hosts begin to beat")
	return sleep(ctx, within+regular)
}

// beginWithin is how many periods it takes until all hosts beat: the first of each host and each
// DPU is some four requests, and a kubelet's two.
const beginWithin = 3

// regularAfter is after how many more periods beats are regular: with the first each host and
// each DPU makes its Lease and writes its whole state, which it does with each sixth beat
// from then on (pkg/node/heartbeat).
const regularAfter = 7

// rest waits until nothing was written for a while but beats.
func (b *bench) rest(ctx context.Context, quiet, timeout time.Duration) error {
	for begin := time.Now(); ; {
		marks, err := b.mark()
		if err != nil {
			return err
		}
		if err := sleep(ctx, quiet); err != nil {
			return err
		}
		got, err := b.since(marks, "")
		if err != nil {
			return err
		}
		if got.Writes == 0 {
			return nil
		}
		if time.Since(begin) > timeout {
			return fmt.Errorf("wait until nothing is written: not after %s: in the last %s there were %s", timeout, quiet, got)
		}
	}
}

// mark is the ends of the audit logs now.
func (b *bench) mark() ([]audit.Mark, error) {
	var out []audit.Mark
	for _, cluster := range []string{apiserver.Host, apiserver.DPU} {
		m, err := audit.MarkEnd(b.world.AuditLog(cluster))
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// since counts what an account, or all of Moor's, asked both API servers for since
// then.
func (b *bench) since(marks []audit.Mark, account string) (program.Requests, error) {
	var all []audit.Event
	for _, m := range marks {
		events, err := m.All()
		if err != nil {
			return program.Requests{}, err
		}
		all = append(all, events...)
	}
	return program.Count(all, account), nil
}

// sleep lets time pass.
func sleep(ctx context.Context, d time.Duration) error {
	if !fleet.Pause(ctx, d) {
		return context.Cause(ctx)
	}
	return nil
}
