package nvmeaccess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
)

var _ provisioner.Fencing = (*Access)(nil)

// Fence implements provisioner.Fencing. It writes the mark, takes the access of every host
// that is not of an epoch from the mark on, and answers nil only when all targets have
// listed nothing of such a host for the time of the drain. Until then the error is
// ErrUnavailable and says what is waited for; each repetition reads all of it again.
func (a *Access) Fence(ctx context.Context, volumeID string, epoch int64) error {
	if err := a.fence(ctx, volumeID, epoch); err != nil {
		return fmt.Errorf("fence volume %q below epoch %d: %w", volumeID, epoch, err)
	}
	return nil
}

func (a *Access) fence(ctx context.Context, volume string, epoch int64) error {
	if epoch < 1 {
		return fmt.Errorf("epochs begin at 1: %w", provisioner.ErrInvalid)
	}
	exports, err := a.exports(ctx, volume)
	if err != nil {
		return err
	}
	for end := a.o.Now().Add(a.o.Patience); ; {
		var waits error
		err := a.locked(ctx, volume, func() (err error) {
			waits, err = a.pass(ctx, volume, epoch, exports)
			return err
		})
		if err != nil || waits == nil {
			return err
		}
		if !a.o.Now().Before(end) {
			return fmt.Errorf("it is not over yet, repeat: %w: %w", waits, provisioner.ErrUnavailable)
		}
		if err := a.o.Wait(ctx, a.o.Poll); err != nil {
			return fmt.Errorf("%w: %w: %w", waits, err, provisioner.ErrUnavailable)
		}
	}
}

// pass is one round of the fence: waits says what is left, err that the round cannot be
// made at all.
func (a *Access) pass(ctx context.Context, volume string, epoch int64, exports []Export) (waits, err error) {
	m, found, err := a.marks.load(volume)
	if err != nil {
		return nil, err
	}
	if !found || m.Fenced < epoch {
		m.Volume, m.Fenced = volume, max(m.Fenced, epoch)
		if err := a.marks.save(m); err != nil {
			return nil, err
		}
	}
	found = false
	for _, e := range exports {
		some, err := shutOut(ctx, e, rule{base: a.o.Base, subsystem: e.Subsystem, below: m.Fenced})
		if err != nil {
			waits = errors.Join(waits, fmt.Errorf("target %s: %w", e.Name, err))
		}
		found = found || some
	}
	if waits != nil || found {
		a.unclean(volume) // what was let in may have written until now: the drain begins anew
	}
	if waits != nil {
		return waits, nil
	}
	if waits = a.drained(volume, m); waits != nil || !m.openBelow() {
		return waits, nil
	}
	m.Unanswered = slices.DeleteFunc(m.Unanswered, m.isOver)
	return nil, a.marks.save(m)
}

// shutOut takes the access that the rule does not keep, and reads back. What a removal
// answered does not count, but is told with what is left. found: there was such access.
func shutOut(ctx context.Context, e Export, r rule) (found bool, err error) {
	all, err := e.list(ctx)
	if err != nil {
		return false, err
	}
	hosts, err := r.hosts(all)
	if err != nil {
		return false, err
	}
	var removals []error
	for _, h := range hosts {
		if !r.keeps(h) {
			removals = append(removals, e.remove(ctx, h))
		}
	}
	got, err := e.read(ctx)
	if err == nil {
		err = r.waits(got)
	}
	if err != nil {
		err = errors.Join(append(removals, err)...)
	}
	return len(removals) > 0, err
}

func (a *Access) unclean(volume string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.clean, volume)
}

// drained says for what a volume that shows nothing of an earlier epoch waits still; nil
// if it has shown nothing for long enough.
func (a *Access) drained(volume string, m mark) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.o.Now()
	c, known := a.clean[volume]
	if !known || c.below != m.Fenced {
		c = clean{below: m.Fenced, since: now}
		a.clean[volume] = c
	}
	long, why := max(a.o.Drain, 0), "what was sent before may be on its way"
	if m.openBelow() && a.o.LateCall > long {
		long, why = a.o.LateCall, "the admission of an earlier epoch was asked for and not answered, and may be executed yet"
	}
	if left := long - now.Sub(c.since); left > 0 {
		return fmt.Errorf("nothing of an earlier epoch is connected, but %s: %s are left", why, left.Round(time.Millisecond))
	}
	delete(a.clean, volume)
	return nil
}
