package proof

import (
	"testing"
	"time"

	"github.com/moor-storage/moor/reference/writelog"
)

func TestBelow(t *testing.T) {
	at := func(monotonic, offset, length int64) writelog.Write {
		return writelog.Write{DPU: "a", Offset: offset, Length: length, Monotonic: time.Duration(monotonic)}
	}
	for _, c := range []struct {
		name              string
		logged, below     []writelog.Write
		readAt            int64
		unlogged, missing int
	}{
		{name: "nothing"},
		{name: "the same", logged: []writelog.Write{at(2, 0, 4)}, below: []writelog.Write{at(1, 0, 4)}, readAt: 9},
		{name: "in pieces", logged: []writelog.Write{at(4, 0, 10)}, below: []writelog.Write{at(1, 0, 4), at(2, 4, 4), at(3, 8, 2)}, readAt: 9},
		{name: "in another order", logged: []writelog.Write{at(3, 8, 4), at(4, 0, 4)}, below: []writelog.Write{at(1, 0, 4), at(2, 8, 4)}, readAt: 9},
		{name: "the same place twice", logged: []writelog.Write{at(2, 0, 4), at(4, 0, 4)}, below: []writelog.Write{at(1, 0, 4), at(3, 0, 4)}, readAt: 9},
		{name: "a long one and a short one at one place", logged: []writelog.Write{at(5, 0, 8), at(6, 0, 4)}, below: []writelog.Write{at(1, 0, 4), at(2, 0, 8)}, readAt: 9},
		{name: "logged after the reading", logged: []writelog.Write{at(10, 0, 4)}, readAt: 9},
		{name: "begun before the reading, logged after it", logged: []writelog.Write{at(10, 0, 8)}, below: []writelog.Write{at(8, 0, 4)}, readAt: 9},
		{name: "a write of no bytes", logged: []writelog.Write{at(1, 0, 0)}, readAt: 9},

		{name: "one too many", logged: []writelog.Write{at(2, 0, 4)}, below: []writelog.Write{at(1, 0, 4), at(2, 0, 4)}, readAt: 9, unlogged: 1},
		{name: "elsewhere", logged: []writelog.Write{at(2, 0, 4)}, below: []writelog.Write{at(1, 4, 4)}, readAt: 9, unlogged: 1, missing: 1},
		{name: "longer than logged", logged: []writelog.Write{at(2, 0, 4)}, below: []writelog.Write{at(1, 0, 8)}, readAt: 9, unlogged: 1},
		{name: "after its record", logged: []writelog.Write{at(2, 0, 4)}, below: []writelog.Write{at(3, 0, 4)}, readAt: 9, missing: 1},
		{name: "a piece is missing", logged: []writelog.Write{at(4, 0, 8)}, below: []writelog.Write{at(1, 0, 4)}, readAt: 9, missing: 1},
		{name: "nothing was recorded", logged: []writelog.Write{at(1, 0, 4), at(2, 0, 4)}, readAt: 9, missing: 1},
		{name: "two places", logged: []writelog.Write{at(1, 0, 4), at(2, 8, 4)}, readAt: 9, missing: 2},
		{name: "in other pieces than a like one", logged: []writelog.Write{at(4, 0, 8), at(6, 0, 8)}, below: []writelog.Write{at(1, 0, 8), at(2, 0, 4), at(3, 4, 4)}, readAt: 9},
		{name: "a hidden one across two", logged: []writelog.Write{at(4, 0, 8), at(6, 8, 8)}, below: []writelog.Write{at(1, 0, 8), at(2, 6, 4), at(3, 8, 8)}, readAt: 9, unlogged: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			below := Below{Writes: c.below, ReadAt: time.Duration(c.readAt)}
			unlogged, missing := below.compare(c.logged)
			if len(unlogged) != c.unlogged || len(missing) != c.missing {
				t.Errorf("unlogged %v, missing %v; want %d and %d", unlogged, missing, c.unlogged, c.missing)
			}
			if got := len(below.Unlogged(c.logged)); got != c.unlogged {
				t.Errorf("Unlogged tells of %d", got)
			}
		})
	}
}

// TestTheLogIsJudgedByWhatIsBeneath: a write that the target hides is a
// violation, though its own log looks lawful.
func TestTheLogIsJudgedByWhatIsBeneath(t *testing.T) {
	h := History{Volume: "v", States: failedOver(), Writes: written("a", "a", "b")}
	h.Below = &Below{Writes: written("pid-1", "pid-1", "pid-1"), ReadAt: 3}
	if got := Check(h); len(got) != 0 {
		t.Fatalf("lawful: %v", got)
	}
	h.Below.Writes = written("pid-1", "pid-1", "pid-1", "pid-1")
	if rules := broken(Check(h)); len(rules) != 1 || rules[0] != RuleBelow {
		t.Errorf("broken: %q", rules)
	}
	h.Below.Writes = written("pid-1", "pid-1", "pid-1")[1:]
	if rules := broken(Check(h)); len(rules) != 2 {
		t.Errorf("broken: %q, want a hole and a write that never came", rules)
	}
}
