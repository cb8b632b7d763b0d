package blocktarget

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/moor-storage/moor/reference/blocktarget/admission"
)

// admin serves the admin socket of the bench and returns a client of it.
func (b *bench) admin(store, asks string) *Admin {
	b.t.Helper()
	dir, err := os.MkdirTemp("", "moor")
	if err != nil {
		b.t.Fatal(err)
	}
	socket := filepath.Join(dir, "a.sock")
	l, err := ListenAdmin(socket)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ServeAdmin(ctx, l, b.AdminHandler(store)) }()
	b.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, os.RemoveAll(dir)); err != nil {
			b.t.Error(err)
		}
	})
	return NewAdmin(socket, asks, 20*time.Second)
}

func block(fill byte) []byte { return bytes.Repeat([]byte{fill}, 4096) }

// TestPauseHoldsWritesUp: what is written during a pause reaches the medium
// after it, reads go on, and a fence does not wait for it.
func TestPauseHoldsWritesUp(t *testing.T) {
	b := newBench(t)
	admin := b.admin("s", "s")
	d := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), 0)
	if _, err := d.WriteAt(block(1), 0); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	err := admin.Pause(t.Context(), []string{"v", "v", "never opened"}, func(context.Context) error {
		go func() {
			_, err := d.WriteAt(block(2), 0)
			written <- err
		}()
		eventually(t, "the write has arrived", func() bool { return b.Sessions()[0].InFlight == 0 && len(d.pending()) == 1 })
		got := make([]byte, 4096)
		if _, err := d.ReadAt(got, 0); err != nil || !bytes.Equal(got, block(1)) {
			t.Errorf("read in a pause: %v, or what was written in it", err)
		}
		onMedium, err := os.ReadFile(b.file("v"))
		if err != nil || !bytes.Equal(onMedium[:4096], block(1)) {
			t.Errorf("the medium changed in a pause, %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatalf("the write after the pause: %v", err)
	}
	if got := b.log.all(); len(got) != 2 {
		t.Fatalf("%d writes", len(got))
	}
}

// pending are the requests that wait for an answer.
func (d *Device) pending() map[uint64]*call {
	d.mu.Lock()
	c := d.conn
	d.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[uint64]*call{}
	for k, v := range c.pending {
		out[k] = v
	}
	return out
}

func TestRevokeInAPause(t *testing.T) {
	b := newBench(t)
	d := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), time.Second)
	written := make(chan error, 1)
	err := b.Pause(t.Context(), []string{"v"}, func(context.Context) error {
		go func() {
			_, err := d.WriteAt(block(2), 0)
			written <- err
		}()
		eventually(t, "the write waits", func() bool { return len(d.pending()) == 1 })
		b.rights.take("v", "dpu-1")
		if n := b.Revoke("v", "dpu-1"); n != 1 {
			t.Errorf("%d sessions revoked", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-written; err == nil {
		t.Fatal("a write was acknowledged whose right was taken back in the pause")
	}
	if got := b.log.all(); len(got) != 0 {
		t.Fatalf("it reached the medium: %v", got)
	}
}

func TestPauseThatEndsEarlyIsNone(t *testing.T) {
	b := newBench(t)
	admin := b.admin("s", "s")
	err := admin.Pause(t.Context(), []string{"v"}, func(ctx context.Context) error {
		<-ctx.Done() // longer than a pause may last
		return nil
	})
	if !errors.Is(err, ErrUnreachable) {
		t.Fatalf("got %v", err)
	}
	err = b.admin("s", "other").Pause(t.Context(), []string{"v"}, func(context.Context) error {
		t.Error("a pause of another store's target")
		return nil
	})
	if !errors.Is(err, ErrUnreachable) {
		t.Fatalf("got %v", err)
	}
	// Nothing waits after either.
	d := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), 0)
	if _, err := d.WriteAt(block(1), 0); err != nil {
		t.Fatal(err)
	}
}

func TestPauseReturnsTheError(t *testing.T) {
	b, want := newBench(t), errors.New("no room")
	err := b.admin("s", "s").Pause(t.Context(), []string{"v"}, func(context.Context) error { return want })
	if !errors.Is(err, want) || errors.Is(err, ErrUnreachable) {
		t.Fatalf("got %v", err)
	}
}

func TestVolumesGrow(t *testing.T) {
	b := newBench(t)
	d := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), 0)
	if _, err := d.WriteAt(block(1), volumeSize); err == nil {
		t.Fatal("a write beyond the end")
	}
	if err := os.Truncate(b.file("v"), 2*volumeSize); err != nil {
		t.Fatal(err)
	}
	if d.Size() != volumeSize {
		t.Fatalf("size %d before the rescan", d.Size())
	}
	if n, err := d.Refresh(t.Context()); err != nil || n != 2*volumeSize || d.Size() != n {
		t.Fatalf("size %d, %v", n, err)
	}
	if _, err := d.WriteAt(block(3), 2*volumeSize-4096); err != nil {
		t.Fatalf("a write in the new part: %v", err)
	}
	b.stop()
	b.start(b.address)
	got := make([]byte, 4096)
	if _, err := d.ReadAt(got, 2*volumeSize-4096); err != nil || !bytes.Equal(got, block(3)) {
		t.Fatalf("after a new connection: %v", err)
	}
	b.rights.take("v", "dpu-1")
	if _, err := d.Refresh(t.Context()); !errors.Is(err, ErrDenied) {
		t.Fatalf("refresh without a right: %v", err)
	}
}

// TestLimitsHold: a change of limits slows down who has the volume open, all of
// them together, and another one lets them go.
func TestLimitsHold(t *testing.T) {
	b := newBench(t)
	admin := b.admin("s", "s")
	one := open(t, b.address, b.rights.give("v", "dpu-1", "t1"), 0)
	two := open(t, b.address, b.rights.give("v", "dpu-2", "t2"), 0)
	write := func() time.Duration {
		start := time.Now()
		for i := range int64(2) {
			for _, d := range []*Device{one, two} {
				if _, err := d.WriteAt(make([]byte, 1<<20), i<<20); err != nil {
					t.Fatal(err)
				}
			}
		}
		return time.Since(start)
	}
	b.rights.set(func(r *rights) { r.limits = admission.Limits{BytesPerSecond: LeastBytesPerSecond} })
	if err := admin.Adjust(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
	if took := write(); took < 250*time.Millisecond {
		t.Errorf("4 MiB at 8 MiB/s took %s", took)
	}
	b.rights.set(func(r *rights) { r.limits = admission.Limits{IOPS: 4} })
	if err := admin.Adjust(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
	if took := write(); took < 500*time.Millisecond {
		t.Errorf("4 writes at 4 a second took %s", took)
	}
}

// TestRevokeEndsTheWaitForLimits: a revocation lets go what waits for its turn,
// at one request a second for a minute, and does none of it.
func TestRevokeEndsTheWaitForLimits(t *testing.T) {
	b := newBench(t)
	b.rights.set(func(r *rights) { r.limits = admission.Limits{IOPS: 1} })
	c, err := dialExport(t.Context(), b.address, b.rights.give("v", "dpu-1", "t1"))
	if err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for range maxInFlight {
		writers.Go(func() {
			_ = c.roundTrip(request{command: cmdWrite, length: 3}, []byte("old"), nil, time.Hour)
		})
	}
	eventually(t, "the second write had its turn", func() bool { return len(b.log.all()) > 1 })
	b.rights.take("v", "dpu-1")
	ended := make(chan struct{})
	go func() {
		b.Revoke("v", "dpu-1")
		b.stop() // until nothing is left that could write
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(maxInFlight * time.Second / 2):
		t.Fatal("what is revoked goes on waiting for its turn")
	}
	writers.Wait()
	<-c.stopped
	if n := len(b.log.all()); n >= maxInFlight/2 {
		t.Errorf("%d of %d writes were done", n, maxInFlight)
	}
}
