package paths

import (
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// track is what is known of the way of one device, over time.
type track struct {
	volume string
	// going: the volume is being taken from this DPU. That the storage refuses it then is no
	// loss.
	going bool
	// sign is the sign of a loss at the last look; "" if there was none. It has no number
	// that changes from look to look: it is written into an object.
	sign string
	// since is when a look saw the sign first, or no more; zero if none did. begun is from when
	// on what it tells of had lasted.
	since, begun time.Time
	// lost: the way counts as lost, since begun and for the reason why, the last sign; borne is
	// for how long that had lasted before it counted.
	lost  bool
	why   string
	borne time.Duration
	// broken: the connection was lost at the last look, or the way counted as lost, since
	// brokenSince. brokenAt is the last look at which that was so; zero: it never was.
	broken                bool
	brokenSince, brokenAt time.Time
	// connections are those at the last look at which there was one, as provisioner.Path names
	// them; "" if they are not known, or what was sent over them does not matter any more.
	connections string

	// awaySince is the first look in vain of a time in which SNAP is away, or stops and starts;
	// zero: it answers. missedAt is the last look in vain, backSince the first after it that
	// was not; one of them is zero. awayFor is for how long SNAP has been away since awaySince.
	awaySince, missedAt, backSince time.Time
	awayFor                        time.Duration

	// completed is how many operations had ended at the last look, and movedAt when that
	// had changed, or nothing was in flight.
	completed int64
	movedAt   time.Time
	// asked is when the storage was asked to answer last. open: it has not yet.
	asked time.Time
	open  bool
	// silent: the last question was not answered in time, or was refused.
	silent bool
	// answers: a question was answered before. A storage that has always refused the question
	// may not know it: SNAP does not tell that from a storage that is out of reach.
	answers bool
	// mute: this device cannot be asked.
	mute bool
}

// bounds are for how long something is borne.
type bounds struct {
	// grace is for how long there has to be a sign of a loss before a way counts as lost, and
	// then none before it counts as found.
	grace time.Duration
	// away is for how long SNAP may be away before that is a sign; 0: it never is.
	away time.Duration
}

// steady is for how long SNAP has to answer again before it counts as back: one that starts,
// and ends a few seconds later, serves no I/O. It is our own choice.
const steady = 10 * time.Second

// look judges a way by what SNAP tells of it now, and reports whether it has become lost,
// or is found again: either only after a sign of it, or none, for as long as grace.
func (t *track) look(path provisioner.Path, now time.Time, b bounds) bool {
	t.answered(now)
	if path.Completed != t.completed || path.InFlight <= 0 || t.movedAt.IsZero() {
		t.completed, t.movedAt = path.Completed, now
	}
	sign := t.signOf(path, now, b)
	if (sign == "") != (t.sign == "") {
		if t.since = now; !t.lost {
			t.begun = t.beganBy(path, now)
		}
	}
	if t.sign = sign; sign != "" {
		t.why = sign
	}
	lost := sign != ""
	turned := lost != t.lost && now.Sub(t.since) >= b.grace
	if turned {
		t.lost, t.why, t.borne = lost, sign, now.Sub(t.begun)
	}
	t.see(path, now)
	return turned
}

// answered takes note that SNAP answers.
func (t *track) answered(now time.Time) {
	if t.awaySince.IsZero() {
		return
	}
	if t.backSince.IsZero() {
		t.awayFor += now.Sub(t.missedAt)
		t.missedAt, t.backSince = time.Time{}, now
	}
	if now.Sub(t.backSince) >= steady {
		t.awaySince, t.awayFor = time.Time{}, 0
	}
}

// unanswered takes note that SNAP does not answer, and reports whether the way has become
// lost by that. Until then it stays as it was: a service that is started again, or is
// replaced by another version, says nothing of the storage.
func (t *track) unanswered(now time.Time, b bounds) bool {
	if t.awaySince.IsZero() {
		t.awaySince = now
	}
	if !t.missedAt.IsZero() {
		t.awayFor += now.Sub(t.missedAt)
	}
	t.missedAt, t.backSince = now, time.Time{}
	if t.lost || t.going || !t.away(b) {
		return false
	}
	t.sign, t.begun = "SNAP does not answer", t.awaySince
	t.lost, t.why, t.borne = true, t.sign, now.Sub(t.begun)
	t.note(true, now)
	return true
}

// gone takes note that the device is not there any more, and reports whether its way was lost. What
// had been sent over it may be on its way still.
func (t *track) gone(now time.Time) bool {
	was := t.lost
	t.lost, t.why, t.sign = false, "", ""
	t.note(false, now)
	return was
}

// away reports whether SNAP has been away, all in all, for longer than is borne.
func (t *track) away(b bounds) bool { return b.away > 0 && t.awayFor >= b.away }

// note notes whether what is sent now may stay on its way.
func (t *track) note(broken bool, now time.Time) {
	if broken && !t.broken {
		t.brokenSince = now
	}
	if t.broken = broken; broken {
		t.brokenAt = now
	}
}

// see notes it by what SNAP tells. Connections that have changed since the last look are a loss of
// its own, which has ended.
func (t *track) see(path provisioner.Path, now time.Time) {
	remade := t.connections != "" && path.Connections != "" && t.connections != path.Connections
	if path.Connections != "" {
		t.connections = path.Connections
	}
	if remade {
		t.broken, t.brokenSince, t.brokenAt = false, now, now
	}
	t.note(t.lost || t.disconnected(path), now)
}

// disconnected reports whether SNAP has lost the connection, as far as that is a loss.
func (t *track) disconnected(path provisioner.Path) bool {
	return path.State == provisioner.PathReconnecting || path.State == provisioner.PathFailed && !t.going
}

// signOf is what speaks against a way now; "" if nothing does. What has not ended since the
// look before may still end in time: grace is borne after that.
func (t *track) signOf(path provisioner.Path, now time.Time, b bounds) string {
	switch {
	case t.going && !t.disconnected(path):
		return ""
	case path.State == provisioner.PathFailed:
		return "SNAP has given up its connection to the storage (" + path.Detail + ")"
	case path.State == provisioner.PathReconnecting:
		return "SNAP has lost its connection to the storage, and tries to make it anew (" + path.Detail + ")"
	case t.away(b):
		return "SNAP was away, and does not answer for long yet"
	case t.stuck(now):
		return "I/O is in flight, and none of it ends"
	case t.silent && t.answers || t.open && now.Sub(t.asked) >= lookPeriod:
		return "the storage does not answer"
	}
	return ""
}

// stuck reports whether I/O is in flight of which nothing has ended since the look before.
func (t *track) stuck(now time.Time) bool { return now.Sub(t.movedAt) >= lookPeriod }

// beganBy is from when on that has lasted of which there is a sign now for the first time: a connection
// is lost at once, and what does not end has not done so for a while. Of the time in which SNAP told
// nothing, nothing is known.
func (t *track) beganBy(path provisioner.Path, now time.Time) time.Time {
	began := t.asked
	switch {
	case t.disconnected(path):
		return now
	case !t.awaySince.IsZero():
		return t.awaySince
	case t.stuck(now):
		began = t.movedAt
	}
	if earliest := now.Add(-2 * lookPeriod); began.Before(earliest) {
		return earliest
	}
	return began
}

// due reports whether the storage is to be asked now: I/O that is going on shows by itself
// whether it answers, and what looks lost is asked at each look.
func (t *track) due(path provisioner.Path, now time.Time, period time.Duration) bool {
	switch {
	case t.mute || t.open || t.going || path.State == "":
		return false
	case t.silent && t.answers || t.lost:
		return true
	}
	return path.InFlight <= 0 && now.Sub(t.asked) >= period
}
