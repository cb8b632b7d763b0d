package program

import (
	"context"
	"fmt"
	"time"
)

// How it is told that a program has settled: it looked at everything, and its queues
// were as good as empty so many looks in a row.
const (
	lookEvery = 200 * time.Millisecond
	looks     = 5
)

// Load is what a program has to do and has done.
type Load struct {
	// Waiting is how many objects wait in its queues, Passes how often it reconciled.
	Waiting, Passes float64
	// By is Passes by the name of the controller.
	By map[string]float64
}

// Load reads both.
func (p *Program) Load(ctx context.Context) (Load, error) {
	text, err := get(ctx, "http://"+p.metrics+"/metrics")
	if err != nil {
		return Load{}, fmt.Errorf("read the metrics of %s: %w", p.Name, err)
	}
	m, err := parse(text)
	return Load{
		Waiting: m.sum("workqueue_depth") + m.sum("controller_runtime_active_workers"),
		Passes:  m.sum("controller_runtime_reconcile_total"),
		By:      m.by("controller_runtime_reconcile_total", "controller"),
	}, err
}

// quiet counts the looks in a row that show nothing to do.
type quiet struct {
	// least is how many passes it takes to have seen all, few how many objects may
	// wait: those that beats put there.
	least, few float64
	row        int
	since      time.Time
}

// look takes one more look; it reports whether these were enough.
func (q *quiet) look(ready bool, l Load, now time.Time) bool {
	if !ready || l.Passes < q.least || l.Waiting > q.few {
		q.row = 0
		return false
	}
	if q.row == 0 {
		q.since = now
	}
	q.row++
	return q.row >= looks
}

// Settled waits until the program is ready, has looked at all since it was started,
// and has nothing to do, and returns when that was so first. few is how many objects
// may wait.
func (p *Program) Settled(ctx context.Context, few float64, timeout time.Duration) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	q := quiet{least: p.Reconciles, few: few}
	var last Load
	for ticker := time.NewTicker(lookEvery); ; {
		ready := p.Ready(ctx)
		if l, err := p.Load(ctx); err == nil {
			last = l
			if q.look(ready, l, time.Now()) {
				ticker.Stop()
				return q.since, nil
			}
		}
		select {
		case <-ticker.C:
		case <-p.ended:
			ticker.Stop()
			return time.Time{}, p.Running()
		case <-ctx.Done():
			ticker.Stop()
			return time.Time{}, fmt.Errorf("wait until %s has settled: not after %s: it is ready: %v, it made %.0f of %.0f passes, and %.0f objects wait",
				p.Name, timeout, ready, last.Passes, p.Reconciles, last.Waiting)
		}
	}
}
