// Package simulate plays Moor's safety core in virtual time: the real reconcilers of
// snap-host-controller, snap-controller, snap-external-attacher and snap-node-driver, over
// API servers, SNAP services, a storage and hosts in memory. A seed decides how long each
// call and each watch takes, what fails, and what happens to the machines. A judge
// follows the claims and each write that the storage accepts.
//
// A schedule is a function of its seed and its plan: the same two give the same story.
// A plan whose schedule breaks a rule is made as short as it can be while it still does.
package simulate

import (
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moor-storage/moor/test/simulate/judge"
	"github.com/moor-storage/moor/test/simulate/plan"
)

// healing is how long everything may take to become as it is wanted once nothing goes
// wrong any more.
const healing = 10 * time.Minute

// Result is what came of a schedule.
type Result struct {
	Violations []judge.Violation
	Story      []string
	// Accepted writes, and how long it took until all was as it was wanted.
	Accepted int
	Healed   time.Duration
	// Played counts what not every schedule has: receipts by their kind, refused writes.
	Played map[string]int
}

// Broken reports whether a rule was broken.
func (r Result) Broken(rule string) bool {
	return slices.ContainsFunc(r.Violations, func(v judge.Violation) bool { return v.Rule == rule })
}

// Run plays the schedule of a seed and a plan. plant may change the world before it begins.
func Run(t *testing.T, seed uint64, p plan.Plan, plant func(*World)) Result {
	t.Helper()
	dir, err := os.MkdirTemp(memory(), "simulate")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var out Result
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(seed, p, dir)
		if err != nil {
			t.Fatal(err)
		}
		if plant != nil {
			plant(w)
		}
		out = w.play()
	})
	return out
}

// memory is where files are that are synced all the time, and thrown away.
func memory() string {
	if _, err := os.Stat("/dev/shm"); err == nil {
		return "/dev/shm"
	}
	return ""
}

// play lets the plan happen, heals everything and waits until all is as it is wanted.
func (w *World) play() Result {
	for _, p := range w.processes {
		if !p.held {
			p.begin()
		}
	}
	for _, d := range w.Cards {
		w.watch(d)
	}
	for _, e := range w.plan.Events {
		w.Engine.After(e.At, func() { w.happen(e) })
	}
	w.use()
	w.listen()
	broken := func() bool { return len(w.Judge.Violations()) > 0 }
	w.Engine.Run(w.plan.Length, broken)
	w.Engine.Run(w.plan.Length+healing, func() bool { return broken() || !w.restoring })
	if w.restoring && !broken() {
		w.Judge.Find(judge.Stuck, "the steps of a restore do not come to an end")
	}
	ended := w.Engine.Elapsed()
	var healed time.Duration
	if !broken() {
		w.heal()
		settled := time.Duration(0)
		w.Engine.Every(time.Second, func() {
			if settled++; len(w.lacking()) > 0 {
				settled = 0
			}
		})
		w.Engine.Run(ended+healing, func() bool { return broken() || settled > 3 })
		healed = w.Engine.Elapsed() - ended
	}
	if !broken() {
		w.judgeProgress()
	}
	for _, v := range w.Judge.Violations() {
		w.Engine.Tell("JUDGE", "%s", v)
	}
	for _, p := range w.processes {
		p.hold()
	}
	w.played["refused below an epoch"] += w.Storage.Refused()
	return Result{Violations: w.Judge.Violations(), Story: w.Engine.Story(), Accepted: w.Judge.Accept, Healed: healed, Played: w.played}
}
