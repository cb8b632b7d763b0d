package hardware

import (
	"fmt"
	"slices"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// epochs is what a storage knows that looks at the epoch of each write when it receives it, and
// executes it later.
type epochs struct {
	// fenced is below which epoch nothing of a volume is received.
	fenced map[string]int64
	// open is under which epoch the device of a DPU is open, by volume and DPU; 0: under none.
	open map[[2]string]int64
	// flights are the writes that were sent, and are not over.
	flights []*flight
	// refused counts those that were below a fence.
	refused int
}

// StorageLies are promises that a storage can break, to find out whether that is noticed.
type StorageLies struct {
	// EarlyFence: it says that it has fenced while it has writes of an earlier epoch yet.
	EarlyFence bool
	// NoFence: it says that it has fenced, and receives all.
	NoFence bool
}

// Refused is how many writes were refused since their epoch was over at the storage.
func (s *Storage) Refused() int { return s.epochs.refused }

// Fence has the storage receive nothing of a volume below an epoch any more. It fails while
// something of before is not executed: it is to be asked again.
func (s *Storage) Fence(volume string, epoch int64) error {
	if s.Lies.NoFence {
		return nil
	}
	s.epochs.fenced[volume] = max(s.epochs.fenced[volume], epoch)
	if s.Lies.EarlyFence {
		return nil
	}
	for _, f := range s.epochs.flights {
		if f.received && f.Volume == volume && f.under < s.epochs.fenced[volume] && !f.over {
			return fmt.Errorf("a write of %s under epoch %d is not executed yet: %w", f.DPU, f.under, provisioner.ErrUnavailable)
		}
	}
	return nil
}

// OpenAt opens the device of a DPU under an epoch. What was sent before under another one, and
// was not received, never is.
func (s *Storage) OpenAt(volume, dpu string, epoch int64) error {
	device := [2]string{volume, dpu}
	if epoch < s.epochs.fenced[volume] || epoch < s.epochs.open[device] {
		return fmt.Errorf("volume %s is fenced below epoch %d, and open at epoch %d: %w", volume, s.epochs.fenced[volume], s.epochs.open[device], provisioner.ErrPrecondition)
	}
	s.epochs.open[device] = epoch
	for _, f := range s.epochs.flights {
		if f.Volume == volume && f.DPU == dpu && f.under != epoch && !f.received {
			f.over = true
		}
	}
	return nil
}

// close takes note that a device is made anew, or is gone: it is open under no epoch.
func (s *Storage) close(volume, dpu string) { delete(s.epochs.open, [2]string{volume, dpu}) }

// stands reports whether what the DPU sends now would be received.
func (s *Storage) stands(volume, dpu string) bool {
	return !s.Epochs || s.epochs.open[[2]string{volume, dpu}] >= s.epochs.fenced[volume]
}

// depart notes under which epoch a write is sent.
func (s *Storage) depart(f *flight) {
	f.under = s.epochs.open[[2]string{f.Volume, f.DPU}]
	s.epochs.flights = append(slices.DeleteFunc(s.epochs.flights, func(f *flight) bool { return f.over }), f)
}

// receive takes a write, unless its epoch is over.
func (s *Storage) receive(f *flight) {
	if f.over || f.received {
		return
	}
	if f.received = f.under >= s.epochs.fenced[f.Volume]; !f.received {
		f.over = true
		s.epochs.refused++
	}
}
