package paths

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/node/dpu/attachments"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// storage is a SNAP service and what is behind it. Each device has one operation in flight
// for as long as its connection hangs.
type storage struct {
	mu    sync.Mutex
	state map[string]provisioner.PathState
	// answer is what a question of a device gets; hang: nothing, until it is given up.
	answer map[string]error
	// down are the services that do not answer: device d is of the service one, e of two.
	down  map[string]bool
	asked []string
}

var errHang = errors.New("hang")

func (s *storage) change(change func(*storage)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *storage) Paths(_ context.Context, devices []string) (out []provisioner.Path, heard []string, failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for service, device := range map[string]string{"one": "d", "two": "e"} {
		if s.down[service] {
			failed = provisioner.ErrUnavailable
			continue
		}
		heard = append(heard, service)
		if state, ok := s.state[device]; ok && slices.Contains(devices, device) {
			out = append(out, provisioner.Path{Device: device, State: state, Detail: "so"})
		}
	}
	return out, heard, failed
}

func (s *storage) ProbePath(ctx context.Context, device string) error {
	s.mu.Lock()
	s.asked = append(s.asked, device)
	answer := s.answer[device]
	s.mu.Unlock()
	if errors.Is(answer, errHang) {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, ctx.Err())
	}
	return answer
}

// watched runs a watcher over devices d and e of the volumes of these names.
func watched(t *testing.T, check func(*Watcher, *storage, *int)) {
	synctest.Test(t, func(t *testing.T) {
		s := &storage{state: map[string]provisioner.PathState{"d": provisioner.PathConnected, "e": provisioner.PathConnected}, answer: map[string]error{}, down: map[string]bool{}}
		told := 0
		w := New(Options{
			Devices: func(context.Context) (map[string]attachments.OnRecord, error) {
				return map[string]attachments.OnRecord{"d": {Volume: "vol-d", Service: "one"}, "e": {Volume: "vol-e", Service: "two"}}, nil
			},
			Services: s, Ways: NewWays(10*time.Second, nil), Grace: grace, Away: within.away, Timeout: 10 * time.Second, Changed: func() { told++ },
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Start(ctx) }()
		check(w, s, &told)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func pass(seconds int) {
	time.Sleep(time.Duration(seconds) * time.Second) // of the bubble
	synctest.Wait()
}

func lost(w *Watcher) []string {
	var out []string
	all, _ := w.o.Ways.Lost()
	for _, l := range all {
		out = append(out, l.Volume)
	}
	return out
}

func wantLost(t *testing.T, w *Watcher, when string, want ...string) {
	t.Helper()
	if got := lost(w); !slices.Equal(got, want) {
		t.Fatalf("%s: %v are lost, want %v", when, got, want)
	}
}

// TestAConnectionIsLost is told once, of its volume alone, and again when it is found.
func TestAConnectionIsLost(t *testing.T) {
	watched(t, func(w *Watcher, s *storage, told *int) {
		pass(20)
		wantLost(t, w, "at first")
		start := time.Now()
		s.change(func(s *storage) { s.state["e"] = provisioner.PathReconnecting })
		pass(2)
		wantLost(t, w, "soon after")
		pass(3)
		want := []moorv1alpha1.LostPath{{
			Volume: "vol-e", Since: metav1.NewTime(start.Add(time.Second)).Rfc3339Copy(), BorneMillis: 3000, Message: "SNAP has lost its connection to the storage, and tries to make it anew (so)",
		}}
		got, all := w.o.Ways.Lost()
		if diff := cmp.Diff(want, got); diff != "" || all {
			t.Fatalf("all lost: %t (-want +got):\n%s", all, diff)
		}
		pass(60)
		if *told != 1 {
			t.Errorf("told %d times of one loss", *told)
		}
		s.change(func(s *storage) { s.state["e"] = provisioner.PathConnected })
		pass(5)
		wantLost(t, w, "found again")
		if *told != 2 {
			t.Errorf("told %d times of one loss that ended", *told)
		}
	})
}

// TestAStorageThatHangs is found though SNAP has noticed nothing: by the question that is
// not answered, of which there is one at a time.
func TestAStorageThatHangs(t *testing.T) {
	watched(t, func(w *Watcher, s *storage, told *int) {
		pass(1)
		s.change(func(s *storage) { s.answer["d"], s.asked = errHang, nil })
		pass(12)
		wantLost(t, w, "after one period and twice the grace", "vol-d")
		if n := len(slices.DeleteFunc(slices.Clone(s.asked), func(d string) bool { return d != "d" })); n != 1 {
			t.Errorf("%d questions in 12 s to a storage that does not answer for 10", n)
		}
		s.change(func(s *storage) { s.answer["d"] = nil })
		pass(15)
		wantLost(t, w, "answers again")
		if *told != 2 {
			t.Errorf("told %d times", *told)
		}
	})
}

// TestSNAPIsAway says nothing of the storage, in either direction, before it has lasted for
// long. Then it is a loss of what that service shows.
func TestSNAPIsAway(t *testing.T) {
	watched(t, func(w *Watcher, s *storage, _ *int) {
		pass(1)
		s.change(func(s *storage) {
			s.down["one"], s.down["two"] = true, true
			s.answer["d"], s.answer["e"] = provisioner.ErrUnavailable, provisioner.ErrUnavailable
		})
		pass(15)
		wantLost(t, w, "while SNAP is away")
		s.change(func(s *storage) { clear(s.down); s.state["d"] = provisioner.PathFailed; clear(s.answer) })
		pass(5)
		wantLost(t, w, "SNAP is back without its storage", "vol-d")
		s.change(func(s *storage) { s.down["one"] = true })
		pass(60)
		wantLost(t, w, "its service is away again", "vol-d")
		s.change(func(s *storage) { s.down["two"] = true })
		pass(25)
		wantLost(t, w, "so is the other, for long", "vol-d", "vol-e")
		if all, none := w.o.Ways.Lost(); !none || all[1].Message != "SNAP does not answer" || all[1].BorneMillis != 20000 {
			t.Errorf("%+v, all lost: %t", all, none)
		}
		s.change(func(s *storage) { clear(s.down); s.state["d"] = provisioner.PathConnected })
		pass(20)
		wantLost(t, w, "both are back")
	})
}

// TestADeviceThatGoes is lost no more.
func TestADeviceThatGoes(t *testing.T) {
	devices := map[string]attachments.OnRecord{"d": {Volume: "vol-d"}}
	s := &storage{state: map[string]provisioner.PathState{"d": provisioner.PathFailed}}
	told := 0
	synctest.Test(t, func(t *testing.T) {
		w := New(Options{
			Devices:  func(context.Context) (map[string]attachments.OnRecord, error) { return devices, nil },
			Services: s, Ways: NewWays(10*time.Second, nil), Grace: grace, Timeout: time.Second, Changed: func() { told++ },
		})
		look := func() {
			if _, err := w.look(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(grace) // of the bubble
		}
		look()
		look()
		wantLost(t, w, "failed", "vol-d")
		delete(devices, "d")
		look()
		wantLost(t, w, "gone")
		if told != 2 {
			t.Errorf("told %d times", told)
		}
	})
}

// TestWhatCannotBeAsked is asked once, and is no loss.
func TestWhatCannotBeAsked(t *testing.T) {
	watched(t, func(w *Watcher, s *storage, told *int) {
		s.change(func(s *storage) { s.answer["d"], s.answer["e"] = provisioner.ErrUnsupported, provisioner.ErrNotFound })
		pass(30)
		wantLost(t, w, "cannot be asked")
		if n := len(slices.DeleteFunc(slices.Clone(s.asked), func(d string) bool { return d != "d" })); n > 2 || *told != 0 {
			t.Errorf("asked %d times, told %d times", n, *told)
		}
	})
}

// TestAStorageThatRefusesTheQuestion from the beginning may not know it, which is no loss; one
// that has answered before, and does not now, is lost.
func TestAStorageThatRefusesTheQuestion(t *testing.T) {
	watched(t, func(w *Watcher, s *storage, _ *int) {
		pass(1)
		s.change(func(s *storage) { s.answer["d"] = provisioner.ErrUnavailable })
		pass(30)
		wantLost(t, w, "d has answered before", "vol-d")
	})
	s := &storage{state: map[string]provisioner.PathState{"d": provisioner.PathConnected}, answer: map[string]error{"d": provisioner.ErrUnavailable}}
	synctest.Test(t, func(t *testing.T) {
		w := New(Options{
			Devices: func(context.Context) (map[string]attachments.OnRecord, error) {
				return map[string]attachments.OnRecord{"d": {Volume: "vol-d"}}, nil
			},
			Services: s, Ways: NewWays(time.Second, nil), Grace: grace, Timeout: time.Second, Changed: func() {},
		})
		for range 60 {
			ask, err := w.look(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range ask {
				w.ask(t.Context(), d)
			}
			time.Sleep(lookPeriod) // of the bubble
		}
		wantLost(t, w, "d has never answered")
	})
}

// TestGone: the loss of a device that its service does not know any more ends if the device is being
// taken from this DPU, and is named for as long as after any other end. Else it stays.
func TestGone(t *testing.T) {
	for name, c := range map[string]struct {
		going bool
		heard []string
		stays bool
	}{
		"going":                         {going: true, heard: []string{"one"}},
		"it may be made anew":           {heard: []string{"one"}, stays: true},
		"its service is silent":         {going: true, stays: true},
		"another service is heard only": {going: true, heard: []string{"two"}, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := NewWays(10*time.Second, nil)
				lost := connected(0, 0)
				lost.State = provisioner.PathReconnecting
				look := func(going bool, heard []string, seen ...provisioner.Path) bool {
					devices := map[string]attachments.OnRecord{"d": {Volume: "v", Service: "one", Going: going}}
					_, changed := w.judge(t.Context(), judgement{devices: devices, seen: seen, heard: heard, now: time.Now(), bounds: within})
					return changed
				}
				look(c.going, []string{"one"}, lost)
				time.Sleep(grace) // of the bubble
				look(c.going, []string{"one"}, lost)
				loss := w.Loss("d")
				if told, _ := w.Lost(); len(told) != 1 || loss == "" {
					t.Fatalf("told %v, loss %q", told, loss)
				}
				changed := look(c.going, c.heard)
				if told, _ := w.Lost(); (len(told) == 1) != c.stays || changed == c.stays || w.Loss("d") != loss {
					t.Errorf("told %v, changed %t, loss %q and then %q", told, changed, loss, w.Loss("d"))
				}
				time.Sleep(10 * time.Second) // of the bubble
				if still := w.Loss("d"); (still != "") != c.stays {
					t.Errorf("loss %q long after", still)
				}
			})
		})
	}
}

// TestSeen: a connection that SNAP loses between two looks is named at once, also of a device that
// was not looked at yet; that it is a loss to be told, looks alone decide.
func TestSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const recent = 10 * time.Second
		for name, looked := range map[string]bool{"looked at": true, "new": false} {
			w := NewWays(recent, nil)
			look := func() {
				devices := map[string]attachments.OnRecord{"d": {Volume: "v"}}
				w.judge(t.Context(), judgement{devices: devices, seen: []provisioner.Path{connected(0, 0)}, now: time.Now(), bounds: within})
				w.answered("d", nil)
			}
			if looked {
				look()
			}
			w.Seen(connected(0, 0))
			if loss := w.Loss("d"); loss != "" {
				t.Errorf("%s: %q of a way that is well", name, loss)
			}
			lost := connected(0, 0)
			lost.State = provisioner.PathReconnecting
			w.Seen(lost)
			loss := w.Loss("d")
			if told, all := w.Lost(); loss == "" || len(told) > 0 || all {
				t.Errorf("%s: %q, told %v", name, loss, told)
			}
			look()
			time.Sleep(recent - time.Second) // of the bubble
			if again := w.Loss("d"); again != loss {
				t.Errorf("%s: %q, and a while after it %q", name, loss, again)
			}
			time.Sleep(time.Second) // of the bubble
			if again := w.Loss("d"); again != "" {
				t.Errorf("%s: %q long after it", name, again)
			}
		}
	})
}

// TestLoss is named while there is a sign of it, and for a while after: what was sent may be
// at the storage yet. Another loss has another name.
func TestLoss(t *testing.T) {
	const recent = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		w := NewWays(recent, nil)
		going, inFlight := false, int64(0)
		see := func(state provisioner.PathState) string {
			devices := map[string]attachments.OnRecord{"d": {Volume: "v", Going: going}}
			seen := []provisioner.Path{{Device: "d", State: state, InFlight: inFlight}}
			w.judge(t.Context(), judgement{devices: devices, seen: seen, now: time.Now(), bounds: within})
			w.answered("d", nil)
			return w.Loss("d")
		}
		if loss := see(provisioner.PathConnected); loss != "" || w.Loss("none") != "" {
			t.Fatalf("loss %q of a way that is well", loss)
		}
		first := see(provisioner.PathReconnecting)
		if told, all := w.Lost(); first == "" || len(told) != 0 || all {
			t.Fatalf("loss %q at the first sign, told: %v", first, told)
		}
		time.Sleep(grace) // of the bubble
		again := see(provisioner.PathReconnecting)
		if told, all := w.Lost(); again != first || len(told) != 1 || !all {
			t.Fatalf("loss %q, and then %q; all lost: %t", first, again, all)
		}
		see(provisioner.PathConnected)
		time.Sleep(recent - time.Second) // of the bubble
		again = see(provisioner.PathConnected)
		if told, all := w.Lost(); again != first || len(told) != 0 || all {
			t.Fatalf("loss %q a while after it: %q", first, again)
		}
		time.Sleep(time.Second) // of the bubble
		if again := see(provisioner.PathConnected); again != "" {
			t.Fatalf("loss %q long after", again)
		}
		second := see(provisioner.PathFailed)
		if second == "" || second == first {
			t.Fatalf("another loss %q", second)
		}
		see(provisioner.PathConnected)
		time.Sleep(time.Minute) // of the bubble
		if going = true; see(provisioner.PathFailed) != "" {
			t.Fatal("that the storage refuses what is taken from this DPU is a loss")
		}
		going, inFlight = false, 1
		see(provisioner.PathConnected)
		time.Sleep(2 * lookPeriod) // of the bubble
		if see(provisioner.PathConnected) != "" {
			t.Fatal("I/O that is slow is a loss at once")
		}
		time.Sleep(grace) // of the bubble
		if third := see(provisioner.PathConnected); third == "" || third == second {
			t.Fatalf("I/O that does not end is loss %q", third)
		}
	})
}
