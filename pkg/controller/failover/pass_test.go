package failover

import (
	"errors"
	"sync/atomic"
	"testing"
)

// TestForEach: one that fails, or waits, holds up no other.
func TestForEach(t *testing.T) {
	all := make([]int, 3*limit)
	for i := range all {
		all[i] = i
	}
	failure := errors.New("of the first")
	var done atomic.Int64
	last := make(chan struct{})
	err := forEach(all, func(i int) error {
		switch i {
		case 0:
			return failure
		case 1:
			<-last
		case len(all) - 1:
			close(last)
		}
		done.Add(1)
		return nil
	})
	if !errors.Is(err, failure) || done.Load() != int64(len(all)-1) {
		t.Errorf("%v, %d done", err, done.Load())
	}
}
