// Command gotest reads what `go test -json` has written, and fails if a test was
// skipped for a reason that is not allowed, or if no test ran.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/moor-storage/moor/test/skips"
)

func main() {
	if err := check(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: gotest FILE, which go test -json has written")
	}
	f, err := os.Open(args[0])
	if err != nil {
		return fmt.Errorf("read the record of the tests: %w", err)
	}
	defer f.Close()
	skipped, ran, err := skips.Read(f)
	if err != nil {
		return err
	}
	if ran == 0 {
		return fmt.Errorf("%s: no test ran", args[0])
	}
	unexpected := skips.Unexpected(skipped, skips.GoTests)
	for _, s := range unexpected {
		fmt.Fprintln(os.Stderr, "skipped:", s)
	}
	if len(unexpected) > 0 {
		return errors.New("these tests were skipped for reasons that test/skips does not allow: install what they need (hack/apt), or add the reason")
	}
	return nil
}
