package paths

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// crowd is the ways of many devices, of a volume each, by a clock that stands.
type crowd struct {
	*Ways
	t       *testing.T
	clock   *clocktesting.FakeClock
	devices map[string]attachments.OnRecord
	seen    map[string]provisioner.PathState
	heard   []string
}

// many is enough devices that the one that changes is hardly the last to be judged.
const many = 64

func newCrowd(t *testing.T, n int) *crowd {
	t.Helper()
	c := &crowd{
		t: t, clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), heard: []string{"one"},
		devices: map[string]attachments.OnRecord{}, seen: map[string]provisioner.PathState{},
	}
	c.Ways = NewWays(10*time.Second, c.clock)
	for i := range n {
		c.devices[device(i)], c.seen[device(i)] = attachments.OnRecord{Volume: fmt.Sprintf("v%04d", i), Service: "one"}, provisioner.PathConnected
	}
	return c
}

func device(i int) string { return fmt.Sprintf("d%04d", i) }

// judge looks once, and returns whether what is told has changed.
func (c *crowd) judge() bool {
	j := judgement{devices: c.devices, heard: c.heard, now: c.clock.Now(), bounds: within}
	for d, state := range c.seen {
		j.seen = append(j.seen, provisioner.Path{Device: d, State: state, Detail: "so"})
	}
	_, changed := c.Ways.judge(c.t.Context(), j)
	for d := range c.devices {
		c.answered(d, nil)
	}
	return changed
}

// lose has the ways of devices count as lost.
func (c *crowd) lose(devices ...string) {
	c.t.Helper()
	for _, d := range devices {
		c.seen[d] = provisioner.PathReconnecting
	}
	c.judge()
	c.clock.Step(grace)
	if !c.judge() {
		c.t.Fatal("that ways are lost is not told")
	}
}

// record changes what is on record of a device.
func (c *crowd) record(device string, change func(*attachments.OnRecord)) {
	r := c.devices[device]
	change(&r)
	c.devices[device] = r
}

func (c *crowd) want(when string, changed, want bool, lost int) {
	c.t.Helper()
	if told, _ := c.Lost(); changed != want || len(told) != lost {
		c.t.Errorf("%s: told %t, want %t; %d are lost, want %d", when, changed, want, len(told), lost)
	}
}

// TestWhatIsTold: each change of what is told of one way among many is told, and nothing else.
func TestWhatIsTold(t *testing.T) {
	going := func(r *attachments.OnRecord) { r.Going = true }
	for name, test := range map[string]struct {
		change func(*crowd)
		told   bool
		lost   int
	}{
		"nothing":                            {func(*crowd) {}, false, 1},
		"the lost one goes":                  {func(c *crowd) { delete(c.devices, "d0000"); delete(c.seen, "d0000") }, true, 0},
		"one that is well goes":              {func(c *crowd) { delete(c.devices, "d0001"); delete(c.seen, "d0001") }, false, 1},
		"the loss has another reason":        {func(c *crowd) { c.seen["d0000"] = provisioner.PathFailed }, true, 1},
		"another has a sign":                 {func(c *crowd) { c.seen["d0001"] = provisioner.PathReconnecting }, false, 1},
		"the lost one is taken and gone":     {func(c *crowd) { c.record("d0000", going); delete(c.seen, "d0000") }, true, 0},
		"one that is well is taken and gone": {func(c *crowd) { c.record("d0001", going); delete(c.seen, "d0001") }, false, 1},
		"one that was never seen is taken":   {func(c *crowd) { c.devices["new"] = attachments.OnRecord{Volume: "new", Service: "one", Going: true} }, false, 1},
		"no service is known, and none heard": {func(c *crowd) {
			c.record("d0000", func(r *attachments.OnRecord) { r.Service, r.Going = "", true })
			c.silence()
		}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, many)
			c.lose("d0000")
			test.change(c)
			c.want(name, c.judge(), test.told, test.lost)
		})
	}
}

// silence has no service answer.
func (c *crowd) silence() {
	c.heard = nil
	clear(c.seen)
}

// TestSilence: what a silent service shows is lost after a while, also what was never seen. Of a device
// of no service nothing is known.
func TestSilence(t *testing.T) {
	c := newCrowd(t, many)
	c.record("d0000", func(r *attachments.OnRecord) { r.Service = "two" })
	c.devices["nowhere"] = attachments.OnRecord{Volume: "nowhere"}
	delete(c.seen, "d0000")
	told := 0
	for range 30 {
		if c.judge() {
			told++
		}
		c.clock.Step(time.Second)
	}
	c.want("one of two services is silent", told == 1, true, 1)
	c.silence()
	for range 30 {
		c.judge()
		c.clock.Step(time.Second)
	}
	if lost, all := c.Lost(); len(lost) != many || !all {
		t.Errorf("%d of %d whose service is known are lost, all: %t", len(lost), many, all)
	}
}

// TestAwayAgain: that SNAP was away once, and was back, is not counted the next time.
func TestAwayAgain(t *testing.T) {
	at, w := time.Unix(1000, 0), &track{}
	w.unanswered(at, within)
	w.answered(at.Add(time.Second))
	w.answered(at.Add(time.Second + steady))
	at = at.Add(time.Hour)
	w.unanswered(at, within)
	if w.unanswered(at.Add(within.away-1), within) || !w.unanswered(at.Add(within.away), within) {
		t.Errorf("lost %t after %s", w.lost, w.awayFor)
	}
	if !(&track{awayFor: 1}).away(bounds{away: 1}) || (&track{awayFor: time.Hour}).away(bounds{}) {
		t.Error("no bound is one of no time")
	}
}

// TestAnOpenQuestion is a sign once a whole look has gone by.
func TestAnOpenQuestion(t *testing.T) {
	now := time.Unix(1000, 0)
	for ago, want := range map[time.Duration]bool{0: false, lookPeriod - 1: false, lookPeriod: true, time.Hour: true} {
		w := &track{open: true, asked: now.Add(-ago), movedAt: now}
		if sign := w.signOf(connected(0, 0), now, within); (sign != "") != want {
			t.Errorf("after %s: %q", ago, sign)
		}
	}
}

// TestAnswers: what cannot be asked, or is gone, is no loss, even if it has answered before.
func TestAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		lost   int
	}{
		"refused":         {provisioner.ErrUnavailable, 1},
		"cannot be asked": {provisioner.ErrUnsupported, 0},
		"is gone":         {provisioner.ErrNotFound, 0},
	} {
		c := newCrowd(t, 1)
		c.judge()
		for range 10 {
			c.answered("d0000", test.answer)
			c.answered("none", test.answer)
			c.clock.Step(time.Second)
			c.Ways.judge(t.Context(), judgement{devices: c.devices, seen: []provisioner.Path{{Device: "d0000", State: provisioner.PathConnected}}, heard: c.heard, now: c.clock.Now(), bounds: within})
		}
		if lost, _ := c.Lost(); len(lost) != test.lost {
			t.Errorf("%s: %v", name, lost)
		}
	}
}

// TestOneLoss has one beginning and one name, though its sign goes for a moment, SNAP is asked between two
// looks, and it has ended a while ago. A device that comes anew by the name of a lost one has grace again.
func TestOneLoss(t *testing.T) {
	c := newCrowd(t, 2)
	c.lose("d0000")
	loss := c.Loss("d0000")
	begun := func() time.Time { lost, _ := c.Lost(); return lost[0].Since.Time }
	since := begun()
	c.seen["d0000"] = provisioner.PathConnected
	c.clock.Step(time.Second)
	c.judge()
	c.seen["d0000"] = provisioner.PathReconnecting
	c.clock.Step(time.Second)
	if c.judge(); !begun().Equal(since) || c.Loss("d0000") != loss {
		t.Errorf("the loss %q of %s is %q of %s", loss, since, c.Loss("d0000"), begun())
	}
	c.Seen(provisioner.Path{Device: "d0000", State: provisioner.PathConnected})
	c.clock.Step(time.Minute)
	if lost, _ := c.Lost(); len(lost) != 1 || c.Loss("d0000") != loss {
		t.Errorf("after a look between looks %v, %q", lost, c.Loss("d0000"))
	}
	c.record("d0000", func(r *attachments.OnRecord) { r.Going = true })
	c.Seen(provisioner.Path{Device: "d0000", State: provisioner.PathReconnecting})
	delete(c.seen, "d0000")
	c.want("gone", c.judge(), true, 0)
	if w := c.tracks["d0000"]; w.why != "" {
		t.Errorf("the reason of a loss that has ended is %q", w.why)
	}
	for range 3 {
		if c.clock.Step(time.Second); c.Loss("d0000") != loss {
			t.Errorf("a while after its end the loss %q is %q", loss, c.Loss("d0000"))
		}
		c.judge()
	}
	c.record("d0000", func(r *attachments.OnRecord) { r.Going = false })
	c.seen["d0000"] = provisioner.PathReconnecting
	c.want("made anew", c.judge(), false, 0)
}

// TestMostLost: a volume is told of once, in the order of the volumes, and no more than the API allows.
func TestMostLost(t *testing.T) {
	c := newCrowd(t, mostLost+10)
	for d := range c.seen {
		c.seen[d] = provisioner.PathReconnecting
	}
	c.record(device(1), func(r *attachments.OnRecord) { r.Volume = "v0000" })
	c.lose()
	lost, all := c.Lost()
	if len(lost) != 1024 || !all || lost[0].Volume != "v0000" {
		t.Fatalf("%d, all: %t", len(lost), all)
	}
	for i, l := range lost[1:] {
		if want := fmt.Sprintf("v%04d", i+2); l.Volume != want {
			t.Fatalf("%s is told in the place of %s", l.Volume, want)
		}
	}
}

// TestLookFails: what is on record cannot be read, then nothing is forgotten; a service that does not
// answer hides nothing of the others; without devices none is asked.
func TestLookFails(t *testing.T) {
	c := newCrowd(t, 1)
	c.lose("d0000")
	unread, asked := errors.New("the cache is not synced"), 0
	var record, answer error
	w := New(Options{
		Clock: c.clock, Ways: c.Ways, Grace: grace, Timeout: time.Second, Changed: func() {},
		Devices:  func(context.Context) (map[string]attachments.OnRecord, error) { return c.devices, record },
		Services: services{func() error { asked++; return answer }},
	})
	if w.o.Clock != c.clock || c.Ways.clock != c.clock || w.NeedLeaderElection() {
		t.Error("the clock is another, or one DPU alone watches")
	}
	record = unread
	if _, err := w.look(t.Context()); !errors.Is(err, unread) || asked != 0 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	c.want("unread", false, false, 1)
	record, answer = nil, provisioner.ErrSilent
	if _, err := w.look(t.Context()); !errors.Is(err, provisioner.ErrSilent) || asked != 1 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	clear(c.devices)
	if _, err := w.look(t.Context()); err != nil || asked != 1 {
		t.Errorf("without devices asked %d times, %v", asked, err)
	}
}

// services tell of nothing.
type services struct{ paths func() error }

func (s services) Paths(context.Context, []string) ([]provisioner.Path, []string, error) {
	return nil, nil, s.paths()
}

func (services) ProbePath(context.Context, string) error { return nil }

// TestAskedEachPeriod: a device without I/O is asked every five seconds.
func TestAskedEachPeriod(t *testing.T) {
	watched(t, func(_ *Watcher, s *storage, _ *int) {
		pass(30)
		n := 0
		s.change(func(s *storage) {
			for _, d := range s.asked {
				if d == "d" {
					n++
				}
			}
		})
		if n != 7 {
			t.Errorf("asked %d times in 30 s", n)
		}
	})
}

// TestWatcherLogs: that a service does not tell is logged for those who look closely, until the end.
func TestWatcherLogs(t *testing.T) {
	for verbosity, want := range []int{0, 1} {
		var lines []string
		ctx, stop := context.WithCancel(ctrl.LoggerInto(t.Context(), funcr.New(func(prefix, args string) { lines = append(lines, prefix+" "+args) }, funcr.Options{Verbosity: verbosity})))
		c := newCrowd(t, 1)
		c.lose("d0000")
		ended := false
		w := New(Options{
			Clock: c.clock, Ways: c.Ways, Grace: grace, Timeout: time.Second, Changed: func() {},
			Devices: func(ctx context.Context) (map[string]attachments.OnRecord, error) {
				ctrl.LoggerFrom(ctx).Info("named")
				return c.devices, nil
			},
			Services: services{func() error {
				if ended {
					stop()
				}
				ended = true
				c.clock.Step(lookPeriod)
				return provisioner.ErrSilent
			}},
		})
		if err := w.Start(ctx); err != nil {
			t.Error(err)
		}
		all := strings.Join(lines, "\n")
		if strings.Count(all, "not all SNAP services tell") != want || strings.Count(all, "paths ") < 2 {
			t.Errorf("verbosity %d: %s", verbosity, all)
		}
	}
}
