// Package provisionertest holds the contract suites which every storage
// platform passes, one per interface of package provisioner, and Fake, an in-memory
// platform with a call log and error injection that passes them too.
//
// It never talks to anything outside the process. For tests only.
package provisionertest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// suiteTimeout bounds each case: a platform that hangs fails, it does not stop
// the whole run.
const suiteTimeout = 2 * time.Minute

// mib is one mebibyte; the suites only ask for multiples of it, so that a
// platform may round as it likes.
const mib = 1 << 20

// workers is how many goroutines a concurrency case starts.
const workers = 8

func suiteContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteTimeout)
	t.Cleanup(cancel)
	return ctx
}

func wantError(t *testing.T, what string, err error, either ...error) {
	t.Helper()
	for _, w := range either {
		if errors.Is(err, w) {
			return
		}
	}
	t.Fatalf("%s: got error %v, want one of %v", what, err, either)
}

func wantNil(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// atOnce runs act in workers goroutines that start together, and returns what
// they returned.
func atOnce[T any](act func(i int) (T, error)) ([]T, []error) {
	got, errs := make([]T, workers), make([]error, workers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			<-start
			got[i], errs[i] = act(i)
		})
	}
	close(start)
	wg.Wait()
	return got, errs
}

// untilCertain repeats act as long as it ends with an uncertain error, as a
// caller of the contract has to.
func untilCertain(ctx context.Context, act func() error) error {
	for {
		err := act()
		if err == nil || !provisioner.Uncertain(err) || ctx.Err() != nil {
			return err
		}
	}
}

// canceled returns a context that has ended already.
func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
