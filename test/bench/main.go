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
	"time"

	"github.com/moor-storage/moor/test/devcluster"
)

// options are the flags.
type options struct {
	only    []string
	runs    int
	volumes int
	out     string
	name    string
	// render are files of results to be written into docs/benchmarks.md.
	render []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	switch {
	case err != nil:
	case len(o.render) > 0:
		err = render(filepath.Join("docs", "benchmarks.md"), o.render)
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
	f.StringVar(&o.out, "out", "", "directory of the results; empty is bench/results of the checkout")
	f.StringVar(&o.name, "name", defaultName(), "name of the machine in the name of the file")
	render := f.String("render", "", "measure nothing: write the table of these files of results, the oldest first, with commas between them, into docs/benchmarks.md")
	if err := f.Parse(args); err != nil {
		return o, fmt.Errorf("read the flags: %w", err)
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("read the flags: %q is none", f.Arg(0))
	}
	if o.runs < 0 || o.volumes < 1 {
		return o, fmt.Errorf("read the flags: --runs %d must not be negative, --volumes %d must be at least 1", o.runs, o.volumes)
	}
	if *render != "" {
		o.render = strings.Split(*render, ",")
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

// prepare takes over the bed, if anything is wanted that needs it.
func prepare(ctx context.Context, o options) (*bench, error) {
	if o.matches(onBed()...) {
		bed, err := devcluster.Load()
		if err != nil {
			return nil, err
		}
		return newBench(ctx, bed, o)
	}
	root, err := git(ctx, ".", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, fmt.Errorf("find the checkout (run this in it): %w", err)
	}
	return &bench{root: root, options: o, machine: describeMachine()}, nil
}

// run measures, prints and writes. What could be measured is printed and
// written also when something else could not.
func run(ctx context.Context, o options) error {
	b, err := prepare(ctx, o)
	if err != nil {
		return err
	}
	defer b.close()
	o.out = cmp.Or(o.out, filepath.Join(b.root, "bench", "results"))
	err = b.measure(ctx)
	results := b.finished(ctx)
	err = errors.Join(err, b.print(results))
	if len(results) == 0 {
		return err
	}
	path, saveErr := save(o.out, o.name, time.Now(), results)
	if saveErr == nil {
		fmt.Println("\nwritten to", path)
	}
	return errors.Join(err, saveErr)
}
