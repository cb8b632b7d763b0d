package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/moor-storage/moor/test/bench/results"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
)

// options are the flags.
type options struct {
	only    []string
	runs    int
	volumes int
	output  results.Output
	// render writes all results into docs/benchmarks.md, stale tells how old they
	// are; both measure nothing.
	render, stale bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	switch {
	case err != nil:
	case o.render:
		err = render(ctx, o)
	case o.stale:
		err = stale(ctx, o)
	default:
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := f.String("only", "", "names of results to measure, separated by commas; the beginning of a name is enough")
	f.IntVar(&o.runs, "runs", 0, "runs of each measurement without its warm-up; 0 is each one's own number")
	f.IntVar(&o.volumes, "volumes", 1000, "volumes that are present when the memory of the processes is measured")
	o.output.Bind(f)
	f.BoolVar(&o.render, "render", false, "measure nothing: write the table of all files of results into docs/benchmarks.md")
	f.BoolVar(&o.stale, "stale", false, "measure nothing: say of each result how many commits have changed what it measures since")
	if err := f.Parse(args); err != nil {
		return o, fmt.Errorf("read the flags: %w", err)
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("read the flags: %q is none", f.Arg(0))
	}
	if o.runs < 0 || o.volumes < 1 {
		return o, fmt.Errorf("read the flags: --runs %d must not be negative, --volumes %d must be at least 1", o.runs, o.volumes)
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, name := range o.only {
		if !(options{only: []string{name}}).matches(suites()...) {
			return o, fmt.Errorf("read the flags: --only %q is the beginning of no result's name; there are %s", name, strings.Join(allNames(), ", "))
		}
	}
	return o, nil
}

// matches reports whether one of the names is wanted from one of the suites.
func (o options) matches(of ...suite) bool {
	for _, s := range of {
		for _, name := range s.names {
			if o.wants(name) {
				return true
			}
		}
	}
	return false
}

// wants reports whether a result is to be measured and shown.
func (o options) wants(name string) bool {
	for _, only := range o.only {
		if strings.HasPrefix(name, only) || strings.HasSuffix(name, ".") && strings.HasPrefix(only, name) {
			return true
		}
	}
	return len(o.only) == 0
}

// times is how often to measure: what the flag says, or def.
func (o options) times(def int) int { return cmp.Or(o.runs, def) }

// places are where the checkout is and where results and known misses are.
func (o options) places(ctx context.Context) (root string, _ options, err error) {
	root, err = devcluster.Git(ctx, ".", "rev-parse", "--show-toplevel")
	if err != nil {
		return "", o, fmt.Errorf("find the checkout (run this in it): %w", err)
	}
	o.output = o.output.In(root)
	return root, o, nil
}

// render writes the page anew.
func render(ctx context.Context, o options) error {
	root, o, err := o.places(ctx)
	if err != nil {
		return err
	}
	known, err := results.LoadKnownMisses(o.output.KnownMisses)
	if err != nil {
		return err
	}
	files, err := results.Files(o.output.Dir)
	if err != nil {
		return err
	}
	return results.Render(filepath.Join(root, "docs", "benchmarks.md"), files, known)
}

// stale tells how old the results are.
func stale(ctx context.Context, o options) error {
	root, o, err := o.places(ctx)
	if err != nil {
		return err
	}
	files, err := results.Files(o.output.Dir)
	if err != nil {
		return err
	}
	all, err := results.LoadAll(files)
	if err != nil {
		return err
	}
	for _, s := range all.Summaries() {
		for _, commit := range s.Commits {
			clean, _, _ := strings.Cut(commit, "-")
			args := append([]string{"rev-list", "--count", clean + "..HEAD", "--"}, measures(s.Name)...)
			n, err := devcluster.Git(ctx, root, args...)
			if err != nil {
				n = "an unknown number of"
			}
			fmt.Printf("%s, of %s: %s commits have changed what it measures since\n", s.Name, commit, n)
		}
	}
	return nil
}

// prepare takes over the bed, if anything is wanted that needs it, and says what
// is measured.
func prepare(ctx context.Context, o options, root string) (*bench, results.Invocation, error) {
	source := devcluster.ReadSource(ctx, root)
	of := results.Invocation{Commit: source.Commit, Dirty: source.Dirty, Machine: results.DescribeMachine()}
	if !o.matches(onBed()...) {
		return &bench{root: root, options: o, invocation: results.NewInvocation()}, of, nil
	}
	bed, err := devcluster.Load()
	if err != nil {
		return nil, of, err
	}
	built := bed.Source()
	if built.Commit != source.Commit {
		return nil, of, fmt.Errorf("the programs of the bed were built from commit %s and the checkout is at %s: bring the bed up again", built.Commit, source.Commit)
	}
	of.Dirty = of.Dirty || built.Dirty
	of.Settings = settings(bed.Options())
	if of.FsyncMillis, err = fsyncMillis(layout.DataDir); err != nil {
		return nil, of, err
	}
	b, err := newBench(ctx, bed, o)
	if err != nil {
		return nil, of, err
	}
	if !o.matches(b.fitting()...) && !o.matches(inProcess()...) {
		b.close()
		return nil, of, errors.New("nothing of what is wanted can be measured on this bed: " + recordedName + " is for beds that record beneath their target (moor-dev up --record-below), " +
			"epochs.* for those whose storage knows epochs (--epochs), failover.snap_killed_with_state for those whose functions outlive SNAP (--keep-functions), all else for others")
	}
	return b, of, nil
}

// run measures, prints and writes. What could be measured is printed and
// written also when something else could not, or is not good.
func run(ctx context.Context, o options) error {
	root, o, err := o.places(ctx)
	if err != nil {
		return err
	}
	known, err := results.LoadKnownMisses(o.output.KnownMisses)
	if err != nil {
		return err
	}
	b, of, err := prepare(ctx, o, root)
	if err != nil {
		return err
	}
	defer b.close()
	err = b.measure(ctx)
	return errors.Join(err, b.printWrites(), o.output.Publish(os.Stdout, b.file(of), known))
}
