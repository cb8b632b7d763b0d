package admission

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestPause: a pause begins when the changes under way have ended, and further
// ones wait until the last pause is over.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBarrier()
		b.Enter()
		var paused atomic.Int32
		entered := false
		for range 2 {
			go func() {
				b.Pause()
				paused.Add(1)
			}()
		}
		synctest.Wait()
		go func() {
			b.Enter()
			entered = true
		}()
		synctest.Wait()
		if paused.Load() != 0 || entered {
			t.Fatalf("a change is under way: %d pauses have begun, another change has %t", paused.Load(), entered)
		}
		b.Leave()
		synctest.Wait()
		b.Resume()
		synctest.Wait()
		if paused.Load() != 2 || entered {
			t.Fatalf("one pause is over: %d have begun, the change has %t", paused.Load(), entered)
		}
		b.Resume()
		synctest.Wait()
		if !entered {
			t.Error("the change waits though the pauses are over")
		}
	})
}
