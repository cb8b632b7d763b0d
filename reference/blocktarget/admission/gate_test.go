package admission

import (
	"testing"
	"testing/synctest"
)

// TestFence: a fence returns when what is inside has left, and nothing enters
// after it has begun.
func TestFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate()
		first, second := g.Enter(), g.Enter()
		if !first || !second || g.Busy() != 2 {
			t.Fatal("an open gate lets nothing in")
		}
		fenced := false
		go func() {
			g.Fence()
			fenced = true
		}()
		g.Leave()
		synctest.Wait()
		if fenced || g.Enter() {
			t.Errorf("one is inside: fenced %t, or another one was let in", fenced)
		}
		g.Leave()
		synctest.Wait()
		if !fenced || g.Enter() || g.Busy() != 0 {
			t.Errorf("all have left: fenced %t, %d inside", fenced, g.Busy())
		}
	})
}

// TestShut: a gate that is shut lets out, and not in.
func TestShut(t *testing.T) {
	g := NewGate()
	g.Enter()
	g.Shut()
	if g.Enter() || g.Busy() != 1 {
		t.Errorf("%d are inside", g.Busy())
	}
	g.Leave()
	g.Fence()
}
