// Package hardware plays what Moor's programs steer: the vendor's storage, the DPUs with
// SNAP and the vendor's devices on them, and hosts that write whatever they see.
//
// A write is on its way for a time. SNAP lets none of a device be on its way when it
// has taken the device away; a SNAP that ends leaves what it had sent, which lands within
// DrainBound.
package hardware

import (
	"math/rand/v2"
	"time"

	"github.com/moor-storage/moor/test/simulate/engine"
)

// DrainBound is how long the storage takes over what it has received, at most; the
// drivers are told so (--lease-drain).
const DrainBound = 8 * time.Second

// Write is one of a host.
type Write struct {
	Volume, DPU string
	// Epoch is that of the claim when the DPU was told to show the volume.
	Epoch int64
}

// Judge is told what happens.
type Judge interface {
	// Shows is asked for the epoch under which the DPU shows a volume from now on.
	Shows(dpu, volume string) int64
	// Hides tells that it does not any more.
	Hides(dpu, volume string)
	// Accepted tells of a write that has reached the medium.
	Accepted(Write)
}

// Storage is a vendor's. It knows DPUs by name.
type Storage struct {
	// Revokes: it turns away who was not admitted. Others' detach proves nothing.
	Revokes bool
	// Epochs: it knows under which epoch each device writes.
	Epochs bool
	Lies   StorageLies
	// Slow is how long every write of a DPU takes; of others it is mostly some milliseconds.
	Slow map[string]time.Duration

	engine   *engine.Engine
	dice     *rand.Rand
	judge    Judge
	admitted map[[2]string]bool
	epochs   epochs
}

// NewStorage is a storage that has admitted no DPU.
func NewStorage(e *engine.Engine, judge Judge, revokes, knowsEpochs bool) *Storage {
	return &Storage{
		Revokes: revokes, Epochs: knowsEpochs, engine: e, dice: e.Dice("storage"), judge: judge, admitted: map[[2]string]bool{},
		epochs: epochs{fenced: map[string]int64{}, open: map[[2]string]int64{}},
	}
}

// Admit lets a DPU use a volume.
func (s *Storage) Admit(volume, dpu string) { s.admitted[[2]string{volume, dpu}] = true }

// Revoke takes that back.
func (s *Storage) Revoke(volume, dpu string) { delete(s.admitted, [2]string{volume, dpu}) }

// Open reports whether a write of the DPU would be accepted.
func (s *Storage) Open(volume, dpu string) bool {
	return (!s.Revokes || s.admitted[[2]string{volume, dpu}]) && s.stands(volume, dpu)
}

// flight is a write on its way.
type flight struct {
	Write
	over bool
	// under is the epoch under which its device was open, where the storage knows epochs.
	under    int64
	received bool
	// stray: the connection that it was sent by is lost. No one can wait for its end.
	stray bool
}

// send puts a write on its way.
func (s *Storage) send(w Write) *flight {
	f := &flight{Write: w}
	took := time.Duration(s.dice.Int64N(int64(20 * time.Millisecond)))
	switch roll := s.dice.IntN(100); {
	case roll < 2:
		took = time.Duration(s.dice.Int64N(int64(DrainBound - time.Second)))
	case roll < 10:
		took = time.Duration(s.dice.Int64N(int64(time.Second)))
	}
	if slow, ok := s.Slow[w.DPU]; ok {
		took = slow
	}
	s.fly(f, took)
	return f
}

// fly lets a write land after a time.
func (s *Storage) fly(f *flight, took time.Duration) {
	if s.Epochs {
		s.depart(f)
		s.engine.After(took/2, func() { s.receive(f) })
	}
	s.engine.After(took, func() { s.land(f) })
}

func (s *Storage) land(f *flight) {
	if s.Epochs {
		s.receive(f)
	}
	if f.over {
		return
	}
	f.over = true
	if !s.Revokes || s.admitted[[2]string{f.Volume, f.DPU}] {
		s.judge.Accepted(f.Write)
	}
}
