package simulate

import (
	"maps"
	"slices"
	"testing"

	"github.com/moor-storage/moor/test/simulate/plan"
)

// TestWhatIsPlayed: the seeds that are played by default have what not every schedule has.
func TestWhatIsPlayed(t *testing.T) {
	played := map[string]int{}
	for seed := uint64(1); seed <= defaultSeeds; seed++ {
		for what, n := range Run(t, seed, plan.New(seed), nil).Played {
			played[what] += n
		}
	}
	t.Log(played)
	for _, what := range []string{"receipt DPU", "receipt Medium", "refused below an epoch"} {
		if played[what] == 0 {
			t.Errorf("nothing of %q is played: %v", what, slices.Sorted(maps.Keys(played)))
		}
	}
}
