package nvmeaccess

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/nvmeaccess/spdktest"
)

var seeds = flag.Int("access.seeds", 20, "how many random orders are played")

var errKilled = errors.New("the process was killed")

// world plays one random order: opens, fences and writes of epochs, kills of the process
// with a call in the air, lies and restarts of the target. What is in the air arrives
// within LateCall, and what the target hides is written within Drain.
type world struct {
	*bed
	t       *testing.T
	rnd     *rand.Rand
	story   []string
	fenced  int64 // what a fence has answered
	highest int64
	killAt  int // the process is killed at this call; -1 for never
	open    []*spdktest.Connection
	air     []arrival
}

type arrival struct {
	at time.Time
	do func()
}

func (w *world) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%s ", w.clock.Now().Format("04:05.0"))+fmt.Sprintf(format, args...))
}

// accepted is the oracle.
func (w *world) accepted(hostNQN, what string) {
	epoch, ok := EpochOf(base, hostNQN)
	if !ok || epoch < w.fenced {
		w.t.Errorf("%s of %s is accepted after the fence below epoch %d answered", what, hostNQN, w.fenced)
	}
}

// pass lets time go by, in which what is in the air arrives.
func (w *world) pass(d time.Duration) {
	until := w.clock.Now().Add(d)
	w.air = slices.DeleteFunc(w.air, func(a arrival) bool {
		if a.at.After(until) {
			return false
		}
		a.do()
		return true
	})
}

func (w *world) within(d time.Duration, do func()) {
	w.air = append(w.air, arrival{w.clock.Now().Add(time.Duration(w.rnd.Int64N(int64(d)))), do})
}

// call is made by the process, or is the last thing that it does.
func (w *world) call(method string, call func() error) error {
	w.killAt--
	if w.killAt != 0 {
		return call()
	}
	switch w.rnd.IntN(4) {
	case 0:
		w.tell("killed before %s", method)
	case 1:
		w.tell("killed after %s", method)
		_ = call()
	default:
		w.tell("killed with %s in the air", method)
		w.within(DefaultLateCall, func() {
			w.tell("%s arrives: %v", method, call())
			w.tryAll()
		})
	}
	return errKilled
}

// tryAll connects every epoch that is let in, as hosts do that try again and again, and writes.
func (w *world) tryAll() {
	for epoch := range w.highest + 1 {
		if c, err := w.target.Connect(sub, HostNQN(base, epoch)); err == nil {
			w.open = append(w.open, c)
			w.tell("epoch %d writes: %v", epoch, c.Write("a write at once"))
		}
	}
}

// act has the process do something, and starts it anew if it was killed meanwhile.
func (w *world) act(what string, do func(context.Context) error) error {
	w.killAt = -1
	if w.rnd.IntN(3) == 0 {
		w.killAt = 1 + w.rnd.IntN(3) + w.rnd.IntN(2)*w.rnd.IntN(5)
	}
	// What is in the air outlives the process, so the calls have no context of a caller.
	err := do(context.WithoutCancel(w.t.Context()))
	w.tell("%s: %v", what, err)
	if w.killAt <= 0 && w.killAt > -8 && strings.Contains(fmt.Sprint(err), errKilled.Error()) || w.rnd.IntN(10) == 0 {
		w.restart(w.t)
	}
	return err
}

func (w *world) step() {
	switch w.rnd.IntN(12) {
	case 0, 1, 2: // at any epoch, over or not
		epoch := w.rnd.Int64N(w.highest + 2)
		w.highest = max(w.highest, epoch)
		if w.act(fmt.Sprintf("admit %d", epoch), func(ctx context.Context) error { return errOf(w.Admit(ctx, "v", epoch)) }) == nil && epoch < w.fenced {
			w.t.Errorf("epoch %d is admitted after a fence below %d answered", epoch, w.fenced)
		}
	case 3, 4:
		epoch := 1 + w.rnd.Int64N(w.highest+1)
		if w.act(fmt.Sprintf("fence %d", epoch), func(ctx context.Context) error { return w.Fence(ctx, "v", epoch) }) == nil {
			w.fenced = max(w.fenced, epoch)
		}
	case 5, 6: // a host tries any epoch, whatever it was granted
		name := HostNQN(base, w.rnd.Int64N(w.highest+2))
		if c, err := w.target.Connect(sub, name); err == nil {
			w.tell("%s is connected", name)
			w.open = append(w.open, c)
		}
	case 7, 8, 9:
		w.write()
	case 10:
		w.lieAtRandom()
	default:
		d := time.Duration(w.rnd.Int64N(int64(20 * time.Second)))
		w.tell("%s go by", d)
		_ = w.clock.wait(w.t.Context(), d)
	}
}

func (w *world) write() {
	if len(w.open) == 0 {
		return
	}
	c, what := w.open[w.rnd.IntN(len(w.open))], fmt.Sprintf("write %d", len(w.story))
	land, err := c.Send(what)
	if err != nil {
		return
	}
	// While queue pairs are hidden, writes take less than the drain; otherwise up to an hour.
	longest := DefaultDrain
	if w.rnd.IntN(2) == 0 && !w.hides() {
		longest = time.Minute
	}
	w.tell("%s is sent", what)
	w.within(longest, land)
}

func (w *world) hides() (hides bool) {
	w.lie(func(l *spdktest.Lies) { hides = l.HidesQueues })
	return hides
}

func (w *world) lieAtRandom() {
	methods := []string{"get_subsystems", "subsystem_add_host", "subsystem_remove_host", "subsystem_get_qpairs", "subsystem_get_controllers"}
	switch w.rnd.IntN(6) {
	case 0:
		w.tell("the target restarts")
		w.target.Restart()
	case 1:
		on := w.rnd.IntN(2) == 0
		w.tell("any host: %t", on)
		if !on || w.fenced == 0 { // an operator who does this after a fence ends what it says
			w.target.AllowAnyHost(sub, on)
		}
	case 2:
		w.lie(func(l *spdktest.Lies) { l.AnswersEarly = !l.AnswersEarly })
	case 3:
		w.lie(func(l *spdktest.Lies) { l.ForgetsHosts, l.KeepsConnections = !l.ForgetsHosts, w.rnd.IntN(2) == 0 })
	case 4:
		w.lie(func(l *spdktest.Lies) { l.ForgetsRemovals = w.rnd.IntN(2) == 0 })
	default:
		m, f := methods[w.rnd.IntN(len(methods))], []spdktest.Fault{spdktest.Error, spdktest.Lost, spdktest.Half, spdktest.Empty}[w.rnd.IntN(4)]
		w.tell("the next %s has fault %d", m, f)
		w.once(m, f)
	}
}

// settle ends all lies: then the fence answers, and the epoch after it can be used.
func (w *world) settle() {
	w.lie(func(l *spdktest.Lies) { *l = spdktest.Lies{} })
	w.target.AllowAnyHost(sub, false)
	w.target.Restart()
	w.killAt = -1
	end := w.highest + 1
	for i := 0; ; i++ {
		err := w.Fence(w.t.Context(), "v", end)
		if err == nil {
			break
		}
		if i == 30 || !errors.Is(err, provisioner.ErrUnavailable) {
			w.t.Fatalf("in the end: %v", err)
		}
	}
	w.fenced = end
	c := w.connected(w.t, end)
	wantNil(w.t, "write in the end", c.Write("last"))
	_ = w.clock.wait(w.t.Context(), time.Hour)
}

// TestRandomOrders: no write of an epoch below a fence that answered is accepted after that.
func TestRandomOrders(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &world{bed: newBed(t), t: t, rnd: rand.New(rand.NewPCG(uint64(seed), 0)), killAt: -1}
			inner := w.caller
			w.caller = watched{inner, w.call}
			w.clock.moved = w.pass
			w.target.Accepted = w.accepted
			w.lie(func(l *spdktest.Lies) { l.HidesQueues = seed%3 == 0 })
			for range 80 {
				w.step()
				if t.Failed() {
					break
				}
			}
			if !t.Failed() {
				w.settle()
			}
			if t.Failed() {
				t.Log(strings.Join(w.story, "\n"))
			}
		})
	}
}
