// Command mutation switches the safety checks of the product off, one at a
// time, and reports which tests catch it. A mutation that nothing catches is a
// check that no test watches. With --bed it runs those that the proof from
// outside has to see on the test bed too, and needs root. The same tests run
// first with nothing switched off, and have to pass.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/moor-storage/moor/test/devcluster"
)

func main() {
	onBed := flag.Bool("bed", false, "run those that name an end-to-end test, on test beds of their own, in place of the others")
	only := flag.String("only", "", "run those whose names match this regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	escaped, err := run(ctx, *onBed, *only)
	if escaped > 0 {
		err = errors.Join(err, fmt.Errorf("%d mutations were caught by nothing", escaped))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		stop()
		os.Exit(1)
	}
}

// run prints a line for each mutation that is chosen, and returns how many
// escaped. One that cannot be tried, as it does not compile, is an error, and
// the others are tried all the same.
func run(ctx context.Context, onBed bool, only string) (escaped int, err error) {
	names, err := regexp.Compile(only)
	if err != nil {
		return 0, fmt.Errorf("read --only: %w", err)
	}
	root, err := devcluster.FindRoot()
	if err != nil {
		return 0, err
	}
	var chosen []mutation
	for _, m := range all() {
		if names.MatchString(m.name) && (!onBed || m.focus != "") {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return 0, fmt.Errorf("no mutation has a name that matches %q", only)
	}
	try, control := inTests, controlTests
	if onBed {
		try, control = inBed, controlBed
	}
	fmt.Printf("%-75s %5s  %s\n", "SWITCHED OFF", "TIME", "CAUGHT BY")
	begin := time.Now()
	if err := control(ctx, root, chosen); err != nil {
		return 0, fmt.Errorf("nothing is switched off, and yet: %w", err)
	}
	fmt.Printf("%-75s %4ds  %s\n", "nothing", int(time.Since(begin).Seconds()), "nothing, as it has to be")
	var untried []error
	for _, m := range chosen {
		begin := time.Now()
		by, err := try(ctx, root, m)
		switch {
		case ctx.Err() != nil:
			return escaped, err
		case err != nil:
			untried, by = append(untried, err), "NOT TRIED"
		case by == "":
			escaped, by = escaped+1, "NOTHING"
		}
		fmt.Printf("%-75s %4ds  %s\n", m.name, int(time.Since(begin).Seconds()), by)
	}
	return escaped, errors.Join(untried...)
}
