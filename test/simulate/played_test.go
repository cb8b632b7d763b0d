package simulate

import (
	"sync"
	"testing"

	"github.com/moor-storage/moor/test/simulate/plan"
)

// tally adds up what schedules have played that not every schedule has.
type tally struct {
	mu     sync.Mutex
	played map[string]int
}

func newTally() *tally { return &tally{played: map[string]int{}} }

func (a *tally) add(played map[string]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for what, n := range played {
		a.played[what] += n
	}
}

// check reports it, and holds the seeds that are played by default to have some of each.
func (a *tally) check(t *testing.T, all bool) {
	t.Log(a.played)
	for _, what := range []string{
		"receipt DPU", "receipt Medium", "receipt Power", "refused below an epoch", "fenced where the way is lost",
		plan.CutLink, plan.Isolate, plan.RestartStorage, plan.SwapBMC, plan.ReplaceCard, plan.OtherCard, plan.NameWrongly,
	} {
		if all && a.played[what] == 0 {
			t.Errorf("nothing of %q was played", what)
		}
	}
}
