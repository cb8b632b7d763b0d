package hostprobe

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// script is a probe that says what the test tells it to.
type script struct {
	clock  *clocktesting.FakeClock
	answer chan Answer
}

func (s *script) Probe(ctx context.Context) (Answer, string) {
	select {
	case a := <-s.answer:
		s.clock.SetTime(s.clock.Now().Add(Interval))
		return a, ""
	case <-ctx.Done():
		return Silence, ""
	}
}

// TestWatcherTells: what changes is told at once, and only that.
func TestWatcherTells(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	s := &script{clock: clock, answer: make(chan Answer, 1)}
	told := 0
	w := NewWatcher(Options{Prober: s, Clock: clock, OnChange: func() { told++ }})
	look := func(a Answer) {
		s.answer <- a
		w.probe(t.Context())
	}
	for range 20 {
		look(Silence)
	}
	if w.Observed() != nil || told != 0 {
		t.Fatalf("before it was ever seen: %+v, told %d times", w.Observed(), told)
	}
	for range 3 {
		look(Echoed)
	}
	alive := w.Observed()
	if alive == nil || !alive.Alive || told != 1 {
		t.Fatalf("alive: %+v, told %d times", alive, told)
	}
	look(Acknowledged)
	if s := w.Observed(); told != 2 || !s.Alive || s.Since != alive.Since {
		t.Fatalf("hung: %+v, told %d times", s, told)
	}
	for range 10 {
		look(Silence)
	}
	if s := w.Observed(); told != 3 || s.Alive || !alive.Since.Before(&s.Since) {
		t.Fatalf("dead: %+v, told %d times", s, told)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	w.probe(ended)
	if told != 3 {
		t.Fatal("a look that was cut short counts")
	}
}

// pair is a probe and a host's end on this machine.
func pair(t *testing.T) (probe *TCP, stop func(), address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = listener.Addr().String()
	stop = serve(t, listener)
	probe = NewTCP(address)
	t.Cleanup(func() {
		if probe.conn != nil {
			probe.drop()
		}
	})
	return probe, stop, address
}

func serve(t *testing.T, listener net.Listener) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ServeOn(ctx, listener, func() {})
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// lookAt waits for an answer for as long as a busy machine may need.
func lookAt(t *testing.T, p *TCP) Answer {
	t.Helper()
	return lookFor(t, p, time.Minute)
}

func lookFor(t *testing.T, p *TCP, wait time.Duration) Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	a, _ := p.Probe(ctx)
	return a
}

func TestEcho(t *testing.T) {
	p, stop, address := pair(t)
	for range 5 {
		if a := lookAt(t, p); a != Echoed {
			t.Fatalf("got %d", a)
		}
	}
	stop()
	for range 3 { // closed, and then no process listens
		if a := lookAt(t, p); a != Refused {
			t.Fatalf("after the plugin's end: %d", a)
		}
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	serve(t, listener)
	if a := lookAt(t, p); a != Echoed {
		t.Fatalf("after it came back: %d", a)
	}
}

// TestHung: the kernel takes the connection and what is sent, and no process
// reads it.
func TestHung(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := NewTCP(listener.Addr().String())
	for range 4 {
		if a := lookFor(t, p, Interval); a != Acknowledged {
			t.Fatalf("got %d", a)
		}
	}
	// It wakes up, and sends all that it has missed.
	serve(t, listener)
	if a := lookAt(t, p); a != Echoed {
		t.Fatalf("after it woke up: %d", a)
	}
	p.drop()
}

func TestServeWaitsForItsAddress(t *testing.T) {
	if err := Serve(t.Context(), "nonsense", func() {}); err == nil {
		t.Fatal("an address without a port is taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, "192.0.2.1:1", func() {}) }() // no machine has it: RFC 5737
	select {
	case err := <-done:
		t.Fatalf("gave up: %v", err)
	default:
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestServeBoundsItsPeers(t *testing.T) {
	_, _, address := pair(t)
	var all []*TCP
	for range maxPeers {
		p := NewTCP(address)
		if a := lookAt(t, p); a != Echoed {
			t.Fatalf("got %d", a)
		}
		all = append(all, p)
	}
	if a := lookAt(t, NewTCP(address)); a != Refused {
		t.Fatalf("one more than %d: %d", maxPeers, a)
	}
	for _, p := range all {
		p.drop()
	}
}
