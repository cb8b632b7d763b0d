package simulate

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/moor-storage/moor/test/simulate/plan"
	ctrl "sigs.k8s.io/controller-runtime"
)

// The seeds that are played with the other tests: from the first on some of each thing is played that
// not every schedule has.
const (
	defaultFirst = 82
	defaultSeeds = 32
)

var (
	seeds = flag.Uint64("seeds", defaultSeeds, "how many seeds to play")
	first = flag.Uint64("seed", defaultFirst, "the first of them")
	story = flag.Bool("story", false, "print the story of each")
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	m.Run()
}

// TestSimulate plays the seeds, on all processors.
func TestSimulate(t *testing.T) {
	workers := uint64(runtime.GOMAXPROCS(0))
	totals := newTally()
	t.Cleanup(func() { totals.check(t, *first == defaultFirst && *seeds >= defaultSeeds) })
	for worker := range workers {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			for seed := *first + worker; seed < *first+*seeds; seed += workers {
				totals.add(play(t, seed))
			}
		})
	}
}

// TestSeedsThatFailed plays seeds again that once found something. What they play changes with
// each call that a program makes more or less, and with what a plan draws: each mend is held by
// a unit test of its own.
func TestSeedsThatFailed(t *testing.T) {
	for seed, found := range map[uint64]string{
		10_007_133: "after a restore a replica of which nothing stood on record could not go",
		8_000_954:  "a fence after a restore believed a record of before the device was shown, and the DPU gave its receipt",
		40479:      "a pod that can run on one host alone was deleted again and again while that host came back",
		103644:     "an attachment whose DPU is silent was not looked at again when an operator's word had freed its claim",
		109161:     "an attachment that goes did not end what an earlier one of its name had left",
		311991:     "after a restore a DPU showed what it had been granted before the backup, and had never shown",
		310158:     "after a restore a finalizer that was missing in the backup was a DPU's word",
		503115:     "the host cluster remembered a grant as that of another DPU",
		503234:     "after a restore a DPU let go by a record that lacked the device it showed",
		1310317:    "after a restore a cache that lacked the mark had its epoch granted again, and freed",
		1312227:    "after a restore a DPU showed what only the host cluster knew to be going",
		30567:      "what a function had kept of one volume was served when another volume was recovered there",
		30014:      "a DPU gave its receipt right after SNAP had lost its way to the storage, and writes were on their way",
		32449:      "an attachment was kept for a way that was lost, and the loss was told for as long as the attachment stood",
		372:        "after a restore a claim granted an epoch that the storage had fenced",
		333752:     "a DPU gave an epoch back while it showed the volume for an attachment that is gone",
	} {
		t.Run(found, func(t *testing.T) { play(t, seed) })
	}
}

// play plays a seed, returns what was played, and tells the shortest story that fails as it does.
func play(t *testing.T, seed uint64) map[string]int {
	t.Helper()
	p := plan.New(seed)
	r := Run(t, seed, p, nil)
	if *story {
		t.Logf("seed %d: %s%s", seed, p, strings.Join(r.Story, "\n"))
	}
	if len(r.Violations) == 0 {
		return r.Played
	}
	rule := r.Violations[0].Rule
	p = plan.Shrink(p, func(p plan.Plan) bool { return Run(t, seed, p, nil).Broken(rule) })
	r = Run(t, seed, p, nil)
	t.Errorf("seed %d: %v\n%s%s", seed, r.Violations, p, strings.Join(r.Story, "\n"))
	return nil
}

// TestSameSeedSameStory: a schedule is a function of its seed and its plan.
func TestSameSeedSameStory(t *testing.T) {
	for seed := uint64(1); seed <= 6; seed++ {
		one, other := Run(t, seed, plan.New(seed), nil), Run(t, seed, plan.New(seed), nil)
		if !slices.Equal(one.Story, other.Story) {
			for i := range min(len(one.Story), len(other.Story)) {
				if one.Story[i] != other.Story[i] {
					t.Fatalf("seed %d: line %d is\n%s\nand then\n%s", seed, i, one.Story[i], other.Story[i])
				}
			}
			t.Fatalf("seed %d: %d lines, and then %d", seed, len(one.Story), len(other.Story))
		}
		if one.Accepted == 0 {
			t.Errorf("seed %d: no host wrote", seed)
		}
	}
	if a, b := Run(t, 1, plan.New(1), nil), Run(t, 2, plan.New(1), nil); slices.Equal(a.Story, b.Story) {
		t.Error("two seeds tell the same story")
	}
}
