package heartbeat

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// requests counts what a heart asks for, and refuses what refuse says.
type requests struct {
	client.Client
	objects, leases, reads int
	refuse                 func(lease bool) error
	// onPatch, if not nil, is called before a patch of the object, and may fail it.
	onPatch func(client.Object, client.Patch) error
	// unreadable is what reads fail with.
	unreadable error
}

// counted counts requests to the server.
func (s *server) counted() *requests {
	r := &requests{refuse: func(bool) error { return nil }}
	r.Client = interceptor.NewClient(s.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if r.reads++; r.unreadable != nil {
				return r.unreadable
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*coordinationv1.Lease); ok {
				r.leases++
				if err := r.refuse(true); err != nil {
					return err
				}
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			r.leases++
			if err := r.refuse(true); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			r.objects++
			if err := r.refuse(false); err != nil {
				return err
			}
			if r.onPatch != nil {
				if err := r.onPatch(o, p); err != nil {
					return err
				}
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	return r
}

// fixture is the heart of a DPU that writes a Lease.
type fixture struct {
	*server
	*requests
	t     *testing.T
	h     *Heart
	clock *clocktesting.FakeClock
	state moorv1alpha1.DPUState
}

func newFixture(t *testing.T, change func(*Options)) *fixture {
	s := &fixture{server: newServer(t), t: t, clock: clocktesting.NewFakeClock(start)}
	s.requests = s.counted()
	// The DPU tells times of its own clock, which the server keeps in seconds.
	s.state = moorv1alpha1.DPUState{SNAPReady: true, Host: &moorv1alpha1.HostObservation{Alive: true, Since: metav1.NewTime(start.Add(123456789))}}
	o := Options{Client: s.requests.Client, Live: s.requests.Client, Name: "n1", Namespace: "moor", Version: "v1", Clock: s.clock, Random: func() float64 { return 0 }}
	if change != nil {
		change(&o)
	}
	s.h = DPU(o, func(context.Context) (moorv1alpha1.DPUState, error) { return *s.state.DeepCopy(), nil })
	return s
}

func (s *fixture) beat() {
	s.t.Helper()
	s.clock.Step(10 * time.Second)
	if err := s.h.Beat(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *fixture) lease() (*coordinationv1.Lease, bool) {
	s.t.Helper()
	l := &coordinationv1.Lease{}
	err := s.server.Get(s.t.Context(), client.ObjectKey{Namespace: "moor", Name: "dpustoragenode.n1"}, l)
	if client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
	return l, err == nil
}

// want counts since it was asked last.
func (s *fixture) want(what string, objects, leases, reads int) {
	s.t.Helper()
	if s.objects != objects || s.leases != leases || s.reads != reads {
		s.t.Errorf("%s: %d writes of the object, %d of the Lease, %d reads; want %d, %d, %d", what, s.objects, s.leases, s.reads, objects, leases, reads)
	}
	s.objects, s.leases, s.reads = 0, 0, 0
}

// TestBeatsByLease: each heartbeat renews the Lease and reads nothing; the object is
// written when it says something else, and with every sixth.
func TestBeatsByLease(t *testing.T) {
	s := newFixture(t, nil)
	s.beat()
	s.want("the first", 1, 1, 2)
	for range 5 {
		s.beat()
	}
	s.want("the next five", 0, 5, 0)
	s.beat()
	s.want("the sixth after", 1, 1, 0)
	for range 60 {
		s.beat()
	}
	s.want("ten minutes", 10, 60, 0)
	s.state.SNAPReady = false
	s.beat()
	s.want("a change", 1, 1, 0)
	for range 5 {
		s.beat()
	}
	s.want("the next five again", 0, 5, 0)
	if n := s.node(t); n.Status.DPU.Sequence != 13 || n.Status.DPU.SNAPReady {
		t.Errorf("the object says %+v", n.Status.DPU)
	}
}

// TestObjectsAreSpread: hosts that start together do not write their objects together for
// ever, though each beats six times from one write to the next.
func TestObjectsAreSpread(t *testing.T) {
	const hearts = 6
	var at [1 + 3*perObject]int
	for i := range hearts {
		s := newFixture(t, func(o *Options) { o.Random = func() float64 { return (float64(i) + 0.5) / hearts } })
		for beat := range at {
			s.beat()
			at[beat] += s.objects
			s.objects = 0
		}
	}
	if at[0] != hearts {
		t.Errorf("the first heartbeat wrote %d objects of %d", at[0], hearts)
	}
	for beat, objects := range at[1:] {
		if objects != hearts/perObject {
			t.Errorf("%d objects were written with heartbeat %d; want %d", objects, beat+2, hearts/perObject)
		}
	}
}

// TestLateSight: what the DPU saw of its host was on its way for long, without an answer,
// and lands when the DPU has said something else since. It does not stand.
func TestLateSight(t *testing.T) {
	for _, when := range []string{"before the next write", "after it"} {
		t.Run(when, func(t *testing.T) {
			s := newFixture(t, nil)
			s.beat()
			var land func()
			s.onPatch = func(o client.Object, p client.Patch) error {
				data, err := p.Data(o)
				if err != nil {
					return err
				}
				land = func() {
					late := client.RawPatch(p.Type(), data)
					if err := s.server.Status().Patch(t.Context(), s.node(t), late); err != nil && !apierrors.IsConflict(err) {
						t.Error(err)
					}
				}
				return context.DeadlineExceeded
			}
			alive := s.state.Host
			s.state.Host = &moorv1alpha1.HostObservation{Alive: false, Since: metav1.NewTime(start)}
			if err := s.h.Beat(t.Context()); err == nil || land == nil {
				t.Fatalf("the write has an answer: %v", err)
			}
			s.onPatch, s.state.Host = nil, alive
			if when == "after it" {
				s.beat()
			} else {
				s.onPatch = func(client.Object, client.Patch) error { // what was read is over
					s.onPatch = nil
					land()
					return nil
				}
				_ = s.h.Beat(t.Context()) // refused, and tried again
				s.beat()
			}
			land()
			for range perObject {
				s.beat()
			}
			if host := s.node(t).Status.DPU.Host; host == nil || !host.Alive {
				t.Errorf("the host is alive, and the object says %+v", host)
			}
		})
	}
}

// TestLeaseSaysWhoseItIs, and goes with the object.
func TestLeaseSaysWhoseItIs(t *testing.T) {
	s := newFixture(t, nil)
	s.beat()
	l, _ := s.lease()
	if _, ok := l.Labels[moorv1alpha1.LabelHeartbeat]; !ok || *l.Spec.HolderIdentity != "n1" || *l.Spec.LeaseDurationSeconds != 40 || !l.Spec.RenewTime.Time.Equal(s.clock.Now()) {
		t.Errorf("the Lease is %+v, labels %v", l.Spec, l.Labels)
	}
	if o := l.OwnerReferences; len(o) != 1 || o[0].Kind != "DPUStorageNode" || o[0].Name != "n1" || o[0].UID != s.node(t).UID {
		t.Errorf("its owners are %+v", o)
	}
}

// TestClockThatStands: each heartbeat changes the Lease all the same.
func TestClockThatStands(t *testing.T) {
	s := newFixture(t, nil)
	seen := map[int64]bool{}
	for range 5 {
		if err := s.h.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
		l, _ := s.lease()
		seen[l.Spec.RenewTime.UnixMicro()] = true
	}
	if len(seen) < 5 {
		t.Errorf("5 heartbeats have %d times", len(seen))
	}
}

// TestLeaseIsLost: one that another has written, or deleted, or made, is read once and
// written in the same beat.
func TestLeaseIsLost(t *testing.T) {
	for name, lose := range map[string]func(s *fixture, l *coordinationv1.Lease) error{
		"written": func(s *fixture, l *coordinationv1.Lease) error {
			l.Annotations = map[string]string{"a": "b"}
			return s.server.Update(t.Context(), l)
		},
		"deleted": func(s *fixture, l *coordinationv1.Lease) error { return s.server.Delete(t.Context(), l) },
		"made anew": func(s *fixture, l *coordinationv1.Lease) error {
			if err := s.server.Delete(t.Context(), l); err != nil {
				return err
			}
			return s.server.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, nil)
			s.beat()
			s.beat()
			s.want("the first two", 1, 2, 2)
			l, _ := s.lease()
			if err := lose(s, l); err != nil {
				t.Fatal(err)
			}
			s.beat()
			objects := 0
			if name == "deleted" {
				objects = 1 // perhaps it was too
			}
			s.want("after it was "+name, objects, 2, 1)
			if l, found := s.lease(); !found || !l.Spec.RenewTime.Time.Equal(s.clock.Now()) {
				t.Errorf("the Lease is %+v, found %v", l.Spec, found)
			}
		})
	}
}

// TestObjectGoesWithItsLease: a node whose object was deleted, and with it its Lease, is
// there again after the next heartbeats.
func TestObjectGoesWithItsLease(t *testing.T) {
	s := newFixture(t, nil)
	s.beat()
	l, _ := s.lease()
	for _, o := range []client.Object{s.node(t), l} {
		if err := s.server.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	s.clock.Step(time.Second)
	if err := s.h.Beat(t.Context()); err == nil {
		t.Fatal("the object is gone, and a write of it succeeded")
	}
	s.beat()
	if l, _ := s.lease(); l.OwnerReferences[0].UID != s.node(t).UID {
		t.Error("the Lease is of the object that was deleted")
	}
}

// TestWithoutALease: where the Lease cannot be written the object carries each
// heartbeat, and a heartbeat that neither carries has failed.
func TestWithoutALease(t *testing.T) {
	s := newFixture(t, nil)
	s.beat()
	forbidden := apierrors.NewForbidden(coordinationv1.Resource("leases"), "dpustoragenode.n1", errors.New("no right"))
	s.refuse = func(lease bool) error {
		if lease {
			return forbidden
		}
		return nil
	}
	before := s.node(t).Status.DPU.Sequence
	for range 5 {
		s.beat()
	}
	if got := s.node(t).Status.DPU.Sequence - before; got != 5 {
		t.Errorf("5 heartbeats raised the sequence by %d", got)
	}
	s.refuse = func(bool) error { return forbidden }
	if err := s.h.Beat(t.Context()); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
	s.refuse = func(bool) error { return nil }
	s.beat()
	s.want("all", 8, 8, 3)
}

// TestPromisesStandInTheObject: those that promise a lease write each heartbeat there,
// and no Lease.
func TestPromisesStandInTheObject(t *testing.T) {
	s := newFixture(t, func(o *Options) { o.Exact = true })
	for range 5 {
		s.beat()
	}
	s.want("five", 5, 0, 1)
	if _, found := s.lease(); found {
		t.Error("there is a Lease")
	}
}

// TestDone: each heartbeat that was answered counts, wherever it stands.
func TestDone(t *testing.T) {
	done := 0
	s := newFixture(t, func(o *Options) { o.Done = func() { done++ } })
	for range 5 {
		s.beat()
	}
	s.refuse = func(bool) error { return errors.New("no route") }
	if err := s.h.Beat(t.Context()); err == nil || done != 5 {
		t.Errorf("%v, %d done", err, done)
	}
}

// TestSlowServer: a renewal that is not answered in time has failed, and costs no more
// requests then than it does else.
func TestSlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, nil)
		s.beat()
		s.want("the first", 1, 1, 2)
		s.refuse = func(bool) error { time.Sleep(time.Minute); return context.DeadlineExceeded }
		if err := s.h.Beat(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		s.want("no answer", 0, 1, 0)
		s.refuse = func(bool) error { return nil }
		s.beat()
		s.want("answered again", 0, 1, 0)
	})
}
