// Command mutation switches the safety checks of the product off, one at a
// time, and reports which tests catch it. A mutation that nothing catches is a
// check that no test watches. With --bed it runs those that the proof from
// outside has to see on the test bed too, and needs root. With --generate it
// makes mutants of all code of a package, which the package's own tests have to
// catch. The same tests run first with nothing switched off, and have to pass.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/moor-storage/moor/test/devcluster"
)

// options say which mutations are tried, and how.
type options struct {
	// bed: those that name an end-to-end test, on test beds of their own.
	bed bool
	// only those whose names match.
	only string
	// shard is "I/N" for the Ith of N parts of these; all if empty.
	shard string
	// generate are packages, with commas between them.
	generate string
}

func main() {
	var o options
	flag.BoolVar(&o.bed, "bed", false, "run those that name an end-to-end test, on test beds of their own, in place of the others")
	flag.StringVar(&o.only, "only", "", "run those whose names match this regular expression")
	flag.StringVar(&o.shard, "shard", "", "run the first of three parts of them if it is 1/3, and so on")
	flag.StringVar(&o.generate, "generate", "", "make mutants of all code of these packages, such as pkg/writer, with commas between them, in place of the others")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		stop()
		os.Exit(1)
	}
}

// run tries the mutations that are chosen. It is an error if one escaped.
func run(ctx context.Context, o options) error {
	root, err := devcluster.FindRoot()
	if err != nil {
		return err
	}
	made, packages := all(), []string(nil)
	if o.generate != "" {
		packages = strings.Split(o.generate, ",")
		if made, err = generate(root, packages); err != nil {
			return err
		}
	}
	chosen, err := o.choose(made)
	if err != nil {
		return err
	}
	results, err := o.tryAll(ctx, root, chosen)
	if err != nil {
		return err
	}
	if o.generate == "" {
		return escaped(results)
	}
	s := sumUp(results, survivors)
	fmt.Println(s)
	return errors.Join(s.err(o.only == "" && o.shard == ""), listed(packages, made, survivors))
}

func (o options) choose(made []mutation) ([]mutation, error) {
	names, err := regexp.Compile(o.only)
	if err != nil {
		return nil, fmt.Errorf("read --only: %w", err)
	}
	if o.bed && o.generate != "" {
		return nil, errors.New("--bed is about mutations that name an end-to-end test: --generate makes none")
	}
	var chosen []mutation
	for _, m := range made {
		if names.MatchString(m.name) && (!o.bed || m.focus != "") {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no mutation has a name that matches %q", o.only)
	}
	return o.part(chosen)
}

// part is the part of what is chosen that --shard names: each is in one of them.
func (o options) part(chosen []mutation) ([]mutation, error) {
	if o.shard == "" {
		return chosen, nil
	}
	var i, n int
	if _, err := fmt.Sscanf(o.shard, "%d/%d", &i, &n); err != nil || i < 1 || i > n || n > len(chosen) || o.shard != fmt.Sprintf("%d/%d", i, n) {
		return nil, fmt.Errorf("read --shard %q: want I/N, from 1/N to N/N, of %d mutations at most", o.shard, len(chosen))
	}
	return chosen[len(chosen)*(i-1)/n : len(chosen)*i/n], nil
}

// outcome is how it went with a mutation: what caught it, if anything, or why it was
// not tried.
type outcome struct {
	mutation
	by  string
	err error
}

// tryAll prints a line for each mutation. One that cannot be tried does not keep the
// others from being tried.
func (o options) tryAll(ctx context.Context, root string, chosen []mutation) ([]outcome, error) {
	try, control := inTests, controlTests
	switch {
	case o.bed:
		try, control = inBed, controlBed
	case o.generate != "":
		t, err := newTogether()
		if err != nil {
			return nil, err
		}
		defer t.remove()
		try, control = t.try, t.control
	}
	fmt.Printf("%-75s %5s  %s\n", "SWITCHED OFF", "TIME", "CAUGHT BY")
	begin := time.Now()
	if err := control(ctx, root, chosen); err != nil {
		return nil, fmt.Errorf("nothing is switched off, and yet: %w", err)
	}
	fmt.Printf("%-75s %4ds  %s\n", "nothing", int(time.Since(begin).Seconds()), "nothing, as it has to be")
	var out []outcome
	for _, m := range chosen {
		begin := time.Now()
		by, err := try(ctx, root, m)
		if ctx.Err() != nil {
			return nil, err
		}
		result := outcome{m, by, err}
		fmt.Printf("%-75s %4ds  %s\n", m.name, int(time.Since(begin).Seconds()), result.words())
		out = append(out, result)
	}
	return out, nil
}

func (o outcome) words() string {
	switch {
	case o.at > 0 && errors.Is(o.err, errStillborn):
		return "stillborn: it does not compile"
	case o.err != nil:
		return "NOT TRIED"
	case o.by == "" && reason(o.mutation, survivors) != "":
		return "nothing, as is known"
	case o.by == "":
		return "NOTHING"
	}
	return o.by
}

// escaped says how many mutations nothing has caught, and which could not be tried.
func escaped(results []outcome) error {
	var errs []error
	n := 0
	for _, o := range results {
		if o.err != nil {
			errs = append(errs, o.err)
		} else if o.by == "" {
			n++
		}
	}
	if n > 0 {
		errs = append(errs, fmt.Errorf("%d mutations were caught by nothing", n))
	}
	return errors.Join(errs...)
}
