package provisionertest

import (
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

// accepts reports whether a node can change the volume that it opens under an epoch.
func (f FencingUnderTest) accepts(t *testing.T, id, node string, epoch int64) bool {
	t.Helper()
	write, err := f.Open(t, id, node, epoch)
	return err == nil && write() == nil
}

func fenceRefuses(t *testing.T, f FencingUnderTest) {
	ctx, id, other := suiteContext(t), f.Volume(t, "one"), f.Volume(t, "two")
	wantNil(t, "fence", f.Fencing.Fence(ctx, id, 3))
	for epoch, want := range map[int64]bool{0: false, 1: false, 2: false, 3: true, 4: true} {
		if got := f.accepts(t, id, NodeA, epoch); got != want {
			t.Errorf("a change under epoch %d is accepted: %t, want %t", epoch, got, want)
		}
	}
	for _, epoch := range []int64{0, 1} {
		if !f.accepts(t, other, NodeA, epoch) {
			t.Errorf("a change of another volume under epoch %d is refused", epoch)
		}
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
	if !f.accepts(t, id, NodeB, 2) {
		t.Fatal("epoch 2 is refused")
	}
}

func fenceStays(t *testing.T, f FencingUnderTest) {
	ctx, id := suiteContext(t), f.Volume(t, "one")
	for _, epoch := range []int64{5, 5, 2} {
		wantNil(t, "fence", f.Fencing.Fence(ctx, id, epoch))
	}
	if f.accepts(t, id, NodeA, 4) || !f.accepts(t, id, NodeA, 5) {
		t.Fatal("a fence of an earlier epoch took a later one back")
	}
}

func fenceDurable(t *testing.T, f FencingUnderTest) {
	ctx, id := suiteContext(t), f.Volume(t, "one")
	wantNil(t, "fence", f.Fencing.Fence(ctx, id, 3))
	f.Restart(t)
	if f.accepts(t, id, NodeA, 2) || f.accepts(t, id, NodeA, 0) || !f.accepts(t, id, NodeA, 3) {
		t.Fatal("a restart of the storage has changed what it accepts")
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
