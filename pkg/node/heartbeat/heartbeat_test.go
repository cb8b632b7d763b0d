package heartbeat

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a fake API server that tells of each write of a status.
type server struct {
	client.WithWatch
	writes chan moorv1alpha1.DPUStorageNodeStatus
	fail   error
}

func newServer(t *testing.T, objects ...client.Object) *server {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{moorv1alpha1.AddDPUToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	s := &server{writes: make(chan moorv1alpha1.DPUStorageNodeStatus, 100)}
	s.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&moorv1alpha1.DPUStorageNode{}).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				if s.fail != nil {
					return s.fail
				}
				err := c.SubResource(sub).Patch(ctx, o, p, opts...)
				if err == nil {
					s.writes <- *o.(*moorv1alpha1.DPUStorageNode).Status.DeepCopy()
				}
				return err
			},
		}).Build()
	return s
}

func (s *server) next(t *testing.T) moorv1alpha1.DPUStorageNodeStatus {
	t.Helper()
	select {
	case got := <-s.writes:
		return got
	case <-time.After(30 * time.Second):
		t.Fatal("no beat")
	}
	panic("unreachable")
}

func (s *server) node(t *testing.T) *moorv1alpha1.DPUStorageNode {
	t.Helper()
	n := &moorv1alpha1.DPUStorageNode{}
	if err := s.Get(t.Context(), types.NamespacedName{Name: "n1"}, n); err != nil {
		t.Fatal(err)
	}
	return n
}

func dpuState(ready bool) func(context.Context) (moorv1alpha1.DPUState, error) {
	return func(context.Context) (moorv1alpha1.DPUState, error) {
		return moorv1alpha1.DPUState{SNAPReady: ready, Functions: []moorv1alpha1.FunctionCount{{Type: "vf", Total: 4, Free: 3}}}, nil
	}
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func middle() float64 { return 0.5 }

func TestBeats(t *testing.T) {
	s, clock, changed := newServer(t), clocktesting.NewFakeClock(start), make(chan struct{})
	asks := make(chan struct{})
	h := DPU(Options{Client: s, Live: s, Name: "n1", Version: "v1", Period: 7 * time.Second, Clock: clock, Changed: changed, Asks: asks, Random: middle}, dpuState(true))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Start(ctx) }()
	first := s.next(t)
	if first.DPU == nil || first.DPU.Sequence != 1 || first.DPU.Version != "v1" || !first.DPU.SNAPReady || !first.DPU.Time.Time.Equal(start) || first.DPU.Functions[0].Free != 3 {
		t.Fatalf("first beat: %+v", first.DPU)
	}
	changed <- struct{}{}
	if got := s.next(t).DPU.Sequence; got != 2 {
		t.Fatalf("beat on change has sequence %d", got)
	}
	asks <- struct{}{}
	if got := s.next(t).DPU.Sequence; got != 3 {
		t.Fatalf("the beat that was asked for has sequence %d", got)
	}
	for want := int64(4); want < 7; want++ {
		clock.Step(7 * time.Second)
		if got := s.next(t).DPU.Sequence; got != want {
			t.Fatalf("steady beat has sequence %d, want %d", got, want)
		}
	}
	clock.Step(6 * time.Second)
	cancel()
	if err := <-done; err != nil || len(s.writes) != 0 {
		t.Fatalf("stopped with %v, %d beats before their time", err, len(s.writes))
	}
}

// TestAskedBefore: what was asked for before a beat began is in that beat, and costs none of its
// own: so the same events give the same beats, whatever was ready first.
func TestAskedBefore(t *testing.T) {
	s, clock, changed := newServer(t), clocktesting.NewFakeClock(start), make(chan struct{}, 1)
	changed <- struct{}{}
	h := DPU(Options{Client: s, Live: s, Name: "n1", Period: 7 * time.Second, Clock: clock, Changed: changed, Random: middle}, dpuState(true))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Start(ctx) }()
	s.next(t)
	if len(changed) != 0 {
		t.Error("what was asked for before the beat is still to come")
	}
	cancel()
	if err := <-done; err != nil || len(s.writes) != 0 {
		t.Errorf("stopped with %v, %d beats too many", err, len(s.writes))
	}
}

// TestSeen: who wants to know is told what the other half of the object says,
// after each beat and after no failure.
func TestSeen(t *testing.T) {
	s := newServer(t)
	var seen []int64
	h := Host(Options{Client: s, Live: s, Name: "n1", Seen: func(n *moorv1alpha1.DPUStorageNode) { seen = append(seen, n.Status.Host.Sequence) }},
		func(context.Context) (moorv1alpha1.HostState, error) { return moorv1alpha1.HostState{}, nil })
	for range 2 {
		if err := h.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.fail = errors.New("no connection")
	if err := h.Beat(t.Context()); !errors.Is(err, s.fail) {
		t.Fatalf("got %v", err)
	}
	if diff := cmp.Diff([]int64{1, 2}, seen); diff != "" {
		t.Error(diff)
	}
}

func TestSequenceGoesOn(t *testing.T) {
	old := &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: moorv1alpha1.DPUStorageNodeSpec{DPUName: "d1"}}
	old.Status.DPU = &moorv1alpha1.DPUState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: 41}, SNAPReady: true}
	old.Status.Host = &moorv1alpha1.HostState{MaxVolumes: 9, Heartbeat: moorv1alpha1.Heartbeat{Sequence: 7}}
	s := newServer(t, old)
	h := DPU(Options{Client: s, Live: s, Name: "n1"}, dpuState(false))
	if err := h.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := s.node(t)
	if got.Status.DPU.Sequence != 42 || got.Status.DPU.SNAPReady {
		t.Fatalf("after a restart: %+v", got.Status.DPU)
	}
	if diff := cmp.Diff(old.Status.Host, got.Status.Host); diff != "" || got.Spec.DPUName != "d1" {
		t.Fatalf("the other half changed:\n%s", diff)
	}
}

func TestHostCreatesItsNode(t *testing.T) {
	s := newServer(t)
	h := Host(Options{Client: s, Live: s, Name: "n1", Version: "v2"}, func(context.Context) (moorv1alpha1.HostState, error) {
		return moorv1alpha1.HostState{MaxVolumes: 16}, nil
	})
	for range 2 {
		if err := h.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	got := s.node(t)
	if got.Spec != (moorv1alpha1.DPUStorageNodeSpec{}) || got.Status.DPU != nil || got.Status.Host.Sequence != 2 || got.Status.Host.MaxVolumes != 16 {
		t.Fatalf("got %+v", got)
	}
}

func TestDeletedNodeComesBack(t *testing.T) {
	s := newServer(t)
	h := DPU(Options{Client: s, Live: s, Name: "n1"}, dpuState(true))
	if err := h.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), s.node(t)); err != nil {
		t.Fatal(err)
	}
	if err := h.Beat(t.Context()); err == nil {
		t.Fatal("a beat into nothing is success")
	}
	if err := h.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.node(t)
}

// TestTriesAgainSoon: one lost beat does not make a machine silent.
func TestTriesAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tries := newServer(t), make(chan time.Time, 100)
		h := DPU(Options{Client: s, Live: s, Name: "n1", Period: 5 * time.Second, Random: func() float64 { return 0 }}, func(context.Context) (moorv1alpha1.DPUState, error) {
			tries <- time.Now()
			return moorv1alpha1.DPUState{}, errors.New("broken")
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- h.Start(ctx) }()
		if first, second := <-tries, <-tries; second.Sub(first) > 3*time.Second {
			t.Errorf("tried again after %s", second.Sub(first))
		}
		cancel()
		<-done
	})
}

// TestWaits: machines that start together spread, and beat each period on the
// average, never later than an observer expects.
func TestWaits(t *testing.T) {
	h := DPU(Options{Name: "n1"}, dpuState(true))
	var sum time.Duration
	const n = 10000
	for range n {
		if w := h.wait(firstWait, firstSpread); w < time.Second || w > DefaultPeriod {
			t.Fatalf("first wait %s", w)
		}
		w := h.wait(steadyWait, steadySpread)
		if w < 9500*time.Millisecond || w > 10500*time.Millisecond {
			t.Fatalf("steady wait %s", w)
		}
		sum += w
	}
	if mean := sum / n; mean < 9900*time.Millisecond || mean > 10100*time.Millisecond {
		t.Errorf("on the average %s", mean)
	}
}

func TestNoBeatWithoutState(t *testing.T) {
	s, broken := newServer(t), errors.New("broken")
	h := DPU(Options{Client: s, Live: s, Name: "n1"}, func(context.Context) (moorv1alpha1.DPUState, error) {
		return moorv1alpha1.DPUState{}, broken
	})
	if err := h.Beat(t.Context()); !errors.Is(err, broken) || len(s.writes) != 0 {
		t.Fatalf("got %v and %d beats", err, len(s.writes))
	}
}

func TestLostServerIsNotTheEnd(t *testing.T) {
	s, clock := newServer(t), clocktesting.NewFakeClock(start)
	h := DPU(Options{Client: s, Live: s, Name: "n1", Clock: clock}, dpuState(true))
	if err := h.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.fail = errors.New("no route")
	if err := h.Beat(t.Context()); !errors.Is(err, s.fail) {
		t.Fatalf("got %v", err)
	}
	s.fail = nil
	if err := h.Beat(t.Context()); err != nil || s.node(t).Status.DPU.Sequence != 2 {
		t.Fatalf("got %v, %+v", err, s.node(t).Status.DPU)
	}
}

// TestLeaseNamesItsBeat: a lease is of the beat that carries it, and goes with the
// first that carries none.
func TestLeaseNamesItsBeat(t *testing.T) {
	s, give := newServer(t), true
	h := DPU(Options{Client: s, Live: s, Name: "n1", Exact: true}, func(context.Context) (moorv1alpha1.DPUState, error) {
		out := moorv1alpha1.DPUState{}
		if give {
			out.Lease = &moorv1alpha1.DPULease{DurationMillis: 1, GraceMillis: 1}
		}
		return out, nil
	})
	for range 3 {
		if err := h.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := s.next(t).DPU; d.Lease == nil || d.Lease.Sequence != d.Sequence {
			t.Fatalf("%+v", d)
		}
	}
	give = false
	if err := h.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := s.next(t).DPU; d.Lease != nil || d.Sequence != 4 {
		t.Fatalf("%+v", d)
	}
}

// TestExact: a beat that does not follow the last one is refused; the next one
// does.
func TestExact(t *testing.T) {
	host := func(o Options) *Heart {
		return Host(o, func(context.Context) (moorv1alpha1.HostState, error) { return moorv1alpha1.HostState{}, nil })
	}
	dpu := func(o Options) *Heart { return DPU(o, dpuState(true)) }
	for name, tc := range map[string]struct {
		heart func(Options) *Heart
		exact bool
		want  bool
	}{
		"a host's, in whose object others write": {host, false, false},
		"a DPU's":                                {dpu, false, true},
		"a DPU's with a promise":                 {dpu, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			o := Options{Client: s, Live: s, Name: "n1", Exact: tc.exact}
			h, other := tc.heart(o), tc.heart(o)
			for _, heart := range []*Heart{h, other} {
				if err := heart.Beat(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := h.Beat(t.Context()); (err != nil) != tc.want {
				t.Fatalf("got %v", err)
			}
			if err := h.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
