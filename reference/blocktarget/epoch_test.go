package blocktarget

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"
)

// at is an export of volume "v" for the DPU under an epoch.
func (b *bench) at(node string, epoch int64) string {
	return Export{Volume: "v", Node: node, Token: "t-" + node, Epoch: epoch}.String()
}

func TestExportsOfEpochs(t *testing.T) {
	for name, want := range map[string]Export{
		"v@dpu-1#t":        {Volume: "v", Node: "dpu-1", Token: "t"},
		"v@dpu-1#t!7":      {Volume: "v", Node: "dpu-1", Token: "t", Epoch: 7},
		"v@dpu-1#t!0":      {},
		"v@dpu-1#t!-1":     {},
		"v@dpu-1#t!x":      {},
		"v@dpu-1#t!":       {},
		"v@dpu-1#!7":       {},
		"v@dpu-1#t!7!8":    {},
		"v@dpu-1#t!1e30":   {},
		"v@dpu#1#t!922337": {Volume: "v", Node: "dpu#1", Token: "t", Epoch: 922337},
	} {
		got, err := ParseExport(name)
		if got != want || (err == nil) != (want != Export{}) {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
		if err == nil && (got.String() != name || got.Fingerprint() != got.At(0).Fingerprint()) {
			t.Errorf("%q: its text is %q, its fingerprint depends on the epoch: %t", name, got.String(), got.Fingerprint() != got.At(0).Fingerprint())
		}
	}
}

// TestFencedEpochs: under an epoch that is over nothing is opened, also by a target
// that was started anew; what has no epoch is opened and changes nothing.
func TestFencedEpochs(t *testing.T) {
	b := newBench(t)
	b.rights.give("v", "dpu-1", "t-dpu-1")
	b.rights.fence("v", 5)
	for range 2 {
		for _, epoch := range []int64{1, 4} {
			if _, err := OpenDevice(t.Context(), DeviceOptions{Address: b.address, Export: b.at("dpu-1", epoch)}); !errors.Is(err, ErrDenied) {
				t.Errorf("open at epoch %d: %v", epoch, err)
			}
		}
		for _, epoch := range []int64{5, 6} {
			d := open(t, b.address, b.at("dpu-1", epoch), 0)
			if _, err := d.WriteAt([]byte("x"), 0); err != nil {
				t.Errorf("write under epoch %d: %v", epoch, err)
			}
			_ = d.Close()
		}
		none := open(t, b.address, b.at("dpu-1", 0), 0)
		_, writing := none.WriteAt([]byte("x"), 0)
		_, reading := none.ReadAt(make([]byte, 1), 0)
		if clearing := none.Punch(3, 0, 4096); !errors.Is(writing, syscall.EPERM) || !errors.Is(clearing, syscall.EPERM) || reading != nil {
			t.Errorf("without an epoch: write %v, clear %v, read %v", writing, clearing, reading)
		}
		_ = none.Close()
		b.stop()
		b.start(b.address)
	}
}

// TestFence: sessions of earlier epochs end, those without one change nothing any more,
// those of the epoch and later ones go on, and so does any other volume.
func TestFence(t *testing.T) {
	b := newBench(t)
	devices := map[int64]*Device{}
	for epoch, node := range []string{"dpu-0", "dpu-1", "dpu-2", "dpu-3"} {
		b.rights.give("v", node, "t-"+node)
		devices[int64(epoch)] = open(t, b.address, b.at(node, int64(epoch)), 0)
	}
	b.volume("w")
	other := open(t, b.address, b.rights.give("w", "dpu-1", "t"), 0)
	b.rights.fence("v", 2)
	for i, want := range []int{2, 1} { // repeated, there is the one that has no epoch
		if n := b.Fence("v", 2); n != want {
			t.Errorf("call %d concerned %d sessions, want %d", i, n, want)
		}
	}
	if n := b.Fence("v", 1); n != 1 {
		t.Errorf("an earlier epoch concerned %d sessions", n)
	}
	for epoch, want := range map[int64]error{0: syscall.EPERM, 1: ErrDenied, 2: nil, 3: nil} {
		if _, err := devices[epoch].WriteAt([]byte("x"), epoch); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("a write under epoch %d: %v, want %v", epoch, err, want)
		}
	}
	if _, err := devices[0].ReadAt(make([]byte, 1), 0); err != nil {
		t.Errorf("a read without an epoch: %v", err)
	}
	if _, err := other.WriteAt([]byte("x"), 0); err != nil {
		t.Errorf("another volume: %v", err)
	}
}

// TestFenceWaitsForTheMedium: what was in flight under an earlier epoch, or without
// one, is done before the fence is answered.
func TestFenceWaitsForTheMedium(t *testing.T) {
	for name, epoch := range map[string]int64{"of an earlier epoch": 1, "without an epoch": 0} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.rights.give("v", "dpu-1", "t-dpu-1")
			b.rights.give("v", "dpu-2", "t-dpu-2")
			free, done := inTheMedium(t, b, b.at("dpu-1", epoch))
			b.rights.fence("v", 2)
			fenced := make(chan int, 1)
			go func() { fenced <- b.Fence("v", 2) }()
			stillWaits(t, "fence", fenced)
			again := make(chan int, 1)
			go func() { again <- b.Fence("v", 2) }()
			stillWaits(t, "fence again", again)
			free()
			<-fenced
			<-again
			<-done
			if !slices.Equal(b.log.all(), []string{"dpu-1"}) {
				t.Fatalf("writes %v", b.log.all())
			}
			next := open(t, b.address, b.at("dpu-2", 2), 0)
			if _, err := next.WriteAt([]byte("new"), 0); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestFenceUnderLoad: nothing of an earlier epoch arrives once the fence has answered,
// though the writer goes on and its right to open the volume stands.
func TestFenceUnderLoad(t *testing.T) {
	b := newBench(t)
	b.rights.give("v", "dpu-1", "t-dpu-1")
	d := open(t, b.address, b.at("dpu-1", 1), 0)
	errs := make(chan error, 32)
	acked, wait := writers(d, 32, func(err error) { errs <- err })
	eventually(t, "2000 acknowledged writes", func() bool { return acked.Load() > 2000 })
	b.rights.fence("v", 2)
	if n := b.Fence("v", 2); n != 1 {
		t.Fatalf("%d sessions were ended, want 1", n)
	}
	content, writes := digestOf(t, b.file("v")), len(b.log.all())
	wait()
	if err := <-errs; !errors.Is(err, syscall.EIO) || !errors.Is(err, ErrDenied) {
		t.Fatalf("the old writer got %v, want EIO", err)
	}
	if content != digestOf(t, b.file("v")) || writes != len(b.log.all()) {
		t.Fatal("a write arrived after the fence")
	}
	if err := d.Settled(); err != nil {
		t.Fatal(err)
	}
}

// TestRaise: a device is opened under later epochs, also where the target had said no
// to the one it had; never under an earlier one, nor under one that is over.
func TestRaise(t *testing.T) {
	b := newBench(t)
	b.rights.give("v", "dpu-1", "t-dpu-1")
	d := open(t, b.address, b.at("dpu-1", 0), 0)
	writes := func() error { _, err := d.WriteAt([]byte("x"), 0); return err }
	for _, epoch := range []int64{3, 3, 5} {
		if err := d.Raise(t.Context(), epoch); err != nil {
			t.Fatalf("raise to %d: %v", epoch, err)
		}
		b.rights.fence("v", epoch)
		b.Fence("v", epoch)
		if err := writes(); err != nil {
			t.Fatalf("write under epoch %d: %v", epoch, err)
		}
	}
	for _, epoch := range []int64{-1, 0, 1, 4} {
		if err := d.Raise(t.Context(), epoch); !errors.Is(err, ErrDenied) {
			t.Errorf("raise to %d: %v", epoch, err)
		}
	}
	b.rights.fence("v", 9)
	if err := d.Raise(t.Context(), 8); !errors.Is(err, ErrDenied) {
		t.Errorf("raise to an epoch that is over: %v", err)
	}
	b.Fence("v", 9)
	if err := writes(); !errors.Is(err, ErrDenied) {
		t.Fatalf("write under an epoch that is over: %v", err)
	}
	if err := d.Raise(t.Context(), 9); err != nil {
		t.Fatal(err)
	}
	if err := writes(); err != nil {
		t.Fatalf("write after it was opened anew: %v", err)
	}
}

// TestRaiseAsksTheTarget: that the device is at an epoch whose end it has not noticed yet is no answer.
func TestRaiseAsksTheTarget(t *testing.T) {
	b := newBench(t)
	b.rights.give("v", "dpu-1", "t-dpu-1")
	d := open(t, b.address, b.at("dpu-1", 0), 0)
	if err := d.Raise(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	b.rights.fence("v", 6) // its connection stands yet
	if err := d.Raise(t.Context(), 5); !errors.Is(err, ErrDenied) {
		t.Errorf("raise to an epoch that is over: %v", err)
	}
}

// TestRaiseEndsWhatWasSent: what the device had sent before is done before the epoch
// counts, and nothing of it arrives later.
func TestRaiseEndsWhatWasSent(t *testing.T) {
	b := newBench(t)
	b.rights.give("v", "dpu-1", "t-dpu-1")
	d := open(t, b.address, b.at("dpu-1", 0), time.Minute)
	free, wrote := b.log.stick(), make(chan error, 1)
	defer free()
	go func() {
		_, err := d.WriteAt([]byte("x"), 0)
		wrote <- err
	}()
	eventually(t, "the write is in the medium", func() bool { return b.log.holds() == 1 })
	raised := make(chan error, 1)
	go func() { raised <- d.Raise(t.Context(), 1) }()
	stillWaits(t, "raise", raised)
	free()
	if err := errors.Join(<-raised, <-wrote); err != nil {
		t.Fatal(err)
	}
}

// TestRaiseWithoutATarget leaves open whether it was done, and is repeated.
func TestRaiseWithoutATarget(t *testing.T) {
	b := newBench(t)
	b.rights.give("v", "dpu-1", "t-dpu-1")
	d := open(t, b.address, b.at("dpu-1", 0), time.Second)
	b.stop()
	if err := d.Raise(t.Context(), 1); err == nil || errors.Is(err, ErrDenied) {
		t.Fatalf("raise without a target: %v", err)
	}
	b.start(b.address)
	if err := d.Raise(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	given, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Raise(given, 2); err == nil {
		t.Error("raised by a caller that has given up")
	}
}
