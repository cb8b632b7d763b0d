package lostpath

import (
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	// known is a volume that moves.
	known := Facts{Lost: 20 * time.Second, Timeout: 15 * time.Second, Others: 2, Witnesses: []string{"b", "c"}, Epochs: true}
	with := func(change func(*Facts)) Facts { f := known; change(&f); return f }
	for name, c := range map[string]struct {
		facts Facts
		move  bool
		again time.Duration
		words []string
	}{
		"it moves":                      {known, true, 0, []string{"does not reach the storage", "more than 15s", "host b, c reaches it"}},
		"on the second":                 {with(func(f *Facts) { f.Lost = f.Timeout }), true, 0, nil},
		"too soon":                      {with(func(f *Facts) { f.Lost = 4 * time.Second }), false, 11 * time.Second, []string{"for 15s", "host b, c"}},
		"a clock that was set back":     {with(func(f *Facts) { f.Lost = -time.Minute }), false, 75 * time.Second, nil},
		"never":                         {with(func(f *Facts) { f.Timeout = 0 }), false, 0, []string{"its pathTimeout is 0s", "delete the pod"}},
		"no other DPU has it":           {with(func(f *Facts) { f.Others, f.Witnesses = 0, nil }), false, 0, []string{"no other DPU has the volume", "replicas"}},
		"the storage is away":           {with(func(f *Facts) { f.Witnesses = nil }), false, 0, []string{"nothing is moved", "waits until the storage is back"}},
		"only where it is drained":      {with(func(f *Facts) { f.Witnesses, f.Drained = nil, []string{"b"} }), false, 15 * time.Second, []string{"host b", "being drained", "end that drain"}},
		"and elsewhere":                 {with(func(f *Facts) { f.Witnesses, f.Drained = []string{"c"}, []string{"b"} }), true, 0, []string{"host c reaches it"}},
		"drained, and not for so long":  {with(func(f *Facts) { f.Witnesses, f.Drained, f.Timeout = nil, []string{"b"}, 0 }), false, 0, []string{"its pathTimeout is 0s"}},
		"away, and for long":            {with(func(f *Facts) { f.Witnesses, f.Lost = nil, time.Hour }), false, 0, []string{"nothing is moved"}},
		"its pods are being deleted":    {Facts{Lost: time.Minute, Leaving: true}, true, 0, []string{"are being deleted, and cannot end"}},
		"they are, since a short while": {Facts{Lost: 10 * time.Second, Leaving: true}, false, 5 * time.Second, []string{"ended once that has lasted for 15s"}},
		"they are, for just as long":    {Facts{Lost: 15 * time.Second, Leaving: true}, true, 0, []string{"so it is ended"}},
		"as short as a bound can be":    {with(func(f *Facts) { f.Timeout = 1 }), true, 0, nil},
		"they are, and it would move":   {with(func(f *Facts) { f.Leaving = true }), true, 0, []string{"being deleted"}},
		"they are, with another bound":  {with(func(f *Facts) { f.Leaving, f.Timeout = true, time.Minute }), false, 40 * time.Second, []string{"for 1m0s"}},
		"its storage revokes":           {with(func(f *Facts) { f.Epochs, f.Revokes = false, true }), true, 0, nil},
		"the storage has no last word":  {with(func(f *Facts) { f.Epochs = false }), false, 0, []string{"neither knows epochs nor vouches", "delete the pod"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Judge(c.facts)
			if got.Move != c.move || got.Again != c.again {
				t.Errorf("moves %t, again after %s: %s", got.Move, got.Again, got.Words)
			}
			for _, w := range c.words {
				if !strings.Contains(got.Words, w) {
					t.Errorf("%q lacks %q", got.Words, w)
				}
			}
		})
	}
}
