package paths

import (
	"strings"
	"testing"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
)

const grace = 3 * time.Second

var within = bounds{grace: grace, away: 20 * time.Second}

// moment is what SNAP tells at a second, and what is known of the storage's answers.
type moment struct {
	at     int
	path   provisioner.Path
	silent bool
	// open since so many seconds; 0: no question is open.
	open int
	lost bool
}

func connected(inFlight, completed int64) provisioner.Path {
	return provisioner.Path{Device: "d", State: provisioner.PathConnected, Detail: "enabled", InFlight: inFlight, Completed: completed}
}

func TestLook(t *testing.T) {
	well, busy := connected(0, 0), connected(4, 0)
	again, given := well, well
	again.State, again.Detail = provisioner.PathReconnecting, "reconnect_is_delayed"
	given.State, given.Detail = provisioner.PathFailed, "failed"
	file := provisioner.Path{Device: "d", InFlight: -1}
	hung := file
	hung.InFlight = 2
	for name, c := range map[string]struct {
		moments []moment
		words   string
	}{
		"well":                 {[]moment{{at: 0, path: well}, {at: 60, path: well}}, ""},
		"a file, without I/O":  {[]moment{{at: 0, path: file}, {at: 60, path: file}}, ""},
		"lost for a moment":    {[]moment{{at: 0, path: well}, {at: 1, path: again}, {at: 3, path: again}, {at: 4, path: well}, {at: 9, path: well}}, ""},
		"lost":                 {[]moment{{at: 0, path: well}, {at: 1, path: again}, {at: 4, path: again, lost: true}}, "reconnect_is_delayed"},
		"lost from the start":  {[]moment{{at: 0, path: again}, {at: 2, path: again}, {at: 3, path: again, lost: true}}, "anew"},
		"given up":             {[]moment{{at: 0, path: well}, {at: 1, path: given}, {at: 4, path: given, lost: true}}, "given up"},
		"found again":          {[]moment{{at: 0, path: again}, {at: 3, path: again, lost: true}, {at: 4, path: well, lost: true}, {at: 7, path: well}}, ""},
		"not found, a moment":  {[]moment{{at: 0, path: again}, {at: 3, path: again, lost: true}, {at: 4, path: well, lost: true}, {at: 6, path: again, lost: true}, {at: 8, path: well, lost: true}, {at: 10, path: well, lost: true}, {at: 11, path: well}}, ""},
		"flaps":                {[]moment{{at: 0, path: again}, {at: 2, path: well}, {at: 4, path: again}, {at: 6, path: well}, {at: 8, path: again}}, ""},
		"another sign":         {[]moment{{at: 0, path: again}, {at: 2, path: given}, {at: 3, path: given, lost: true}}, "given up"},
		"I/O goes on":          {[]moment{{at: 0, path: connected(4, 1)}, {at: 2, path: connected(4, 2)}, {at: 4, path: connected(4, 3)}, {at: 6, path: connected(4, 4)}}, ""},
		"I/O hangs":            {[]moment{{at: 0, path: busy}, {at: 3, path: busy}, {at: 5, path: busy}, {at: 6, path: busy, lost: true}}, "none of it ends"},
		"I/O hangs after some": {[]moment{{at: 0, path: connected(4, 5)}, {at: 3, path: connected(4, 5)}, {at: 6, path: connected(4, 5), lost: true}}, "none of it ends"},
		"I/O of a file hangs":  {[]moment{{at: 0, path: hung}, {at: 3, path: hung}, {at: 6, path: hung, lost: true}}, "none of it ends"},
		"I/O hung, and ended":  {[]moment{{at: 0, path: busy}, {at: 3, path: busy}, {at: 6, path: busy, lost: true}, {at: 7, path: connected(4, 9), lost: true}, {at: 9, path: connected(4, 10), lost: true}, {at: 10, path: connected(4, 11)}}, ""},
		"a count that is less": {[]moment{{at: 0, path: connected(1, 9)}, {at: 3, path: connected(1, 2)}, {at: 5, path: connected(1, 3)}}, ""},
		"a failed question":    {[]moment{{at: 0, path: well}, {at: 1, path: well, silent: true}, {at: 4, path: well, silent: true, lost: true}}, "does not answer"},
		"a slow answer":        {[]moment{{at: 0, path: well}, {at: 2, path: well, open: 2}, {at: 3, path: well}}, ""},
		"no answer":            {[]moment{{at: 0, path: well}, {at: 3, path: well, open: 3}, {at: 6, path: well, open: 6, lost: true}}, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			start, w := time.Unix(1000, 0), &track{answers: true}
			for _, m := range c.moments {
				now := start.Add(time.Duration(m.at) * time.Second)
				w.silent, w.open, w.asked = m.silent, m.open > 0, now.Add(-time.Duration(m.open)*time.Second)
				before := w.lost
				turned := w.look(m.path, now, within)
				if w.lost != m.lost || turned != (before != m.lost) || turned && w.lost != (w.why != "") {
					t.Fatalf("after %d s: lost %t (%s), told %t", m.at, w.lost, w.why, turned)
				}
			}
			if !strings.Contains(w.why, c.words) || w.lost != (c.words != "") {
				t.Errorf("in the end: lost %t, %q", w.lost, w.why)
			}
		})
	}
}

// TestGoing: what the storage refuses because the volume is being taken from this DPU is no
// loss; that it cannot be reached is one.
func TestGoing(t *testing.T) {
	start := time.Unix(1000, 0)
	for state, want := range map[provisioner.PathState]bool{provisioner.PathFailed: false, provisioner.PathReconnecting: true, provisioner.PathConnected: false} {
		w := &track{going: true, answers: true, silent: true}
		for n := range 10 {
			w.look(provisioner.Path{State: state, InFlight: 1}, start.Add(time.Duration(n)*time.Second), within)
		}
		if w.lost != want || w.due(connected(0, 0), start.Add(time.Hour), askPeriod) {
			t.Errorf("%s: lost %t (%s)", state, w.lost, w.why)
		}
	}
}

// TestSince is when that began of which the first sign tells, not when the sign was seen, nor when it
// counted: then it had been borne for a while.
func TestSince(t *testing.T) {
	const s = time.Second
	start := time.Unix(1000, 0)
	again := connected(0, 0)
	again.State = provisioner.PathReconnecting
	for name, c := range map[string]struct {
		path         provisioner.Path
		asked        time.Duration // 0: not
		silent       bool
		away         time.Duration // SNAP tells nothing for so long
		since, borne time.Duration
	}{
		"SNAP was away":                {path: connected(1, 0), away: 60 * s, since: 60 * s, borne: 5 * s},
		"SNAP has lost it":             {path: again, since: 2 * s, borne: 3 * s},
		"I/O hangs":                    {path: connected(1, 0), since: 1 * s, borne: 4 * s},
		"a question is not answered":   {path: connected(0, 0), asked: s / 2, since: s / 2, borne: 4*s + s/2},
		"a question was refused":       {path: connected(0, 0), asked: s / 4, silent: true, since: s / 4, borne: 4*s + 3*s/4},
		"SNAP tells, of I/O that hung": {path: func() provisioner.Path { p := again; p.InFlight = 1; return p }(), since: 2 * s, borne: 3 * s},
	} {
		t.Run(name, func(t *testing.T) {
			w := &track{answers: true}
			w.look(connected(0, 0), start, within)
			w.look(connected(0, 0), start.Add(s), within)
			if c.asked > 0 {
				w.asked, w.open, w.silent = start.Add(c.asked), !c.silent, c.silent
			}
			for n := 2; n <= 9; n++ {
				w.look(c.path, start.Add(c.away+time.Duration(n)*s), within)
			}
			if !w.lost || w.begun.Sub(start) != c.since || w.borne != c.borne {
				t.Errorf("lost %t, since %s, borne %s", w.lost, w.begun.Sub(start), w.borne)
			}
		})
	}
}

// TestUnanswered: a SNAP that is away says nothing of the storage, until it has been away for
// long, or stops and starts for long.
func TestUnanswered(t *testing.T) {
	const s = time.Second
	start := time.Unix(1000, 0)
	type span struct {
		seconds int
		answers bool
	}
	failed := connected(0, 0)
	failed.State, failed.Detail = provisioner.PathFailed, "failed"
	for name, c := range map[string]struct {
		bounds bounds
		going  bool
		spans  []span
		path   provisioner.Path
		// words of the loss in the end; "": there is none.
		words string
		since time.Duration
	}{
		"is started again":          {within, false, []span{{1, true}, {19, false}, {1, true}}, connected(0, 0), "", 0},
		"again and again, in hours": {within, false, []span{{1, true}, {15, false}, {11, true}, {15, false}, {11, true}}, connected(0, 0), "", 0},
		"stays away":                {within, false, []span{{1, true}, {21, false}}, connected(0, 0), "SNAP does not answer", s},
		"was never there":           {within, false, []span{{21, false}}, connected(0, 0), "SNAP does not answer", 0},
		"stops and starts":          {within, false, []span{{1, true}, {8, false}, {8, true}, {8, false}, {8, true}, {8, false}, {2, true}}, connected(0, 0), "SNAP was away", s},
		"is back for a moment":      {within, false, []span{{1, true}, {25, false}, {9, true}}, connected(0, 0), "SNAP was away", s},
		"is back at the bound":      {within, false, []span{{1, true}, {20, false}, {5, true}}, connected(0, 0), "SNAP was away", s},
		"is back":                   {within, false, []span{{1, true}, {25, false}, {15, true}}, connected(0, 0), "", 0},
		"is back without storage":   {within, false, []span{{1, true}, {5, false}, {8, true}}, failed, "given up", 0},
		"was lost before":           {within, false, []span{{8, true}, {60, false}}, failed, "given up", 0},
		"may stay away":             {bounds{grace: grace}, false, []span{{1, true}, {900, false}, {1, true}}, connected(0, 0), "", 0},
		"is being taken from it":    {within, true, []span{{1, true}, {60, false}}, connected(0, 0), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, now := &track{answers: true, going: c.going}, start
			for _, span := range c.spans {
				for range span.seconds {
					before, turned := w.lost, false
					if span.answers {
						turned = w.look(c.path, now, c.bounds)
					} else {
						turned = w.unanswered(now, c.bounds)
					}
					if turned != (before != w.lost) {
						t.Fatalf("told %t after %s", turned, now.Sub(start))
					}
					now = now.Add(s)
				}
			}
			if w.lost != (c.words != "") || !strings.Contains(w.why, c.words) || w.lost && w.begun.Sub(start) != c.since {
				t.Errorf("lost %t since %s, %q", w.lost, w.begun.Sub(start), w.why)
			}
			if w.lost && !w.broken {
				t.Error("what is sent over a way that is lost may stay on it")
			}
		})
	}
}

func TestDue(t *testing.T) {
	now := time.Unix(1000, 0)
	long, short := now.Add(-askPeriod), now.Add(-askPeriod+time.Second)
	for name, c := range map[string]struct {
		track track
		path  provisioner.Path
		want  bool
	}{
		"never asked":               {track{}, connected(0, 0), true},
		"asked long ago":            {track{asked: long}, connected(0, 0), true},
		"asked":                     {track{asked: short}, connected(0, 0), false},
		"not answered yet":          {track{asked: long, open: true}, connected(0, 0), false},
		"not answered, and lost":    {track{asked: long, open: true, lost: true}, connected(0, 0), false},
		"no answer the last time":   {track{asked: short, silent: true, answers: true}, connected(0, 0), true},
		"has never answered":        {track{asked: short, silent: true}, connected(0, 0), false},
		"lost":                      {track{asked: short, lost: true}, connected(0, 0), true},
		"lost, with I/O":            {track{asked: short, lost: true}, connected(1, 0), true},
		"I/O goes on":               {track{asked: long}, connected(1, 0), false},
		"how much I/O is not known": {track{asked: long}, connected(-1, 0), true},
		"cannot be asked":           {track{mute: true}, connected(0, 0), false},
		"has no connection":         {track{}, provisioner.Path{}, false},
	} {
		if got := c.track.due(c.path, now, askPeriod); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
