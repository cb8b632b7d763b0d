package blocktarget

import (
	"context"
	"errors"
	"testing"
	"time"
)

func wantState(t *testing.T, d *Device, want State, why error) {
	t.Helper()
	got, reason := d.State()
	if got != want || !errors.Is(reason, why) {
		t.Fatalf("state %d because of %v, want %d because of %v", got, reason, want, why)
	}
}

func TestStateFollowsTheServer(t *testing.T) {
	b := newBench(t)
	d := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), 0)
	wantState(t, d, Connected, nil)
	for range 2 {
		b.stop()
		eventually(t, "the loss is noticed", func() bool { s, _ := d.State(); return s != Connected })
		wantState(t, d, Reconnecting, nil)
		if err := d.Probe(t.Context()); err == nil || errors.Is(err, ErrDenied) {
			t.Fatalf("a server that ended answers: %v", err)
		}
		b.start(b.address)
		eventually(t, "there is a connection", func() bool { s, _ := d.State(); return s == Connected })
		if err := d.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStateOfABlackHole: what swallows everything is not noticed while nothing is sent;
// to ask shows it, and leaves the connection as it is.
func TestStateOfABlackHole(t *testing.T) {
	b := newBench(t)
	k := newLink(t, b.address)
	d := open(t, k.address, b.rights.give("v", "dpu-1", "t1"), 20*time.Second)
	k.cut()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := d.Probe(ctx); err == nil || errors.Is(err, ErrDenied) {
		t.Fatalf("the target answers over a cut link: %v", err)
	}
	wantState(t, d, Connected, nil)
	k.join()
	if err := errors.Join(d.Probe(t.Context()), d.Sync()); err != nil {
		t.Fatal(err)
	}
	if n := len(b.Sessions()); n != 1 {
		t.Fatalf("%d sessions: to ask must open none", n)
	}
}

func TestStateAfterARefusal(t *testing.T) {
	b := newBench(t)
	d := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), 0)
	b.rights.take("v", "dpu-1")
	if err := d.Probe(t.Context()); !errors.Is(err, ErrDenied) {
		t.Fatalf("asked without a right: %v", err)
	}
	b.stop()
	b.start(b.address)
	eventually(t, "the target is given up", func() bool { s, _ := d.State(); return s == GivenUp })
	wantState(t, d, GivenUp, ErrDenied)
}

func TestStateOfAClosedDevice(t *testing.T) {
	b := newBench(t)
	d := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), 0)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	wantState(t, d, GivenUp, errClosed)
}
