package powerproof

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/power"
	"github.com/moor-storage/moor/pkg/writer"
)

const (
	// workers is how many machines are asked at once: a BMC that hangs keeps one of them for
	// as long as a call may take.
	workers = 16
	// again is after what time a request is repeated of which nothing came. DPF, too, waits
	// for a minute between two resets of a DPU.
	again = time.Minute
	// resetAgain is the same of a reset that was accepted, with the time that its proof takes.
	resetAgain = 2 * time.Minute
)

// SetupWithManager watches PowerControls, and what is asked.
func (k *Keeper) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("powerproof").
		For(&moorv1alpha1.PowerControl{}).
		WatchesRawSource(source.Channel(k.wakes, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(kube.Retrying(k))
}

// Reconcile does one step for one host: it has a machine switched off or reset, or reads
// how it is, while that is asked for; or it has a host switched on again.
func (k *Keeper) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	control, err := k.find(ctx, req.Name)
	if err != nil || control == nil {
		return ctrl.Result{}, err
	}
	control = control.DeepCopy()
	s, released, wait := k.turn(req.Name)
	switch {
	case wait > 0:
		return ctrl.Result{RequeueAfter: wait}, nil
	case released && control.Status.HostOff != nil:
		return k.giveBack(ctx, control)
	}
	way := choose(control.Spec, s.question)
	if way.machine == "" {
		return ctrl.Result{}, nil // a question wakes it
	}
	round, err := k.step(ctx, control, s, way.machine)
	k.note(req.Name, round, err)
	return ctrl.Result{RequeueAfter: writer.PowerPeriod}, nil
}

// turn is a copy of what is wanted of a host; wait is how long that has time.
func (k *Keeper) turn(host string) (s session, released bool, wait time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, is := k.o.Clock.Now(), k.sessions[host]
	if is == nil || !is.active || now.Sub(is.asked) > asksLast {
		_, released = k.released[host]
		return session{}, released, 0
	}
	if left := writer.PowerPeriod - now.Sub(is.stepped); left > 0 {
		return session{}, false, left
	}
	is.stepped = now
	return *is, false, 0
}

// note keeps what came of a step, whatever is asked by now: of a claim that is being taken back only since then
// the rule believes no reset of before, and of a host nothing that was read before.
func (k *Keeper) note(host string, r *round, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.sessions[host]
	if s == nil {
		return
	}
	if s.round, s.trouble = r, ""; err != nil {
		s.trouble = err.Error()
	}
	tell(k.reads, &moorv1alpha1.DPUStorageNode{ObjectMeta: metav1.ObjectMeta{Name: host}})
}

// step reads a machine for which a request was accepted, or makes the request. The round
// that it returns goes on with the one before, if there is no new one.
func (k *Keeper) step(ctx context.Context, control *moorv1alpha1.PowerControl, s session, of machine) (*round, error) {
	config, err := k.config(ctx, control, of)
	if err != nil {
		return s.round, err
	}
	m, err := k.o.Connect(config)
	if err != nil {
		return s.round, err
	}
	reading, err := m.Read(ctx)
	if err != nil {
		return s.round, err
	}
	r := s.round
	if r != nil && (r.of != of || r.generation != control.Generation || r.want != config.Want) {
		r = nil
	}
	if r != nil {
		r = r.with(reading)
		if !r.over(s.newest, reading, k.o.Clock.Now()) {
			return r, nil
		}
	}
	if refused := config.Want.Refuse(reading.Is); refused != "" {
		return r, fmt.Errorf("%w: %s", power.ErrOtherMachine, refused)
	}
	if !k.stands(control.Name, s.question) {
		return r, nil
	}
	if err := k.request(ctx, control, m, of); err != nil {
		return r, err
	}
	return &round{of: of, want: config.Want, generation: control.Generation, before: reading, accepted: k.o.Clock.Now()}, nil
}

// stands reports whether a question is cause to touch a machine still: to read how it is may
// have taken long.
func (k *Keeper) stands(host string, q Question) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.sessions[host]
	return s != nil && k.o.Clock.Since(s.asked) <= asksNow && s.question.DPU == q.DPU && s.question.MayOff == q.MayOff && s.question.MayReset == q.MayReset
}

// with is the round after one more reading.
func (r *round) with(reading power.Reading) *round {
	out := *r
	out.readings = append(append([]power.Reading{}, r.readings...), reading)
	out.readings = out.readings[max(0, len(out.readings)-mostReadings):]
	return &out
}

// over reports whether the request is to be made anew: the machine was reset before the
// newest claim was in Fencing, or nothing came of it.
func (r *round) over(newest time.Time, last power.Reading, now time.Time) bool {
	if r.of == theHost {
		return last.System != power.StateOff && now.Sub(r.accepted) >= again
	}
	return !r.before.At.After(newest) && now.Sub(r.accepted) >= again || now.Sub(r.accepted) >= resetAgain
}

// request asks for what takes the power from the machine, and writes first that it does.
func (k *Keeper) request(ctx context.Context, control *moorv1alpha1.PowerControl, m power.Machine, of machine) error {
	now := metav1.NewTime(k.o.Clock.Now())
	if last := control.Status.DPUReset; of == theDPU && last != nil && now.Sub(last.Time) < again {
		return fmt.Errorf("the DPU was reset at %s, and is reset again %s later at the earliest", stamp(last), again)
	}
	_, err := kube.PatchStatus(ctx, k.o.Host.Client, control, func(c *moorv1alpha1.PowerControl) {
		switch {
		case of == theDPU:
			c.Status.DPUReset = &now
		case c.Status.HostOff == nil:
			c.Status.HostOff = &now
		}
	})
	if err != nil {
		return err
	}
	if of == theDPU {
		return m.Restart(ctx)
	}
	return m.PowerOff(ctx)
}

// giveBack switches a host on that was switched off here, once nothing is taken from it any
// more, if the installer wants that; and forgets it when the host is seen on.
func (k *Keeper) giveBack(ctx context.Context, control *moorv1alpha1.PowerControl) (ctrl.Result, error) {
	config, err := k.config(ctx, control, theHost)
	if err != nil {
		return ctrl.Result{}, err
	}
	m, err := k.o.Connect(config)
	if err != nil {
		return ctrl.Result{}, err
	}
	reading, err := m.Read(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if refused := config.Want.Refuse(reading.Is); refused != "" {
		return ctrl.Result{}, fmt.Errorf("%w: %s", power.ErrOtherMachine, refused)
	}
	switch {
	case reading.System == power.StateOn:
		_, err = kube.PatchStatus(ctx, k.o.Host.Client, control, func(c *moorv1alpha1.PowerControl) { c.Status.HostOff = nil })
		return ctrl.Result{}, err
	case control.Spec.PowerOn != moorv1alpha1.PowerOnReleased || !k.askOn(control.Name):
		return ctrl.Result{RequeueAfter: again}, nil
	}
	return ctrl.Result{RequeueAfter: again}, m.PowerOn(ctx)
}

// askOn reports whether a host that is released is to be asked to come on now, and notes that
// it is: passes of failover wake this one more often than a machine takes to boot.
func (k *Keeper) askOn(host string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	asked, released := k.released[host]
	if !released || k.o.Clock.Since(asked) < again {
		return false
	}
	k.released[host] = k.o.Clock.Now()
	return true
}

func stamp(t *metav1.Time) string { return t.UTC().Format(time.RFC3339) }
