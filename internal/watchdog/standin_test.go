package watchdog

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/moor-storage/moor/internal/unixsocket"
)

// board is a stand-in at a socket, on a clock of ours.
type board struct {
	t     *testing.T
	path  string
	clock *clocktesting.FakeClock

	mu     sync.Mutex
	resets int
}

func newBoard(t *testing.T) *board {
	t.Helper()
	b := &board{t: t, path: filepath.Join(t.TempDir(), "w"), clock: clocktesting.NewFakeClock(time.Unix(1, 0))}
	l, err := unixsocket.Listen(b.path)
	if err != nil {
		t.Fatal(err)
	}
	s := &StandIn{Clock: b.clock, Reset: func() { b.mu.Lock(); defer b.mu.Unlock(); b.resets++ }}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

func (b *board) openDog(timeout time.Duration) Dog {
	b.t.Helper()
	d, err := Open(b.path, timeout)
	if err != nil {
		b.t.Fatal(err)
	}
	if d.Timeout() != timeout {
		b.t.Fatalf("timeout %s", d.Timeout())
	}
	return d
}

// want waits until the machine was reset so often.
func (b *board) want(resets int) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		b.mu.Lock()
		n := b.resets
		b.mu.Unlock()
		if n == resets {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%d resets, want %d", n, resets)
		}
	}
}

// armed waits until a timer runs, or none does.
func (b *board) armed(want bool) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); b.clock.HasWaiters() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("armed: %v, want %v", !want, want)
		}
	}
}

func (b *board) feed(d Dog) {
	b.t.Helper()
	if err := d.Feed(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *board) shut(d Dog, disarm bool) {
	b.t.Helper()
	if err := d.Close(disarm); err != nil {
		b.t.Fatal(err)
	}
}

func TestStandInFires(t *testing.T) {
	b := newBoard(t)
	d := b.openDog(10 * time.Second)
	b.clock.Step(9 * time.Second)
	b.feed(d)
	b.clock.Step(9 * time.Second)
	b.want(0)
	b.clock.Step(time.Second)
	b.want(1)
	b.feed(d)
	b.armed(false)
	b.shut(d, false)
	// The machine boots, and opens it again.
	d = b.openDog(5 * time.Second)
	b.clock.Step(5 * time.Second)
	b.want(2)
	b.shut(d, false)
}

// TestStandInDisarmed: the magic word stops it.
func TestStandInDisarmed(t *testing.T) {
	b := newBoard(t)
	b.shut(b.openDog(10*time.Second), true)
	b.armed(false)
	b.clock.Step(time.Hour)
	b.want(0)
}

// TestStandInLeft: a client that goes without a word leaves it running, and
// feeds it once more.
func TestStandInLeft(t *testing.T) {
	b := newBoard(t)
	d := b.openDog(10 * time.Second)
	b.clock.Step(9 * time.Second)
	b.shut(d, false)
	b.armed(true)
	b.clock.Step(10 * time.Second)
	b.want(1)
}

func TestOpenNothing(t *testing.T) {
	for name, path := range map[string]string{"missing": filepath.Join(t.TempDir(), "none"), "no watchdog": "/dev/null"} {
		if _, err := Open(path, time.Second); err == nil {
			t.Errorf("%s: it opened", name)
		}
	}
}
