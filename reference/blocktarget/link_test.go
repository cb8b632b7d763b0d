package blocktarget

import (
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"
)

func TestIOWaitsForALinkThatComesBack(t *testing.T) {
	b := newBench(t)
	k := newLink(t, b.address)
	d := open(t, k.address, b.rights.give("v", "dpu-1", "t1"), 20*time.Second)
	k.cut()
	done := make(chan error, 1)
	go func() { _, err := d.WriteAt([]byte("late"), 0); done <- err }()
	eventually(t, "the write is on its way", func() bool { return waits(d) })
	select {
	case err := <-done:
		t.Fatalf("answered over a cut link: %v", err)
	default:
	}
	k.drop() // the kernel gives up
	k.join()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(b.file("v"))
	if err != nil || string(raw[:4]) != "late" {
		t.Fatalf("%q, %v", raw[:4], err)
	}
}

func TestIOFailsWhenTheLinkStaysCut(t *testing.T) {
	b := newBench(t)
	k := newLink(t, b.address)
	d := open(t, k.address, b.rights.give("v", "dpu-1", "t1"), 200*time.Millisecond)
	k.cut()
	for name, do := range map[string]func() error{
		"write": func() error { _, err := d.WriteAt([]byte("x"), 0); return err },
		"read":  func() error { _, err := d.ReadAt(make([]byte, 1), 0); return err },
		"flush": d.Sync,
	} {
		if err := do(); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v, want EIO", name, err)
		}
	}
	k.join()
	eventually(t, "I/O works again", func() bool { return d.Sync() == nil })
	if err := d.Settled(); err != nil {
		t.Fatal(err)
	}
}

// TestNoOldWriteAfterANewConnection: what hung on a lost connection must not
// overwrite what was written on the next one.
func TestNoOldWriteAfterANewConnection(t *testing.T) {
	b := newBench(t)
	export := b.rights.give("v", "dpu-1", "t1")
	first, err := dialExport(t.Context(), b.address, export)
	if err != nil {
		t.Fatal(err)
	}
	defer first.fail(io.EOF)
	next := open(t, b.address, export, 0)
	if err := first.roundTrip(request{command: cmdWrite, length: 3}, []byte("old"), nil, 10*time.Second); !errors.Is(err, errLost) {
		t.Fatalf("the first connection still answers: %v", err)
	}
	if _, err := next.WriteAt([]byte("new"), 0); err != nil {
		t.Fatal(err)
	}
	if n := len(b.Sessions()); n != 1 {
		t.Fatalf("%d sessions, want 1", n)
	}
	// A stranger who does not know the token ends no session.
	if _, err := dialExport(t.Context(), b.address, "v@dpu-1#guess"); !errors.Is(err, ErrDenied) {
		t.Fatal(err)
	}
	if _, err := next.WriteAt([]byte("new"), 0); err != nil || len(b.Sessions()) != 1 {
		t.Fatalf("after a stranger knocked: %v", err)
	}
}

func TestServerRestarts(t *testing.T) {
	b := newBench(t)
	d := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), 0)
	errs := make(chan error, 32)
	acked, wait := writers(d, 8, func(err error) { errs <- err })
	for n := range int64(3) {
		eventually(t, "writes", func() bool { return acked.Load() > (n+1)*300 })
		b.stop()
		b.start(b.address)
	}
	last := acked.Load()
	eventually(t, "writes after the last start", func() bool { return acked.Load() > last+100 })
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	wait()
	if err := <-errs; !errors.Is(err, errClosed) {
		t.Fatal(err)
	}
}
