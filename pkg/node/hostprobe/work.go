package hostprobe

import (
	"context"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// sampling is how old what a DPU tells of I/O in flight may be: SNAP's queue depths are
// sampled each 100 ms.
const sampling = 100 * time.Millisecond

// answerTime is how long an answer is waited for before SNAP is asked again.
const answerTime = time.Second

// work is what the host's devices had done at a time.
type work struct {
	// at is when the DPU was asked.
	at      time.Time
	devices map[string]provisioner.Path
}

// begunAfter is a time after which the host has begun I/O, by what its devices had done at two
// times; zero if none is known. More has ended in between than was in flight before, so some of
// it was begun since: what a host that has died left behind does not do that.
func begunAfter(before, now work) time.Time {
	for name, path := range now.devices {
		was, ok := before.devices[name]
		if ok && was.InFlight >= 0 && path.Completed-was.Completed > was.InFlight {
			return before.at.Add(-sampling)
		}
	}
	return time.Time{}
}

// worker asks what the host's devices have done, in the background: what SNAP does not answer
// delays no probe.
type worker struct {
	paths func(context.Context) []provisioner.Path
	now   func() time.Time
	// answer is what has been asked for, and last what was answered before.
	answer chan work
	last   work
}

// ask asks, unless an answer is still to come.
func (w *worker) ask(ctx context.Context, start func(func())) {
	if w.paths == nil || w.answer != nil {
		return
	}
	answer, asked := make(chan work, 1), w.now()
	w.answer = answer
	start(func() {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		paths := w.paths(ctx)
		devices := make(map[string]provisioner.Path, len(paths))
		for _, p := range paths {
			devices[p.Device] = p
		}
		answer <- work{at: asked, devices: devices}
	})
}

// begun takes the answer, if it has come, and is begunAfter by it and by the one before.
func (w *worker) begun() time.Time {
	select {
	case now := <-w.answer:
		before := w.last
		w.last, w.answer = now, nil
		return begunAfter(before, now)
	default:
		return time.Time{}
	}
}
