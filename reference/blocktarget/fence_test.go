package blocktarget

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// inTheMedium starts a write of the DPU, by a connection that is not made anew,
// which the medium holds up until free is called.
func inTheMedium(t *testing.T, b *bench, export string) (free func(), done chan error) {
	t.Helper()
	c, err := dialExport(t.Context(), b.address, export)
	if err != nil {
		t.Fatal(err)
	}
	free, done = b.log.stick(), make(chan error, 1)
	t.Cleanup(func() {
		free()
		c.fail(errLost)
		<-c.stopped
	})
	go func() {
		done <- c.roundTrip(request{command: cmdWrite, length: 3}, []byte("old"), nil, time.Hour)
	}()
	eventually(t, "the write is in the medium", func() bool { return b.log.holds() == 1 })
	return free, done
}

// stillWaits fails the test if what is meant to wait answers.
func stillWaits[T any](t *testing.T, what string, answers <-chan T) {
	t.Helper()
	select {
	case <-answers:
		t.Fatalf("%s: it did not wait for the write in the medium", what)
	case <-time.After(100 * time.Millisecond):
	}
}

func TestRevokeWaitsForTheMedium(t *testing.T) {
	b := newBench(t)
	free, done := inTheMedium(t, b, b.rights.give("v", "dpu-1", "t1"))
	b.rights.take("v", "dpu-1")
	revoked := make(chan int, 1)
	go func() { revoked <- b.Revoke("v", "dpu-1") }()
	if err := <-done; !errors.Is(err, errLost) {
		t.Fatalf("the client is told %v, want that its connection is lost, at once", err)
	}
	stillWaits(t, "revoke", revoked)
	again := make(chan int, 1) // as a controller whose first call timed out
	go func() { again <- b.Revoke("v", "dpu-1") }()
	stillWaits(t, "revoke again", again)
	other := open(t, b.address, func() string { b.volume("w"); return b.rights.give("w", "dpu-1", "t") }(), 0)
	if err := other.Sync(); err != nil {
		t.Fatalf("another volume waits too: %v", err)
	}
	free()
	if n := <-revoked + <-again; n != 1 {
		t.Fatalf("%d sessions ended", n)
	}
	if got := b.log.all(); !slices.Equal(got, []string{"dpu-1"}) {
		t.Fatalf("recorded %v", got)
	}
}

func TestANewConnectionWaitsForTheMedium(t *testing.T) {
	b := newBench(t)
	export := b.rights.give("v", "dpu-1", "t1")
	free, done := inTheMedium(t, b, export)
	opened := make(chan error, 1)
	go func() {
		c, err := dialExport(t.Context(), b.address, export)
		if err == nil {
			c.part()
		}
		opened <- err
	}()
	stillWaits(t, "a new connection", opened)
	free()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, errLost) {
		t.Fatalf("the first connection goes on: %v", err)
	}
}

// TestARefusalWaitsForTheMedium: a DPU that is told "no" may count on it that
// nothing of its own arrives any more.
func TestARefusalWaitsForTheMedium(t *testing.T) {
	b := newBench(t)
	export := b.rights.give("v", "dpu-1", "t1")
	free, _ := inTheMedium(t, b, export)
	b.rights.take("v", "dpu-1")
	refused := make(chan error, 1)
	go func() {
		_, err := dialExport(t.Context(), b.address, export)
		refused <- err
	}()
	stillWaits(t, "a refusal", refused)
	free()
	if err := <-refused; !errors.Is(err, ErrDenied) {
		t.Fatal(err)
	}
}

func TestTheEndOfTheServerWaitsForTheMedium(t *testing.T) {
	b := newBench(t)
	free, _ := inTheMedium(t, b, b.rights.give("v", "dpu-1", "t1"))
	ended := make(chan struct{})
	go func() { b.stop(); close(ended) }()
	stillWaits(t, "the end", ended)
	free()
	<-ended
}

// TestWhatWaitsForItsTurnIsNotDone: requests that were read, and that no hand
// was free for, are dropped with the right.
func TestWhatWaitsForItsTurnIsNotDone(t *testing.T) {
	b := newBench(t)
	c, err := dialExport(t.Context(), b.address, b.rights.give("v", "dpu-1", "t1"))
	if err != nil {
		t.Fatal(err)
	}
	free := b.log.stick()
	defer free()
	for range maxInFlight + 10 {
		if err := c.transmit(request{command: cmdWrite, length: 3}, []byte("old")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "every hand is busy", func() bool { return b.log.holds() == maxInFlight })
	b.rights.take("v", "dpu-1")
	revoked := make(chan int, 1)
	go func() { revoked <- b.Revoke("v", "dpu-1") }()
	stillWaits(t, "revoke", revoked)
	free()
	<-revoked
	c.fail(errLost)
	<-c.stopped
	b.stop() // until nothing is left that could write
	if n := len(b.log.all()); n != maxInFlight {
		t.Fatalf("%d writes were done, want the %d that were in the medium", n, maxInFlight)
	}
}
