package main

import (
	"slices"
	"testing"
	"time"
)

// TestTakenBack: what was fenced or freed since a moment is told once, but for what
// had to be.
func TestTakenBack(t *testing.T) {
	h := newHistory()
	h.note(h.free, "before")
	since := time.Now()
	h.note(h.fenced, "dead")
	h.note(h.fenced, "alive")
	h.note(h.free, "alive")
	h.note(h.free, "another")
	h.note(h.granted, "granted")
	if got := h.takenBack(since, []string{"dead"}); !slices.Equal(got, []string{"alive", "another"}) {
		t.Errorf("got %v", got)
	}
	b := &bench{history: h}
	if err := b.unharmed(since, []string{"dead"}); err == nil {
		t.Error("two volumes were taken back, and that is no error")
	}
	if err := b.unharmed(since, []string{"dead", "alive", "another"}); err != nil {
		t.Error(err)
	}
}
