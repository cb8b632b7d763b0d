package fusepath

import (
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestFenceWaitsForWhatIsInFlight(t *testing.T) {
	defer goleak.VerifyNone(t)
	g := newGate()
	if errno := g.enter(); errno != 0 {
		t.Fatal(errno)
	}
	fenced := make(chan struct{})
	go func() { g.fence(); close(fenced) }()
	for g.enter() == 0 { // until the fence stands, I/O may still come in
		g.leave()
	}
	select {
	case <-fenced:
		t.Fatal("the fence did not wait for the I/O in flight")
	default:
	}
	g.leave()
	<-fenced
	if errno := g.enter(); errno != syscall.EIO {
		t.Errorf("after the fence: %v", errno)
	}
	g.fence() // a second time changes nothing
}

func TestPausedIOGoesOnOrIsFenced(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, tc := range []struct {
		name string
		end  func(*gate)
		want syscall.Errno
	}{
		{"resumed", func(g *gate) { g.pause(false) }, 0},
		{"fenced", func(g *gate) { g.fence() }, syscall.EIO},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := newGate()
			g.pause(true)
			got := make(chan syscall.Errno, 1)
			go func() {
				errno := g.enter()
				if errno == 0 {
					g.leave()
				}
				got <- errno
			}()
			tc.end(g)
			if errno := <-got; errno != tc.want {
				t.Errorf("got %v, want %v", errno, tc.want)
			}
		})
	}
}

// TestNoIOAfterFence: of many that enter and leave, none is inside once fence
// has returned.
func TestNoIOAfterFence(t *testing.T) {
	defer goleak.VerifyNone(t)
	g := newGate()
	inside := make(chan int, 1)
	inside <- 0
	add := func(n int) int { v := <-inside + n; inside <- v; return v }
	done := make(chan struct{})
	for range 8 {
		go func() {
			for g.enter() == 0 {
				add(1)
				add(-1)
				g.leave()
			}
			done <- struct{}{}
		}()
	}
	g.fence()
	if n := add(0); n != 0 {
		t.Errorf("%d are inside after the fence", n)
	}
	for range 8 {
		<-done
	}
}

func TestUnescape(t *testing.T) {
	if got := unescape(`/a\040b\134c\011d`); got != "/a b\\c\td" {
		t.Errorf("got %q", got)
	}
}
