package patrol

import (
	"context"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

// A host lets go of a function that was plugged in when it has removed the device, within
// a second mostly, and SNAP tells no one. So it is looked for after firstTidy, and then after
// twice the time before, as long as something is left and up to the next round, which finds
// that too.
const firstTidy = 250 * time.Millisecond

// await waits for the next round, and meanwhile removes what withdrawals have left. It
// returns false if ctx ends.
func (p *Patrol) await(ctx context.Context) bool {
	round := p.o.Clock.NewTimer(p.o.Jitter(p.o.Period))
	defer round.Stop()
	var due <-chan time.Time
	wait := firstTidy
	for {
		select {
		case <-ctx.Done():
			return false
		case <-round.C():
			return true
		case <-p.o.Came:
			return true
		case <-p.o.Withdrawn:
			wait = firstTidy
			due = p.o.Clock.After(wait)
		case <-due:
			wait *= 2
			if due = nil; p.tidy(ctx) {
				due = p.o.Clock.After(wait)
			}
		}
	}
}

// tidy removes what withdrawals have left, as far as the host has let go of it, and reports
// whether something may be left.
func (p *Patrol) tidy(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	removed, left, err := p.o.Exposures.Tidy(ctx)
	if removed > 0 {
		p.o.Changed()
	}
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("what is left of withdrawn devices cannot be told", "reason", err.Error())
	}
	return left > 0 || err != nil
}
