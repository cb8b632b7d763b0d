package provisionertest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// FencingUnderTest is a storage that fences volumes by epochs, and the ways to use it.
type FencingUnderTest struct {
	Fencing provisioner.Fencing
	// Volume makes a single-writer volume and returns its ID.
	Volume func(t *testing.T, name string) string
	// Open lets the node use the volume and opens it there under the epoch, or without
	// one if that is 0. write changes the volume through what was opened.
	Open func(t *testing.T, volumeID, node string, epoch int64) (write func() error, err error)
	// Restart ends the storage and starts it anew: it knows what was durable.
	Restart func(t *testing.T)
}

// TestFencing checks the contract of provisioner.Fencing. Each case calls open for a
// storage of its own.
func TestFencing(t *testing.T, open func(t *testing.T) FencingUnderTest) {
	t.Helper()
	cases := map[string]func(*testing.T, FencingUnderTest){
		"fence wrongly":               fenceWrongly,
		"earlier epochs are refused":  fenceRefuses,
		"what is open is refused":     fenceEnds,
		"it never goes back":          fenceStays,
		"it is durable":               fenceDurable,
		"what is in flight has ended": fenceInFlight,
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(t, open(t)) })
	}
}

func fenceWrongly(t *testing.T, f FencingUnderTest) {
	ctx, id := suiteContext(t), f.Volume(t, "one")
	for _, epoch := range []int64{0, -1} {
		wantError(t, "fence below no epoch", f.Fencing.Fence(ctx, id, epoch), provisioner.ErrInvalid)
	}
	wantError(t, "fence an unknown volume", f.Fencing.Fence(ctx, "no-such-volume", 1), provisioner.ErrNotFound)
	wantError(t, "fence no volume", f.Fencing.Fence(ctx, "", 1), provisioner.ErrInvalid, provisioner.ErrNotFound)
}

// wantChange expects that a change by a node, which opens the volume under an epoch, is
// accepted, or refused. What it has opened is closed after that: a node opens a volume once.
func (f FencingUnderTest) wantChange(t *testing.T, id, node string, epoch int64, accepted bool) {
	t.Helper()
	t.Run(fmt.Sprintf("%s by %s under epoch %d", id, node, epoch), func(t *testing.T) {
		write, err := f.Open(t, id, node, epoch)
		if err == nil {
			err = write()
		}
		if (err == nil) != accepted {
			t.Errorf("accepted: %t, want %t: %v", err == nil, accepted, err)
		}
	})
}

func fenceRefuses(t *testing.T, f FencingUnderTest) {
	ctx, id, other := suiteContext(t), f.Volume(t, "one"), f.Volume(t, "two")
	wantNil(t, "fence", f.Fencing.Fence(ctx, id, 3))
	for epoch, want := range map[int64]bool{0: false, 1: false, 2: false, 3: true, 4: true} {
		f.wantChange(t, id, NodeA, epoch, want)
	}
	for _, epoch := range []int64{0, 1} {
		f.wantChange(t, other, NodeA, epoch, true)
	}
}

func fenceEnds(t *testing.T, f FencingUnderTest) {
	ctx, id := suiteContext(t), f.Volume(t, "one")
	without, err := f.Open(t, id, NodeA, 0)
	wantNil(t, "open without an epoch", err)
	wantNil(t, "write without an epoch", without())
	wantNil(t, "fence", f.Fencing.Fence(ctx, id, 1))
	if without() == nil {
		t.Fatal("what was opened without an epoch writes on")
	}
	first, err := f.Open(t, id, NodeA, 1)
	wantNil(t, "open at epoch 1", err)
	wantNil(t, "write under epoch 1", first())
	wantNil(t, "fence the epochs before", f.Fencing.Fence(ctx, id, 1))
	wantNil(t, "write under epoch 1", first())
	wantNil(t, "fence", f.Fencing.Fence(ctx, id, 2))
	if first() == nil {
		t.Fatal("what was opened at epoch 1 writes on")
	}
	f.wantChange(t, id, NodeB, 2, true)
}

func fenceStays(t *testing.T, f FencingUnderTest) {
	ctx, id := suiteContext(t), f.Volume(t, "one")
	for _, epoch := range []int64{5, 5, 2} {
		wantNil(t, "fence", f.Fencing.Fence(ctx, id, epoch))
	}
	f.wantChange(t, id, NodeA, 4, false) // a fence of an earlier epoch takes no later one back
	f.wantChange(t, id, NodeA, 5, true)
}

func fenceDurable(t *testing.T, f FencingUnderTest) {
	ctx, id := suiteContext(t), f.Volume(t, "one")
	wantNil(t, "fence", f.Fencing.Fence(ctx, id, 3))
	f.Restart(t)
	for epoch, want := range map[int64]bool{0: false, 2: false, 3: true} { // as before the restart
		f.wantChange(t, id, NodeA, epoch, want)
	}
}

// fenceInFlight: no write is acknowledged that was sent before the fence answered and
// had its effect afterwards; so none begins or ends well after it.
func fenceInFlight(t *testing.T, f FencingUnderTest) {
	ctx, id := suiteContext(t), f.Volume(t, "one")
	write, err := f.Open(t, id, NodeA, 1)
	wantNil(t, "open at epoch 1", err)
	var all sync.WaitGroup
	begun := make(chan struct{}, workers)
	for range workers {
		all.Go(func() {
			for i := 0; write() == nil; i++ {
				if i == 0 {
					begun <- struct{}{}
				}
			}
		})
	}
	for range workers {
		<-begun
	}
	wantNil(t, "fence", untilCertain(ctx, func() error { return f.Fencing.Fence(ctx, id, 2) }))
	if write() == nil {
		t.Error("a write under epoch 1 is accepted after the fence")
	}
	all.Wait()
}

// EpochsUnderTest is a Host that opens its devices under epochs.
type EpochsUnderTest struct {
	HostUnderTest
	Epochs provisioner.Epochs
}

// TestEpochs checks the contract of provisioner.Epochs, as far as the machine of the
// devices shows it; what the storage makes of the epochs TestFencing checks. Each case
// calls open for a machine of its own without open devices.
func TestEpochs(t *testing.T, open func(t *testing.T) EpochsUnderTest) {
	t.Helper()
	cases := map[string]func(*testing.T, EpochsUnderTest){
		"open wrongly":       epochsWrongly,
		"repeated and later": epochsLater,
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(t, open(t)) })
	}
}

func epochsWrongly(t *testing.T, e EpochsUnderTest) {
	ctx, spec := suiteContext(t), e.Prepare(t, "one")
	wantError(t, "open what is not there", e.Epochs.OpenAtEpoch(ctx, spec.VolumeID, "no-such-device", 1), provisioner.ErrNotFound)
	d, err := e.Host.Open(ctx, spec)
	wantNil(t, "open", err)
	wantError(t, "open at no epoch", e.Epochs.OpenAtEpoch(ctx, spec.VolumeID, d.Name, 0), provisioner.ErrInvalid, provisioner.ErrPrecondition)
	wantNil(t, "open at epoch 1", e.Epochs.OpenAtEpoch(ctx, spec.VolumeID, d.Name, 1))
	wantNil(t, "close", e.Host.Close(ctx, spec.VolumeID, d.Name))
	wantError(t, "open what is gone", e.Epochs.OpenAtEpoch(ctx, spec.VolumeID, d.Name, 2), provisioner.ErrNotFound)
}

func epochsLater(t *testing.T, e EpochsUnderTest) {
	ctx, spec := suiteContext(t), e.Prepare(t, "one")
	d, err := e.Host.Open(ctx, spec)
	wantNil(t, "open", err)
	for _, epoch := range []int64{2, 2, 5} {
		wantNil(t, "open at an epoch", e.Epochs.OpenAtEpoch(ctx, spec.VolumeID, d.Name, epoch))
	}
	wantError(t, "open at an earlier epoch", e.Epochs.OpenAtEpoch(ctx, spec.VolumeID, d.Name, 4), provisioner.ErrPrecondition)
	again, err := e.Host.Open(ctx, spec)
	wantNil(t, "open again", err)
	wantNil(t, "open it at its epoch", e.Epochs.OpenAtEpoch(ctx, spec.VolumeID, again.Name, 5))
}
