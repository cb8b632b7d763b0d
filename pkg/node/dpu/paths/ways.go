package paths

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// mostLost is how many lost ways are told of: the most that the API allows.
const mostLost = 1024

// mostBorne is the longest that is told to have been borne: the most that the API allows.
const mostBorne = time.Hour

// Ways is what is known of the ways of this DPU's devices to their storage. A Watcher finds
// it out. Safe for concurrent use.
type Ways struct {
	// recent is for how long a loss is named after its end.
	recent time.Duration
	clock  clock.PassiveClock
	// began is from when on ways are watched.
	began time.Time

	mu     sync.Mutex
	tracks map[string]*track
}

// NewWays knows of no loss yet. A loss that has ended is named by Loss for as long as recent.
// A nil clock is the machine's.
func NewWays(recent time.Duration, c clock.PassiveClock) *Ways {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Ways{recent: recent, clock: c, began: c.Now(), tracks: map[string]*track{}}
}

// Lost are the volumes whose ways are lost, ordered by volume, and whether there are such
// and no device has another way.
func (w *Ways) Lost() (out []moorv1alpha1.LostPath, all bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.tracks {
		if t.lost {
			out = append(out, moorv1alpha1.LostPath{Volume: t.volume, Since: metav1.NewTime(t.begun).Rfc3339Copy(), BorneMillis: min(t.borne, mostBorne).Milliseconds(), Message: t.why})
		}
	}
	slices.SortFunc(out, func(a, b moorv1alpha1.LostPath) int { return cmp.Compare(a.Volume, b.Volume) })
	out = slices.CompactFunc(out, func(a, b moorv1alpha1.LostPath) bool { return a.Volume == b.Volume })
	return out[:min(len(out), mostLost)], w.allLost()
}

// allLost is called with the lock held.
func (w *Ways) allLost() bool {
	for _, t := range w.tracks {
		if !t.lost {
			return false
		}
	}
	return len(w.tracks) > 0
}

// Loss names the loss of a device's way that there is, or was a short while ago: what had
// been sent over it may be at the storage yet. "" if there is none. A connection that SNAP
// has lost is one at once, and one that was made anew since it was seen last; I/O that is slow is
// none before it counts as a loss, as a withdrawal waits for its end. What was lost and found
// a short while before ways were watched is not known, so it counts as lost where SNAP tells of
// connections.
func (w *Ways) Loss(device string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch t := w.tracks[device]; {
	case t == nil:
		return ""
	case t.broken || w.clock.Since(t.brokenAt) < w.recent:
		return "lost " + t.brokenSince.UTC().Format(time.RFC3339Nano)
	case t.connections != "" && w.clock.Since(w.began) < w.recent:
		return "not watched before " + w.began.UTC().Format(time.RFC3339Nano)
	}
	return ""
}

// Seen takes note of the way of a device as SNAP has it between two looks: a connection that it has
// lost, or made anew, is named by Loss at once. Whether the way counts as lost, looks alone decide.
func (w *Ways) Seen(path provisioner.Path) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tracks[path.Device]
	if t == nil { // no look has come to it yet
		t = &track{}
		w.tracks[path.Device] = t
	}
	t.see(path, w.clock.Now())
}

// Anew takes note that nothing that was sent over the connections of a device reaches its storage
// any more: its vendor has opened it under a later epoch, or has removed it, and what is shown by its
// name has other connections.
func (w *Ways) Anew(device string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.tracks[device]; t != nil {
		t.connections = ""
	}
}

// judgement is what was seen of the devices at a time.
type judgement struct {
	// devices are those on record.
	devices map[string]attachments.OnRecord
	seen    []provisioner.Path
	// heard are the SNAP services that told it.
	heard []string
	now   time.Time
	bounds
}

// judge takes note of what was seen, and returns the devices whose storage is to be asked,
// and whether what is told of losses has changed. A device that its service does not know
// stays as it was, unless it is being taken from this DPU: then it is gone, and its way is
// no loss any more, for which its attachment would stay.
func (w *Ways) judge(ctx context.Context, j judgement) (ask []string, changed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.allLost()
	defer func() { changed = changed || all != w.allLost() }()
	maps.DeleteFunc(w.tracks, func(device string, t *track) bool {
		_, there := j.devices[device]
		changed = changed || !there && t.lost
		return !there
	})
	for device, r := range j.devices {
		changed = w.judgeUnseen(ctx, j, device, r) || changed
	}
	for _, path := range j.seen {
		t := w.track(path.Device, j.devices[path.Device])
		changed = turned(ctx, path.Device, t, func() bool { return t.look(path, j.now, j.bounds) }) || changed
		if t.due(path, j.now, askPeriod) {
			t.asked, t.open = j.now, true
			ask = append(ask, path.Device)
		}
	}
	return ask, changed
}

// judgeUnseen judges the way of a device of which nothing was seen, and reports whether what is told
// of it has changed. It is called with the lock held.
func (w *Ways) judgeUnseen(ctx context.Context, j judgement, device string, r attachments.OnRecord) bool {
	silent := r.Service != "" && !slices.Contains(j.heard, r.Service)
	known := slices.ContainsFunc(j.seen, func(p provisioner.Path) bool { return p.Device == device })
	switch t := w.tracks[device]; {
	case silent:
		t = w.track(device, r)
		return turned(ctx, device, t, func() bool { return t.unanswered(j.now, j.bounds) })
	case r.Going && !known && t != nil && len(j.heard) > 0:
		return turned(ctx, device, t, func() bool { return t.gone(j.now) })
	}
	return false
}

// track is what is known of a device. It is called with the lock held.
func (w *Ways) track(device string, r attachments.OnRecord) *track {
	t := w.tracks[device]
	if t == nil {
		t = &track{}
		w.tracks[device] = t
	}
	t.volume, t.going = r.Volume, r.Going
	return t
}

// turned judges the way of a device, and reports whether what is told of it has changed.
func turned(ctx context.Context, device string, t *track, judge func() bool) bool {
	before := t.why
	if judge() {
		ctrl.LoggerFrom(ctx).Info("the way to the storage", "lost", t.lost, daemon.KeyVolume, t.volume, "device", device, "reason", t.why)
		return true
	}
	return t.lost && before != t.why
}

// answered takes note of what came of a question to the storage of a device. That it cannot
// be asked, or is gone, is no sign of a loss.
func (w *Ways) answered(device string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tracks[device]
	if t == nil {
		return
	}
	t.mute = errors.Is(err, provisioner.ErrUnsupported)
	t.answers = t.answers || err == nil
	t.open, t.silent = false, err != nil && !t.mute && !errors.Is(err, provisioner.ErrNotFound)
}
