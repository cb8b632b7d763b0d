// Package volume makes and removes dynamic volumes by pods: it brings each PodVolume through its
// phases, one write at a time, so that a restart at any instant changes nothing.
package volume

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// Reconciler brings PodVolumes through their phases.
type Reconciler struct {
	kube.Cluster
	Pods         helper.Pods
	Provisioners *compiled.Store
	Clock        clock.PassiveClock
	// Recorder tells of ends.
	Recorder record.EventRecorder
}

// Reconcile takes the next step of a PodVolume.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	v := &moorv1alpha1.PodVolume{}
	found, err := kube.Find(ctx, r.Client, req.NamespacedName, v)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	if !controllerutil.ContainsFinalizer(v, moorv1alpha1.FinalizerPodVolume) {
		if !v.DeletionTimestamp.IsZero() {
			return ctrl.Result{}, nil
		}
		_, err := kube.AddFinalizer(ctx, r.Client, v, moorv1alpha1.FinalizerPodVolume)
		return ctrl.Result{}, err
	}
	s, strays, err := r.look(ctx, v)
	if err != nil {
		return ctrl.Result{}, err
	}
	next := decide(v, s)
	switch next.do {
	case removePod:
		err = r.Pods.Remove(ctx, s.pod)
	case sweep:
		err = r.Pods.Sweep(ctx, helper.OfVolume(v), strays)
	case retire:
		err = kube.DeleteExact(ctx, r.Client, v)
	case release:
		err = kube.RemoveFinalizers(ctx, r.Client, v, moorv1alpha1.FinalizerPodVolume)
	default:
		err = r.goOn(ctx, v, s, next)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: next.after}, nil
}

// goOn takes a step for which templates may have to be evaluated, or writes the status. The pod that
// a status records is made right after, as long as its template is at hand.
func (r *Reconciler) goOn(ctx context.Context, v *moorv1alpha1.PodVolume, s seen, next step) error {
	phase, e := next.phase, evaluated{}
	for next.do == begin {
		phase = next.phase
		var err error
		if e, err = r.evaluate(ctx, v, s, phase); err != nil {
			return err
		}
		next = begun(v, phase, e, s.now)
	}
	var err error
	switch next.do {
	case write:
		if err := r.write(ctx, v, next); err != nil || e.template == nil || !helper.Is(v.Status.Pod, podName(v, phase)) {
			return err
		}
		return r.make(ctx, v, phase, e)
	case resolve:
		if e, err = r.evaluate(ctx, v, s, pods.Creation); err != nil {
			return err
		}
		next = resolved(v, e, v.Status.Report, s.now)
		next.ended = &helper.Judgement{Verdict: helper.Succeeded}
		if next.next.Phase != moorv1alpha1.PodVolumeCreated {
			next.ended.Verdict = helper.Failed
		}
		return r.write(ctx, v, next)
	case makePod:
		if e, err = r.evaluate(ctx, v, s, phase); err != nil {
			return err
		}
		if e.err != nil || e.template == nil { // the provisioner was changed since the pod was recorded
			return r.write(ctx, v, ofEnd(v, s, helper.Judgement{Verdict: helper.Failed, Words: fmt.Sprintf("%s cannot be made: %v", helper.The(phase, v.Status.Pod), gone(e.err))}))
		}
		return r.make(ctx, v, phase, e)
	}
	return nil
}

// gone is an error also if a template has gone.
func gone(err error) error {
	if err == nil {
		return errors.New("the provisioner has no such pod any more")
	}
	return err
}

// evaluate evaluates the templates of a phase. What another try may mend is an error; what it would
// not is in the result.
func (r *Reconciler) evaluate(ctx context.Context, v *moorv1alpha1.PodVolume, s seen, phase pods.Phase) (evaluated, error) {
	var out evaluated
	of, err := askedOf(v)
	if err != nil {
		return evaluated{err: err}, nil
	}
	var variables pods.Context
	if out.request, variables, err = pods.OfClaim(of.claim, of.class); err != nil {
		return evaluated{err: err}, nil
	}
	claims := &helper.Claims{Reader: r.Client}
	switch phase {
	case pods.Validation:
		out.template, out.err = s.provisioner.Provisioner.Validate(ctx, claims, out.request, variables)
	case pods.Creation:
		out.made, out.err = s.provisioner.Provisioner.Create(ctx, claims, variables)
		out.template = out.made.Pod
	default:
		out.template, out.err = s.provisioner.Provisioner.Delete(ctx, claims, variables)
	}
	if claims.Err != nil {
		return out, claims.Err
	}
	return out, nil
}

// make makes the pod that the status records. Its directory has its name, by which its node finds it.
func (r *Reconciler) make(ctx context.Context, v *moorv1alpha1.PodVolume, phase pods.Phase, e evaluated) error {
	err := r.Pods.Make(ctx, helper.OfVolume(v), helper.Order{
		Phase: phase, Record: v.Status.Pod, Template: e.template, Directory: v.Status.Pod.Name,
	})
	var refused *helper.Refused
	if !errors.As(err, &refused) {
		return err
	}
	return r.write(ctx, v, ofEnd(v, seen{now: r.Clock.Now()}, helper.Judgement{Verdict: helper.Failed, Words: fmt.Sprintf("%s cannot be made: %v", helper.The(phase, v.Status.Pod), err)}))
}

// write writes the status, if it was not changed since it was read, and tells of an end.
func (r *Reconciler) write(ctx context.Context, v *moorv1alpha1.PodVolume, next step) error {
	before := v.Status.DeepCopy()
	if _, err := kube.PatchStatusExact(ctx, r.Client, v, func(v *moorv1alpha1.PodVolume) { v.Status = next.next }); err != nil {
		return err
	}
	if next.ended != nil {
		r.Pods.Ended(working[before.Phase], before.Pod, *next.ended, r.Clock.Now())
	}
	if v.Status.Phase == before.Phase {
		return nil
	}
	switch v.Status.Phase {
	case moorv1alpha1.PodVolumeFailed, moorv1alpha1.PodVolumeDeletionFailed:
		r.Recorder.Event(v, corev1.EventTypeWarning, string(v.Status.Phase), v.Status.Message)
	case moorv1alpha1.PodVolumeCreated:
		r.Recorder.Eventf(v, corev1.EventTypeNormal, string(v.Status.Phase), "volume %s of %d bytes is there", v.Status.Handle, v.Status.CapacityBytes)
	}
	return nil
}
