package proof

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/moor-storage/moor/reference/writelog"
)

// play makes a random lawful history.
func play(seed uint64) *simulator {
	r := rand.New(rand.NewPCG(seed, 1))
	return lawful(r, 1+r.IntN(5), 1+r.IntN(12))
}

func TestLawfulHistoriesPass(t *testing.T) {
	for seed := range uint64(1000) {
		if got := Check(play(seed).h); len(got) != 0 {
			t.Fatalf("seed %d: %v", seed, got)
		}
	}
}

func TestEachCorruptionIsCaught(t *testing.T) {
	for _, c := range corruptions {
		t.Run(c.name, func(t *testing.T) {
			applied := 0
			for seed := range uint64(1000) {
				s := play(seed)
				if !c.apply(s) {
					continue
				}
				applied++
				if rules := broken(Check(s.h)); !slices.ContainsFunc(rules, func(r Rule) bool { return slices.Contains(c.rules, r) }) {
					t.Fatalf("seed %d: broken %q, none of %q\nstates %+v\nwrites %+v", seed, rules, c.rules, s.h.States, s.h.Writes)
				}
			}
			if applied < 100 {
				t.Errorf("only %d histories could be corrupted", applied)
			}
		})
	}
}

func FuzzCorruptions(f *testing.F) {
	f.Add(uint64(1), uint8(0))
	f.Fuzz(func(t *testing.T, seed uint64, which uint8) {
		s := play(seed)
		if got := Check(s.h); len(got) != 0 {
			t.Fatalf("lawful: %v", got)
		}
		c := corruptions[int(which)%len(corruptions)]
		if c.apply(s) && len(Check(s.h)) == 0 {
			t.Fatalf("%s is not caught", c.name)
		}
	})
}

// shareable tries every way to share the writes out among the epochs.
func shareable(writes []writelog.Write, epochs []epoch, from int) bool {
	if len(writes) == 0 {
		return true
	}
	for i := from; i < len(epochs); i++ {
		over := epochs[i].ended && writes[0].Monotonic > epochs[i].end
		early := writes[0].Monotonic < epochs[i].begin
		if epochs[i].holder == writes[0].DPU && !over && !early && shareable(writes[1:], epochs, i) {
			return true
		}
	}
	return false
}

// FuzzWriters holds the one pass over the log against the search for any way.
func FuzzWriters(f *testing.F) {
	f.Add([]byte{0, 1, 2}, []byte{0, 0, 1, 2})
	f.Add([]byte{0, 17, 0}, []byte{1, 0, 1})
	f.Fuzz(func(t *testing.T, holders, by []byte) {
		name := func(b byte) string { return string(rune('a' + b%3)) }
		var epochs []epoch
		for i, b := range holders[:min(len(holders), 6)] {
			epochs = append(epochs, epoch{number: int64(i + 1), holder: name(b), begin: time.Duration(b >> 5), end: time.Duration(b >> 4), ended: b&8 != 0})
		}
		var names []string
		for _, b := range by[:min(len(by), 8)] {
			names = append(names, name(b))
		}
		writes := written(names...)
		found := &findings{}
		checkWriters(found, writes, epochs)
		if want := shareable(writes, epochs, 0); want != (len(found.all) == 0) {
			t.Fatalf("epochs %+v, writers %q: lawful is %t, found %v", epochs, names, want, found.all)
		}
	})
}
