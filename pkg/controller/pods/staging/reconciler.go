// Package staging makes volumes available on nodes by pods: it brings each PodStaging through its
// phases, one write at a time, notices staged pods that die, and holds the stagings of a volume
// against its access modes.
package staging

import (
	"context"
	"errors"
	"fmt"
	"sync"

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

// Reconciler brings PodStagings through their phases.
type Reconciler struct {
	kube.Cluster
	Pods         helper.Pods
	Provisioners *compiled.Store
	Clock        clock.PassiveClock
	// Recorder tells the users.
	Recorder record.EventRecorder

	// admission has stagings of volumes begin one at a time, so that two of a volume that may have
	// one see each other.
	admission sync.Mutex
	// begun are those that were let begin.
	begun kube.Recent[struct{}]
}

// Reconcile takes the next step of a PodStaging.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	p := &moorv1alpha1.PodStaging{}
	found, err := kube.Find(ctx, r.Client, req.NamespacedName, p)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	if !controllerutil.ContainsFinalizer(p, moorv1alpha1.FinalizerPodStaging) {
		if !p.DeletionTimestamp.IsZero() {
			return ctrl.Result{}, nil
		}
		_, err := kube.AddFinalizer(ctx, r.Client, p, moorv1alpha1.FinalizerPodStaging)
		return ctrl.Result{}, err
	}
	s, strays, err := r.look(ctx, p)
	if err != nil {
		return ctrl.Result{}, err
	}
	next := decide(p, s)
	switch next.do {
	case removePod:
		err = r.Pods.Remove(ctx, s.pod)
	case sweep:
		err = r.Pods.Sweep(ctx, helper.OfStaging(p), strays)
	case retire:
		err = kube.DeleteExact(ctx, r.Client, p)
	case release:
		err = kube.RemoveFinalizers(ctx, r.Client, p, moorv1alpha1.FinalizerPodStaging)
	case begin:
		err = r.begin(ctx, p, s, next.phase)
	case makePod:
		err = r.again(ctx, p, s, next.phase)
	case write:
		err = r.write(ctx, p, next)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: next.after}, nil
}

// begin records the pod of a phase, and makes it right after.
func (r *Reconciler) begin(ctx context.Context, p *moorv1alpha1.PodStaging, s seen, phase pods.Phase) error {
	e, err := r.admit(ctx, p, s, phase)
	if err != nil {
		return err
	}
	if err := r.write(ctx, p, begun(p, phase, e, s.now)); err != nil || e.err != nil || e.template == nil {
		return err
	}
	return r.make(ctx, p, phase, e)
}

// admit evaluates the templates of a phase, and marks a staging that may begin.
func (r *Reconciler) admit(ctx context.Context, p *moorv1alpha1.PodStaging, s seen, phase pods.Phase) (evaluated, error) {
	if phase != pods.Staging {
		return r.evaluate(ctx, p, s, phase)
	}
	r.admission.Lock()
	defer r.admission.Unlock()
	e, err := r.evaluate(ctx, p, s, phase)
	if err == nil && e.err == nil {
		r.begun.Note(p.UID, struct{}{}, s.now, s.now.Add(marked))
	}
	return e, err
}

// again makes the pod that is recorded, whose template is not at hand any more.
func (r *Reconciler) again(ctx context.Context, p *moorv1alpha1.PodStaging, s seen, phase pods.Phase) error {
	e, err := r.evaluate(ctx, p, s, phase)
	if err != nil {
		return err
	}
	if e.err == nil && e.template == nil { // the provisioner was changed since the pod was recorded
		e.err = errors.New("the provisioner has no such pod any more")
	}
	if e.err != nil {
		return r.unmade(ctx, p, phase, e.err)
	}
	return r.make(ctx, p, phase, e)
}

// make makes the pod that the status records.
func (r *Reconciler) make(ctx context.Context, p *moorv1alpha1.PodStaging, phase pods.Phase, e evaluated) error {
	err := r.Pods.Make(ctx, helper.OfStaging(p), helper.Order{
		Phase: phase, Record: p.Status.Pod, Template: e.template, NodeName: p.Spec.NodeName, Directory: p.Status.Directory,
	})
	var refused *helper.Refused
	if errors.As(err, &refused) {
		return r.unmade(ctx, p, phase, err)
	}
	return err
}

// unmade writes that the pod that is recorded cannot be made.
func (r *Reconciler) unmade(ctx context.Context, p *moorv1alpha1.PodStaging, phase pods.Phase, err error) error {
	words := fmt.Sprintf("%s cannot be made: %v", helper.The(phase, p.Status.Pod), err)
	return r.write(ctx, p, ofEnd(p, seen{now: r.Clock.Now()}, helper.Judgement{Verdict: helper.Failed, Words: words}))
}

// write writes the status, if it was not changed since it was read, and tells its user.
func (r *Reconciler) write(ctx context.Context, p *moorv1alpha1.PodStaging, next step) error {
	before := p.Status.DeepCopy()
	if _, err := kube.PatchStatusExact(ctx, r.Client, p, func(p *moorv1alpha1.PodStaging) { p.Status = next.next }); err != nil {
		return err
	}
	if next.ended != nil {
		r.Pods.Ended(working[before.Phase], before.Pod, *next.ended, r.Clock.Now())
	}
	if p.Status.Phase == isBroken && before.Phase != isBroken {
		r.Pods.Metrics.Lost()
	}
	if next.tells != "" {
		kind := corev1.EventTypeWarning
		if p.Status.Phase == isStaged {
			kind = corev1.EventTypeNormal
		}
		r.Recorder.Event(userOf(p.Spec.User), kind, "Volume"+string(p.Status.Phase), next.tells)
	}
	return nil
}
