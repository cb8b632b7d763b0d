// Command scale measures Moor with many hosts on one machine: two API servers, hosts
// and DPUs that are simulated by light clients, ten settled volumes on each host, and
// the real programs. docs/benchmarks.md says what is measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/kit"
	"github.com/moor-storage/moor/test/scale/world"
)

// options are the flags.
type options struct {
	hosts, volumes int
	lasting        time.Duration
	slow           float64
	budget         int
	// times is how large objects are, compared with what the programs make.
	times  int
	bin    string
	work   string
	output results.Output
	// disturbed measures disturbances alone.
	disturbed bool
	// early starts the programs when each host has beaten once: for what is counted, and
	// not timed.
	early bool
	// only the operations whose names match are measured, rest as "settled"; nil: all.
	only *regexp.Regexp
	// elect has the programs elect leaders, as deploy/ does.
	elect bool
	// watchCaches have the API servers hold each object in memory, as they do by default.
	watchCaches bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	o := options{elect: true}
	f := flag.NewFlagSet("scale", flag.ContinueOnError)
	f.IntVar(&o.hosts, "size", 200, "simulated hosts, each with a DPU")
	f.IntVar(&o.volumes, "volumes", 10, "volumes that are attached to each host")
	f.DurationVar(&o.lasting, "for", 10*time.Minute, "how long the settled world is watched")
	f.Float64Var(&o.slow, "slow", 1, "slow all clocks by this factor: the periods of the beats, the timeouts that go with them, and the leases of leaders")
	f.IntVar(&o.budget, "failover-budget", 1000, "hosts that may begin to fail over within a minute, also of one zone: as of snap-host-controller")
	f.IntVar(&o.times, "times", 1, "how many times as large as usual each object is, by an annotation")
	f.StringVar(&o.bin, "bin", "bin", "directory of Moor's programs")
	f.StringVar(&o.work, "work", "", "directory of logs and kubeconfigs, which is left there; empty: one that is removed")
	o.output.Bind(f)
	f.Func("only", "measure start, and rest (settled) and those operations alone whose names match this regular expression", func(v string) (err error) {
		o.only, err = regexp.Compile(v)
		return err
	})
	f.BoolVar(&o.watchCaches, "watch-caches", true, "have the API servers hold each object in memory; false: where the machine has too little, lists and watches are served by etcd")
	f.BoolVar(&o.disturbed, "disturbed", false, "measure what happens while API servers and hosts misbehave, and nothing else")
	if err := f.Parse(args); err != nil {
		return o, fmt.Errorf("read the flags: %w", err)
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("read the flags: %q is none", f.Arg(0))
	case o.hosts < least || o.hosts > most:
		return o, fmt.Errorf("read the flags: --size %d has to be from %d to %d", o.hosts, least, most)
	case o.volumes < 1 || o.volumes > 10:
		return o, fmt.Errorf("read the flags: --volumes %d has to be from 1 to 10", o.volumes)
	case o.times < 1 || o.times > world.MostTimes:
		return o, fmt.Errorf("read the flags: --times %d has to be from 1 to %d", o.times, world.MostTimes)
	case o.slow < leastSlow || o.lasting <= 0:
		return o, fmt.Errorf("read the flags: --slow is at least %g, and --for more than nothing", leastSlow)
	}
	return o, nil
}

// The sizes: names have five digits, and the operations need some hosts each.
const (
	least = 10
	most  = 99_999
	// leastSlow keeps the timeout of silence above the least that is allowed
	// (pkg/nodehealth/listener).
	leastSlow = 0.4
)

// run measures, prints and writes. What could be measured is printed and written
// also when something else could not, or is not good.
func run(ctx context.Context, o options) error {
	root, err := devcluster.FindRoot()
	if err != nil {
		return err
	}
	o.output = o.output.In(root)
	o.output.Name += "-scale"
	known, err := results.LoadKnownMisses(o.output.KnownMisses)
	if err != nil {
		return err
	}
	source := devcluster.ReadSource(ctx, root)
	r := newRecord(o.prefix(), results.Invocation{Commit: source.Commit, Dirty: source.Dirty, Machine: results.DescribeMachine(), Settings: o.settings()})
	err = measure(ctx, o, r)
	return errors.Join(err, o.output.Publish(os.Stdout, r.file, known), o.growth())
}

// election are the flags of programs that elect leaders, with leases that are as slow as
// all other clocks, in whole seconds; none if they do not.
func (o options) election() []string {
	if !o.elect {
		return nil
	}
	var usual kube.Election
	usual.Bind(pflag.NewFlagSet("", pflag.ContinueOnError), "")
	slow := func(d time.Duration) string {
		return time.Duration(math.Ceil(d.Seconds()*max(o.slow, 1)) * 1e9).String()
	}
	return []string{
		"--leader-elect", "--leader-election-namespace=" + kit.Namespace, "--leader-election-lease-duration=" + slow(usual.LeaseDuration),
		"--leader-election-renew-deadline=" + slow(usual.RenewDeadline), "--leader-election-retry-period=" + slow(usual.RetryPeriod),
	}
}

// settled is the name of rest where operations are chosen.
const settled = "settled"

// measures says whether an operation is chosen.
func (o options) measures(name string) bool { return o.only == nil || o.only.MatchString(name) }

// prefix begins the names of all results. Those of enlarged objects have names of
// their own, as the targets are for others.
func (o options) prefix() string {
	if o.times > 1 {
		return fmt.Sprintf("scale.%d.times%d.", o.hosts, o.times)
	}
	return fmt.Sprintf("scale.%d.", o.hosts)
}

// settings are what the results depend on.
func (o options) settings() map[string]string {
	out := map[string]string{
		"hosts": strconv.Itoa(o.hosts), "volumes": strconv.Itoa(o.volumes), "slow": strconv.FormatFloat(o.slow, 'g', -1, 64),
		"failover-budget": strconv.Itoa(o.budget), "for": o.lasting.String(), "etcd": "without fsync",
	}
	if o.times > 1 {
		out["times"] = strconv.Itoa(o.times)
	}
	if o.disturbed {
		out["disturbed"] = "yes"
	}
	if !o.watchCaches {
		out["API servers"] = "without watch caches, etcd not compacted, " + world.Garbage
	}
	return out
}

// growth prints how what was measured grows with the hosts, of all files of results.
func (o options) growth() error {
	files, err := results.Files(o.output.Dir)
	if err != nil {
		return err
	}
	all, err := results.LoadAll(files)
	if err != nil {
		return err
	}
	return results.PrintGrowth(os.Stdout, all.Growth())
}
