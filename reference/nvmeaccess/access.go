package nvmeaccess

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/files"
)

// The defaults of Options.
const (
	DefaultDrain    = time.Second
	DefaultLateCall = 30 * time.Second
	DefaultPatience = 5 * time.Second
	DefaultPoll     = 200 * time.Millisecond
)

// Options describe how the targets of a vendor are reached and believed.
type Options struct {
	// Dir has a small file for each volume. It has to be there, on a disk that outlives
	// the process and its machine's power, and the same for all who admit and fence.
	Dir string
	// Base is what all host NQNs begin with.
	Base string
	// Exports are all places at which a volume can be reached. provisioner.ErrNotFound if
	// there is no such volume; an error, and not fewer, if one cannot be told now.
	Exports func(ctx context.Context, volume string) ([]Export, error)
	// Drain is how long the lists have to show nothing of an epoch before it counts: as
	// long as a write may take that the target no longer lists, or a connection that it
	// admitted and does not list yet. Negative: none.
	Drain time.Duration
	// LateCall is when an admission is executed at the latest that was asked for and not
	// answered, by this process or one that was killed.
	LateCall time.Duration
	// Patience is how long Fence goes on reading before it says what it waits for; Poll
	// is how often it reads.
	Patience, Poll time.Duration
	// Now and Wait are the clock; real time if nil. Now must not go back.
	Now  func() time.Time
	Wait func(ctx context.Context, d time.Duration) error
}

// Access admits and fences. Safe for concurrent use, also by several processes on one Dir.
type Access struct {
	o     Options
	marks marks

	mu sync.Mutex
	// clean is since when, in this process, each volume has shown nothing below an epoch.
	// It is in memory: a process that starts waits anew, and proves nothing by it.
	clean map[string]clean
}

type clean struct {
	below int64
	since time.Time
}

// New checks the options and returns an Access.
func New(o Options) (*Access, error) {
	if err := checkBase(o.Base); err != nil {
		return nil, err
	}
	if o.Exports == nil || o.Dir == "" {
		return nil, fmt.Errorf("exports and a directory are needed: %w", provisioner.ErrInvalid)
	}
	o.Drain, o.LateCall = cmp.Or(o.Drain, DefaultDrain), cmp.Or(o.LateCall, DefaultLateCall)
	o.Patience, o.Poll = cmp.Or(o.Patience, DefaultPatience), cmp.Or(o.Poll, DefaultPoll)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Wait == nil {
		o.Wait = wait
	}
	return &Access{o: o, marks: marks{o.Dir}, clean: map[string]clean{}}, nil
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Create begins a volume without a fence; one that has begun stays as it is. It belongs
// into CreateVolume, before the volume is known to anything else.
func (a *Access) Create(ctx context.Context, volume string) error {
	return a.locked(ctx, volume, func() error {
		if _, found, err := a.marks.load(volume); found || err != nil {
			return err
		}
		return a.marks.save(mark{Volume: volume})
	})
}

// Delete forgets a volume that is exported no more; one that is gone is success.
func (a *Access) Delete(ctx context.Context, volume string) error {
	return a.locked(ctx, volume, func() error { return files.Remove(a.marks.path(volume, ".json")) })
}

// locked calls do while this call alone works on the volume. Another holds it for no
// longer than its calls of the target take, so it is waited for a while.
func (a *Access) locked(ctx context.Context, volume string, do func() error) error {
	for end := a.o.Now().Add(a.o.Patience); ; {
		unlock, err := a.marks.lock(volume)
		if err == nil {
			defer unlock()
			return do()
		}
		if !errors.Is(err, provisioner.ErrBusy) || !a.o.Now().Before(end) {
			return err
		}
		if err := a.o.Wait(ctx, a.o.Poll); err != nil {
			return err
		}
	}
}

func (a *Access) exports(ctx context.Context, volume string) ([]Export, error) {
	if volume == "" {
		return nil, fmt.Errorf("no volume is named: %w", provisioner.ErrInvalid)
	}
	all, err := a.o.Exports(ctx, volume)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("it is not known where it is exported: %w", provisioner.ErrUnavailable)
	}
	return all, err
}

// Admit lets the host NQN of an epoch connect to the volume, at all its targets, and
// returns it. ErrPrecondition if the epoch is fenced, or the volume has no mark: then
// nothing has changed. Epoch 0 is without one, and over with the first fence.
func (a *Access) Admit(ctx context.Context, volume string, epoch int64) (hostNQN string, err error) {
	hostNQN = HostNQN(a.o.Base, epoch)
	if epoch < 0 {
		err = fmt.Errorf("there is no epoch below 0: %w", provisioner.ErrInvalid)
	}
	var exports []Export
	if err == nil {
		exports, err = a.exports(ctx, volume)
	}
	if err == nil {
		err = a.locked(ctx, volume, func() error { return a.admit(ctx, volume, epoch, hostNQN, exports) })
	}
	if err != nil {
		return "", fmt.Errorf("admit epoch %d to volume %q: %w", epoch, volume, err)
	}
	return hostNQN, nil
}

func (a *Access) admit(ctx context.Context, volume string, epoch int64, hostNQN string, exports []Export) error {
	m, found, err := a.marks.load(volume)
	switch {
	case err != nil:
		return err
	case !found:
		return fmt.Errorf("which epochs are over is not on record, was %s lost? A fence makes the record anew: %w", a.o.Dir, provisioner.ErrPrecondition)
	case epoch < m.Fenced:
		return fmt.Errorf("epochs below %d are over: %w", m.Fenced, provisioner.ErrPrecondition)
	}
	r := rule{base: a.o.Base, below: m.Fenced}
	for _, e := range exports {
		r.subsystem = e.Subsystem
		all, err := e.list(ctx)
		if err != nil {
			return unavailable(e, err)
		}
		hosts, err := r.hosts(all)
		if err != nil {
			return unavailable(e, err)
		}
		if slices.Contains(hosts, hostNQN) {
			continue // newer versions refuse to add it again
		}
		if err := a.ask(m, epoch, func() error { return e.add(ctx, hostNQN) }); err != nil {
			return unavailable(e, err)
		}
	}
	return nil
}

// ask has an admission on record from before it is asked for until this very call was
// answered. An earlier one without an answer stays on record: it may be executed yet.
func (a *Access) ask(m mark, epoch int64, add func() error) error {
	if slices.Contains(m.Unanswered, epoch) {
		return add()
	}
	before := m.Unanswered
	m.Unanswered = append(slices.Clone(before), epoch)
	if err := a.marks.save(m); err != nil {
		return err
	}
	err := add()
	if err != nil && !refused(err) {
		return err
	}
	m.Unanswered = before
	return errors.Join(err, a.marks.save(m))
}

func unavailable(e Export, err error) error {
	return fmt.Errorf("target %s: %w: %w", e.Name, err, provisioner.ErrUnavailable)
}
