package refused

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/pkg/scheduler/state/statetest"
)

func pod(claim string) *corev1.Pod {
	p := statetest.Pod(claim)
	p.UID = types.UID("uid-of-" + p.Name + claim)
	return p
}

// tried are the pods of each attempt, and when it was made.
type tried struct {
	begun time.Time
	at    []time.Duration
	pods  []int
	// fails is how many attempts fail, the first ones.
	fails int
}

func (t *tried) try(_ context.Context, pods []*corev1.Pod) error {
	t.at, t.pods = append(t.at, time.Since(t.begun)), append(t.pods, len(pods))
	if len(t.at) <= t.fails {
		return errors.New("the API server does not answer")
	}
	return nil
}

// running runs test while p's due pods are tried again by t.
func running(p *Pods, t *tried, test func()) {
	ctx, cancel := context.WithCancel(context.Background())
	t.begun = time.Now()
	go p.Run(ctx, t.try)
	test()
	cancel()
	synctest.Wait()
}

// However often nodes open, pods are tried again once a second.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, got := New(clock.RealClock{}, 0), &tried{}
		running(p, got, func() {
			p.Begin(pod("a"))
			p.All()
			synctest.Wait()
			p.All()
			p.All()
			time.Sleep(5 * pace)
		})
		if len(got.at) != 2 || got.at[0] != 0 || got.at[1] != pace {
			t.Errorf("tried again at %v, want at once and after %s", got.at, pace)
		}
	})
}

// Pods that could not be tried again are due until they are, unless they end.
func TestAFailedAttemptIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, got := New(clock.RealClock{}, 0), &tried{fails: 2}
		a, b := pod("a"), pod("b")
		running(p, got, func() {
			p.Begin(a)
			p.Begin(b)
			p.All()
			synctest.Wait()
			p.End(b.UID)
			time.Sleep(5 * pace)
		})
		if len(got.pods) != 3 || got.pods[0] != 2 || got.pods[1] != 1 || got.pods[2] != 1 {
			t.Errorf("attempts with so many pods: %v, want 2, 1, 1", got.pods)
		}
	})
}

// A pod that is placed while it is tried again is tried again by the next node
// that opens alone.
func TestTakenOnce(t *testing.T) {
	p := New(clock.RealClock{}, 0)
	p.Begin(pod("a"))
	p.All()
	if n := len(p.Take()); n != 1 {
		t.Fatalf("%d pods are due, want 1", n)
	}
	if n := len(p.Take()); n != 0 {
		t.Errorf("%d pods are due twice", n)
	}
	p.again([]*corev1.Pod{pod("b")})
	if n := len(p.Take()); n != 0 {
		t.Errorf("%d pods are due that are not held", n)
	}
}

func TestHowLongAPodIsHeld(t *testing.T) {
	for name, test := range map[string]struct {
		keep, after time.Duration
		again       bool
		want        int
	}{
		"for ever":                     {0, time.Hour, false, 2},
		"a while":                      {time.Minute, time.Minute - 1, false, 2},
		"no longer":                    {time.Minute, time.Minute, false, 1},
		"longer if it is placed again": {time.Minute, 80 * time.Second, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := New(clock.RealClock{}, test.keep)
				p.Begin(pod("a"))
				if test.again {
					time.Sleep(test.after / 2)
					p.Begin(pod("a"))
					time.Sleep(test.after / 2)
				} else {
					time.Sleep(test.after)
				}
				p.Begin(pod("b"))
				if p.Len() != test.want {
					t.Errorf("%d pods are held, want %d", p.Len(), test.want)
				}
			})
		})
	}
}

func TestAnywhereOnce(t *testing.T) {
	p := New(clock.RealClock{}, 0)
	a := pod("a")
	if p.Anywhere(a.UID); p.Begin(a) {
		t.Error("a pod that was not held is placed anywhere")
	}
	p.Anywhere(a.UID)
	if !p.Begin(a) || p.Begin(a) {
		t.Error("want anywhere for the next attempt, and no other")
	}
}
