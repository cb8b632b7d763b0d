// Package powerproof has BMCs switch hosts off, and reset DPUs, whose volumes are being
// taken and of which no other proof comes, and keeps what they say for the rule that judges
// it (pkg/writer, JudgePower).
//
// A BMC may take many seconds over an answer. So the passes of failover only ask what is
// known, and a reconciler of its own, one step at a time, asks the BMCs beside them. What
// was read stands in memory, and begins anew after a restart; what was done to a machine
// stands in the status of its PowerControl before it is done.
package powerproof

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/power"
	"github.com/moor-storage/moor/pkg/power/redfish"
	"github.com/moor-storage/moor/pkg/writer"
)

// DefaultAfter is for how long other proofs are waited for before a BMC is asked: they come
// within seconds, and leave machines as they are.
const DefaultAfter = 15 * time.Second

// DefaultDrain is how long the storage may take over what it has received: that of
// --lease-drain of snap-node-driver.
const DefaultDrain = 10 * time.Second

const (
	// asksLast is for how long a question stands that is not asked again: passes ask every few
	// seconds.
	asksLast = 45 * time.Second
	// asksNow is for how long one is cause to touch a machine: what it was asked for may have
	// ended otherwise.
	asksNow = 12 * time.Second
)

// mostReadings is how many readings of one machine are kept, which is more than a proof
// takes.
const mostReadings = 100

// Options of a Keeper.
type Options struct {
	// Host is the host cluster, in whose Namespace PowerControls and their Secrets are.
	Host      kube.Cluster
	Namespace string
	Clock     clock.PassiveClock
	// After and Drain: see DefaultAfter and DefaultDrain.
	After, Drain time.Duration
	// Silent is since when nothing was heard of the DPU of a host.
	Silent func(host string) time.Time
	// Connect makes a machine of the configuration of its BMC; nil: by Redfish.
	Connect func(redfish.Config) (power.Machine, error)
}

// Keeper keeps what BMCs say. It is safe for concurrent use.
type Keeper struct {
	o Options
	// wakes has steps done, and reads tells of what was read.
	wakes, reads chan event.GenericEvent

	mu       sync.Mutex
	sessions map[string]*session
	// released are the hosts that may be switched on again, and when their BMC was asked for
	// that last; zero: it was not.
	released map[string]time.Time
}

// fence is since when a claim is known to be in Fencing under an epoch.
type fence struct {
	epoch int64
	since time.Time
}

// session is what is wanted of one host, and known of it.
type session struct {
	// question is the last, and asked its time.
	question Question
	asked    time.Time
	// fencing are the claims that are in Fencing, and newest is since when the latest is.
	fencing map[string]fence
	newest  time.Time
	// active: other proofs were waited for.
	active bool
	// stepped is when the last step began.
	stepped time.Time
	// round is the last request that was accepted; nil: none was.
	round *round
	// trouble says why the last step came to nothing.
	trouble string
}

// round is one request that a BMC has accepted, and what was read since.
type round struct {
	of         machine
	want       power.Identity
	generation int64
	before     power.Reading
	accepted   time.Time
	readings   []power.Reading
}

// New returns a Keeper; call SetupWithManager, or Reconcile in tests.
func New(o Options) *Keeper {
	if o.Connect == nil {
		o.Connect = func(c redfish.Config) (power.Machine, error) { return redfish.New(c) }
	}
	return &Keeper{o: o, wakes: make(chan event.GenericEvent, 1024), reads: make(chan event.GenericEvent, 1024), sessions: map[string]*session{}, released: map[string]time.Time{}}
}

// Question is about the DPU that holds a claim which is in Fencing.
type Question struct {
	// Host that the DPU is in, and the DPU.
	Host, DPU string
	// Claim is the UID of the claim, and Epoch the one that is being taken back.
	Claim string
	Epoch int64
	// MayOff: the host may be switched off, as it is taken for dead, or a person wants it to
	// fail over.
	MayOff bool
	// MayReset: the DPU may be reset, as it is silent.
	MayReset bool
	// Alone: no other proof can come, so none is waited for.
	Alone bool
}

// Ask has the BMCs asked, beside the caller, and returns what is known of the power of the
// DPU; nil while other proofs are waited for, or if there is no PowerControl for the host.
// It is to be asked again every few seconds for as long as there is no proof.
//
// A Keeper that is nil knows nothing, and is asked for nothing.
func (k *Keeper) Ask(ctx context.Context, q Question) (*writer.Power, error) {
	if k == nil {
		return nil, nil //nolint:nilnil // nothing is known
	}
	control, err := k.find(ctx, q.Host)
	if err != nil || control == nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.o.Clock.Now()
	s := k.session(q.Host, now)
	s.question, s.asked = q, now
	delete(k.released, q.Host)
	if known, is := s.fencing[q.Claim]; !is || known.epoch != q.Epoch {
		s.fencing[q.Claim], s.newest = fence{q.Epoch, now}, now
	}
	since := s.fencing[q.Claim].since
	if now.Sub(since) < k.o.After && !q.Alone {
		return nil, nil //nolint:nilnil // there is nothing to judge yet
	}
	s.active = true
	k.wake(q.Host)
	return k.known(control, s, since, now), nil
}

// session is that of a host; one that was not asked for is begun anew.
func (k *Keeper) session(host string, now time.Time) *session {
	s := k.sessions[host]
	if s == nil || now.Sub(s.asked) > asksLast {
		s = &session{fencing: map[string]fence{}}
		k.sessions[host] = s
	}
	return s
}

// known is what can be judged of a claim that is in Fencing since a time.
func (k *Keeper) known(control *moorv1alpha1.PowerControl, s *session, since, now time.Time) *writer.Power {
	way := choose(control.Spec, s.question)
	r := s.round
	if way.words != "" || r == nil || r.of != way.machine || r.generation != control.Generation {
		words := way.words
		if s.trouble != "" {
			words = s.trouble
		}
		if words == "" {
			words = "the BMC of the " + string(way.machine) + " is asked"
		}
		return &writer.Power{Trouble: words, Now: now}
	}
	return &writer.Power{
		Asked: true, ByHost: r.of == theHost, Want: r.want, Fencing: since, Accepted: r.accepted, Before: r.before,
		Readings: append([]power.Reading{}, r.readings...), Heard: k.o.Silent(s.question.Host), Drain: k.o.Drain, Trouble: s.trouble, Now: now,
	}
}

// Done says that a claim is not in Fencing any more: what was asked for it alone is not done.
func (k *Keeper) Done(host, claim string) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.sessions[host]
	if s == nil {
		return
	}
	if delete(s.fencing, claim); len(s.fencing) == 0 {
		delete(k.sessions, host)
	}
}

// Forget says that nothing is taken from a host now: nothing of it is touched.
func (k *Keeper) Forget(host string) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.sessions, host)
}

// Release lets a host be switched on again that was switched off: nothing is being taken
// from it any more. It returns what a person has to know of that; "" if there is nothing.
func (k *Keeper) Release(ctx context.Context, host string) (string, error) {
	if k == nil {
		return "", nil
	}
	control, err := k.find(ctx, host)
	if err != nil || control == nil || control.Status.HostOff == nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.sessions, host)
	if _, is := k.released[host]; !is {
		k.released[host] = time.Time{}
	}
	k.wake(host)
	if control.Spec.PowerOn == moorv1alpha1.PowerOnReleased {
		return "the host was switched off by its BMC, and is being switched on again", nil
	}
	return "the host was switched off by its BMC at " + stamp(control.Status.HostOff) + ": switch it on when it may run again", nil
}

// wake has a step done soon. If too much is to be done already, the next question wakes.
func (k *Keeper) wake(host string) {
	tell(k.wakes, &moorv1alpha1.PowerControl{ObjectMeta: metav1.ObjectMeta{Namespace: k.o.Namespace, Name: host}})
}

func tell(whom chan event.GenericEvent, of client.Object) {
	select {
	case whom <- event.GenericEvent{Object: of}:
	default:
	}
}

// Source tells of each DPUStorageNode of whose host or DPU a BMC was asked, when that is done:
// what is known may be a proof by then. A Keeper that is nil tells nothing.
func (k *Keeper) Source() source.Source {
	reads := make(chan event.GenericEvent)
	if k != nil {
		reads = k.reads
	}
	return source.Channel(reads, &handler.EnqueueRequestForObject{})
}

// find is the PowerControl of a host, which is not to be changed; nil if there is none.
func (k *Keeper) find(ctx context.Context, host string) (*moorv1alpha1.PowerControl, error) {
	out := &moorv1alpha1.PowerControl{}
	found, err := kube.Find(ctx, k.o.Host.Client, client.ObjectKey{Namespace: k.o.Namespace, Name: host}, out, client.UnsafeDisableDeepCopy)
	if err != nil || !found {
		return nil, err
	}
	return out, nil
}
