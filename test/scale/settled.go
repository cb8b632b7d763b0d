package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/moor-storage/moor/test/bench/audit"
	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/devcluster/procs"
	"github.com/moor-storage/moor/test/scale/program"
)

const (
	// startTimeout is how long a program may take to settle, at least; more hosts
	// may take longer: those of 5,000 took more than 7 minutes where API servers hold no
	// object in memory.
	startTimeout = 2 * time.Minute
	startPerHost = 150 * time.Millisecond
	// starts is how often a program is started that ends by itself.
	starts = 3
)

// few is how many objects may wait in the queues of a program that has settled:
// those that beats put there.
func (b *bench) few() float64 { return 2 + float64(b.o.hosts)/100 }

func (b *bench) startTimeout() time.Duration {
	return startTimeout + time.Duration(b.o.hosts)*startPerHost
}

// startAll starts the programs one after the other, and measures until each has
// settled, and what it asked for until then.
func (b *bench) startAll(ctx context.Context) error {
	for _, p := range b.programs {
		if err := b.start(ctx, p, "start."+p.Name); err != nil {
			return err
		}
	}
	return nil
}

// start starts one program. One that does not settle is a failed run, and so is one
// that ends by itself, which is then started again, as a kubelet does.
func (b *bench) start(ctx context.Context, p *program.Program, name string) error {
	marks, err := b.mark()
	if err != nil {
		return err
	}
	if err := p.Start(ctx, b.o.bin, b.work); err != nil {
		return err
	}
	at, err := p.Settled(ctx, b.few(), b.startTimeout())
	for again := 1; p.Running() != nil && again < starts && ctx.Err() == nil; again++ {
		b.say("  %v", err)
		b.record.fail(millis(name), err)
		if err := p.Start(ctx, b.o.bin, b.work); err != nil {
			return err
		}
		at, err = p.Settled(ctx, b.few(), b.startTimeout())
	}
	took := at.Sub(p.Began())
	b.record.took(millis(name), took, err)
	how := "settled after " + took.Round(10*time.Millisecond).String()
	if err != nil {
		how = err.Error()
	}
	if running := p.Running(); running != nil || ctx.Err() != nil {
		return errors.Join(running, context.Cause(ctx))
	}
	got, err := b.asked(ctx, name, marks, p.Account)
	if err != nil {
		return err
	}
	b.say("%s: %s, %d reads, %d writes: %s", p.Name, how, got.Reads, got.Writes, got)
	return nil
}

// asked records what an account, or all of Moor's, asked for since the marks, as
// reads and writes of what has the name.
func (b *bench) asked(ctx context.Context, name string, marks []audit.Mark, account string) (program.Requests, error) {
	// The audit log is written a moment after the answer.
	if err := sleep(ctx, time.Second); err != nil {
		return program.Requests{}, err
	}
	got, err := b.since(marks, account)
	if err != nil {
		return got, err
	}
	b.record.add(count(name+".reads"), float64(got.Reads))
	b.record.add(count(name+".writes"), float64(got.Writes))
	return got, nil
}

// look is what there was to see of the programs at one moment.
type look struct {
	at   time.Time
	used map[string]usage
	// passes are reconciles by program and controller.
	passes map[string]float64
}

// usage is what a process has used: processor time so far, and memory now in MB.
type usage struct {
	cpu time.Duration
	rss float64
}

func usageOf(pid int) (usage, error) {
	stat, err := procs.ReadStat(pid)
	if err != nil {
		return usage{}, err
	}
	rss, err := procs.Resident(pid)
	return usage{cpu: stat.CPU, rss: rss}, err
}

// settled watches the world at rest.
func (b *bench) settled(ctx context.Context) error {
	// What a start leaves behind is over when an observer could have heard all for
	// the longest timeout of the health of nodes.
	if err := sleep(ctx, 3*b.fleet.Period()); err != nil {
		return err
	}
	if _, _, err := b.settleAll(ctx); err != nil {
		return err
	}
	marks, err := b.mark()
	if err != nil {
		return err
	}
	before, err := b.look(ctx)
	if err != nil {
		return err
	}
	b.fleet.Beats()
	b.say("watching the world at rest for %s", b.o.lasting)
	if err := sleep(ctx, b.o.lasting); err != nil {
		return err
	}
	b.beats("settled.beats")
	for _, p := range b.programs {
		if err := p.Running(); err != nil {
			return err
		}
	}
	after, err := b.look(ctx)
	if err != nil {
		return err
	}
	got, err := b.since(marks, "")
	if err != nil {
		return err
	}
	took := after.at.Sub(before.at)
	beats, passes := float64(got.Beats)/took.Seconds(), b.passes(before, after)
	b.record.add(count("settled.reads"), float64(got.Reads))
	b.record.add(count("settled.writes"), float64(got.Writes))
	b.record.add(result{"settled.copied_beats", results.PerSecond, results.Worst}, beats)
	b.record.add(result{"settled.passes", results.PerSecond, results.Worst}, passes)
	b.say("at rest: %d reads, %d writes; each second %.1f copies of beats and leases, and %.1f passes", got.Reads, got.Writes, beats, passes)
	b.used(before.used, after.used, took)
	return got.Print(os.Stdout)
}

// look looks at all programs, and at the API servers.
func (b *bench) look(ctx context.Context) (look, error) {
	pids, err := b.world.Processes()
	if err != nil {
		return look{}, err
	}
	out := look{at: time.Now(), used: map[string]usage{}, passes: map[string]float64{}}
	for _, p := range b.programs {
		pids[p.Name] = p.PID()
		load, err := p.Load(ctx)
		if err != nil {
			return look{}, err
		}
		for controller, n := range load.By {
			out.passes[p.Name+", "+controller] = n
		}
	}
	for name, pid := range pids {
		if out.used[name], err = usageOf(pid); err != nil {
			return look{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

// passes is how often all programs together reconciled anything, a second, between
// two looks. It says which controllers did.
func (b *bench) passes(before, after look) (all float64) {
	took := after.at.Sub(before.at).Seconds()
	for _, name := range slices.Sorted(maps.Keys(after.passes)) {
		if more := after.passes[name] - before.passes[name]; more > 0 {
			all += more / took
			b.say("  %.1f passes a second of %s", more/took, name)
		}
	}
	return all
}

// used records what the processes used meanwhile, in parts of one core, and how large
// they are.
func (b *bench) used(before, after map[string]usage, took time.Duration) {
	servers := 0.0
	for _, name := range slices.Sorted(maps.Keys(after)) {
		share := 100 * float64(after[name].cpu-before[name].cpu) / float64(took)
		if strings.HasPrefix(name, "kube-apiserver-") {
			servers += share
		}
		b.record.add(result{"cpu." + name, results.Share, results.Worst}, share)
		b.record.add(result{"rss." + name, results.Megabytes, results.Worst}, after[name].rss)
	}
	b.record.add(result{"cpu.apiservers", results.Share, results.Worst}, servers)
}

// beats judges whether the machine carried the beats since they were counted last.
func (b *bench) beats(name string) {
	got := b.fleet.Beats()
	of := result{name, results.Share, results.Least}
	if !got.Carried() {
		b.record.fail(of, fmt.Errorf("only %.0f of %.0f beats were answered: this machine does not carry %d hosts at this rate: slow all clocks (--slow=%g)",
			got.Answered, got.Due, b.o.hosts, 2*b.o.slow))
		return
	}
	b.record.add(of, 100*got.Answered/got.Due)
}
