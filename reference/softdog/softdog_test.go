package softdog

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/moor-storage/moor/internal/unixsocket"
	"github.com/moor-storage/moor/internal/watchdog"
)

// board is a stand-in at a socket, on a clock of ours. What it was told has been
// done when it answers, and what is due when the clock has been stepped.
type board struct {
	t     *testing.T
	path  string
	clock feedings

	mu     sync.Mutex
	resets int
}

// feedings is a clock that tells of every timeout that begins.
type feedings struct {
	*clocktesting.FakeClock
	begun chan struct{}
}

func (f feedings) AfterFunc(d time.Duration, do func()) clock.Timer {
	defer func() { f.begun <- struct{}{} }()
	return f.FakeClock.AfterFunc(d, do)
}

func newBoard(t *testing.T) *board {
	t.Helper()
	b := &board{t: t, path: filepath.Join(t.TempDir(), "w"), clock: feedings{clocktesting.NewFakeClock(time.Unix(1, 0)), make(chan struct{}, 8)}}
	l, err := unixsocket.Listen(b.path)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Clock: b.clock, Reset: func() { b.mu.Lock(); defer b.mu.Unlock(); b.resets++ }}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); <-done })
	return b
}

func (b *board) openDog(timeout time.Duration) watchdog.Dog {
	b.t.Helper()
	d, err := watchdog.Open(b.path, timeout)
	if err != nil {
		b.t.Fatal(err)
	}
	if d.Timeout() != timeout {
		b.t.Fatalf("timeout %s", d.Timeout())
	}
	return d
}

// want says how often the machine was reset so far.
func (b *board) want(resets int) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.resets != resets {
		b.t.Fatalf("%d resets, want %d", b.resets, resets)
	}
}

// fed waits until the timeout has begun that many times more.
func (b *board) fed(times int) {
	b.t.Helper()
	deadline := time.After(time.Minute)
	for range times {
		select {
		case <-b.clock.begun:
		case <-deadline:
			b.t.Fatal("it was not fed")
		}
	}
}

// still expects that no timeout runs.
func (b *board) still() {
	b.t.Helper()
	if b.clock.HasWaiters() {
		b.t.Fatal("a timeout runs")
	}
}

func (b *board) feed(d watchdog.Dog) {
	b.t.Helper()
	if err := d.Feed(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *board) shut(d watchdog.Dog, disarm bool) {
	b.t.Helper()
	if err := d.Close(disarm); err != nil {
		b.t.Fatal(err)
	}
}

func TestServerFires(t *testing.T) {
	b := newBoard(t)
	d := b.openDog(10 * time.Second)
	b.clock.Step(9 * time.Second)
	b.feed(d)
	b.clock.Step(9 * time.Second)
	b.want(0)
	b.clock.Step(time.Second)
	b.want(1)
	b.feed(d)
	b.still()
	b.shut(d, false)
	// The machine boots, and opens it again.
	d = b.openDog(5 * time.Second)
	b.clock.Step(5 * time.Second)
	b.want(2)
	b.shut(d, false)
}

// TestServerDisarmed: the magic word stops it.
func TestServerDisarmed(t *testing.T) {
	b := newBoard(t)
	b.shut(b.openDog(10*time.Second), true)
	b.still()
	b.clock.Step(time.Hour)
	b.want(0)
}

// TestServerLeft: a client that goes without a word leaves it running, and
// feeds it once more.
func TestServerLeft(t *testing.T) {
	b := newBoard(t)
	d := b.openDog(10 * time.Second)
	b.clock.Step(9 * time.Second)
	b.shut(d, false)
	b.fed(2) // as it was opened, and as its client went
	b.clock.Step(9 * time.Second)
	b.want(0)
	b.clock.Step(time.Second)
	b.want(1)
}

func TestOpenNothing(t *testing.T) {
	for name, path := range map[string]string{"missing": filepath.Join(t.TempDir(), "none"), "no watchdog": "/dev/null"} {
		if _, err := watchdog.Open(path, time.Second); err == nil {
			t.Errorf("%s: it opened", name)
		}
	}
}
