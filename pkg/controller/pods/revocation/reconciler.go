package revocation

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// Reconciler brings PodRevocations through their phases.
type Reconciler struct {
	kube.Cluster
	Pods         helper.Pods
	Provisioners *compiled.Store
	Clock        clock.PassiveClock
	// Recorder tells of ends.
	Recorder record.EventRecorder
}

// Reconcile takes the next step of a PodRevocation.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	p := &moorv1alpha1.PodRevocation{}
	found, err := kube.Find(ctx, r.Client, req.NamespacedName, p)
	if err != nil || !found || !controllerutil.ContainsFinalizer(p, moorv1alpha1.FinalizerPodRevocation) {
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
		err = r.Pods.Sweep(ctx, helper.OfRevocation(p), strays)
	case retire:
		err = kube.DeleteExact(ctx, r.Client, p)
	case free:
		err = kube.RemoveFinalizers(ctx, r.Client, p, moorv1alpha1.FinalizerPodRevocation)
	case begin:
		err = r.begin(ctx, p, s)
	case makePod:
		err = r.again(ctx, p, s)
	case write:
		err = r.write(ctx, p, next)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: next.after}, nil
}

// look sees what a pass needs to know.
func (r *Reconciler) look(ctx context.Context, p *moorv1alpha1.PodRevocation) (s seen, strays []corev1.Pod, err error) {
	s.now = r.Clock.Now()
	w := helper.OfRevocation(p)
	if p.Status.Pod != nil {
		if s.pod, err = r.Pods.See(ctx, w, p.Status.Pod); err != nil {
			return s, nil, err
		}
	}
	if strays, err = r.Pods.Strays(ctx, w, p.Status.Pod); err != nil {
		return s, nil, err
	}
	s.strays = len(strays)
	if s.unasked, err = r.unasked(ctx, p); err != nil {
		return s, nil, err
	}
	s.provisioner, err = r.Provisioners.Find(ctx, helper.ProvisionerFrom(r.Cluster, p.Status.Phase != isRevoking, p.Status.Pod, s.pod), p.Spec.ProvisionerName)
	return s, strays, err
}

// unasked sees whether the request is gone, by what the API server itself says.
func (r *Reconciler) unasked(ctx context.Context, p *moorv1alpha1.PodRevocation) (bool, error) {
	sv := &storagev1alpha1.SVVolumeAttachment{}
	found, err := kube.Find(ctx, r.Live, types.NamespacedName{Namespace: p.Spec.Request.Namespace, Name: p.Spec.Request.Name}, sv)
	if err != nil {
		return false, err
	}
	return !found || sv.UID != p.Spec.Request.UID || !controllerutil.ContainsFinalizer(sv, moorv1alpha1.FinalizerPodRevocation), nil
}

// begin records the pod, and makes it right after.
func (r *Reconciler) begin(ctx context.Context, p *moorv1alpha1.PodRevocation, s seen) error {
	e, err := r.evaluate(ctx, p, s)
	if err != nil {
		return err
	}
	if err := r.write(ctx, p, begun(p, s.provisioner, e, s.now)); err != nil || e.err != nil {
		return err
	}
	return r.make(ctx, p, e)
}

// again makes the pod that is recorded, whose template is not at hand any more.
func (r *Reconciler) again(ctx context.Context, p *moorv1alpha1.PodRevocation, s seen) error {
	e, err := r.evaluate(ctx, p, s)
	if err != nil {
		return err
	}
	if e.err != nil {
		return r.unmade(ctx, p, e.err)
	}
	return r.make(ctx, p, e)
}

// make makes the pod that the status records, anywhere but on the DPU that loses the volume.
func (r *Reconciler) make(ctx context.Context, p *moorv1alpha1.PodRevocation, e evaluated) error {
	err := r.Pods.Make(ctx, helper.OfRevocation(p), helper.Order{Phase: pods.Revocation, Record: p.Status.Pod, Template: e.template, NotOn: p.Spec.NodeName})
	var refused *helper.Refused
	if errors.As(err, &refused) {
		return r.unmade(ctx, p, err)
	}
	return err
}

// unmade writes that the pod that is recorded cannot be made.
func (r *Reconciler) unmade(ctx context.Context, p *moorv1alpha1.PodRevocation, err error) error {
	words := fmt.Sprintf("%s cannot be made: %v", helper.The(pods.Revocation, p.Status.Pod), err)
	return r.write(ctx, p, ofEnd(p, helper.Judgement{Verdict: helper.Failed, Words: words}, r.Clock.Now()))
}

// write writes the status, if it was not changed since it was read, and tells of an end, a failure with each try.
func (r *Reconciler) write(ctx context.Context, p *moorv1alpha1.PodRevocation, next step) error {
	before := p.Status.DeepCopy()
	if _, err := kube.PatchStatusExact(ctx, r.Client, p, func(p *moorv1alpha1.PodRevocation) { p.Status = next.next }); err != nil {
		return err
	}
	if next.ended != nil {
		r.Pods.Ended(pods.Revocation, before.Pod, *next.ended, r.Clock.Now())
	}
	if p.Status.Phase == isFailed {
		r.Recorder.Eventf(attachmentOf(p), corev1.EventTypeWarning, "RevocationFailed", "the storage gives no receipt of volume %s and DPU %s: %s", p.Spec.VolumeName, p.Spec.NodeName, helper.AndAgain(p.Status.Message, "podrevocation", p.Name))
	}
	return nil
}

// attachmentOf is the object that is told of a revocation.
func attachmentOf(p *moorv1alpha1.PodRevocation) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: storagev1alpha1.GroupVersion.String(), Kind: "VolumeAttachment",
		Namespace: p.Spec.Request.Namespace, Name: p.Spec.Request.Name, UID: p.Spec.AttachmentUID,
	}
}

// evaluated is what the templates came to.
type evaluated struct {
	template *corev1.PodTemplateSpec
	err      error
}

// evaluate evaluates the templates. What another try may mend is an error; what it would not is in the result.
func (r *Reconciler) evaluate(ctx context.Context, p *moorv1alpha1.PodRevocation, s seen) (evaluated, error) {
	pv := &corev1.PersistentVolume{}
	found, err := kube.Find(ctx, r.Live, types.NamespacedName{Name: p.Spec.VolumeName}, pv)
	if err != nil {
		return evaluated{}, err
	}
	if !found || pv.UID != p.Spec.VolumeUID {
		return evaluated{err: fmt.Errorf("PersistentVolume %s is gone, or is another one by now", p.Spec.VolumeName)}, nil
	}
	claim, node := pods.ClaimOf(pv), &corev1.Node{}
	if claim == nil {
		return evaluated{err: fmt.Errorf("PersistentVolume %s is not bound to a claim", pv.Name)}, nil
	}
	has := &corev1.PersistentVolumeClaim{}
	if found, err = kube.Find(ctx, r.Live, types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, has); err != nil {
		return evaluated{}, err
	}
	if found && has.UID == claim.UID {
		claim = has
	}
	if _, err = kube.Find(ctx, r.Live, types.NamespacedName{Name: p.Spec.NodeName}, node); err != nil {
		return evaluated{}, err
	}
	node.Name = p.Spec.NodeName // one that is gone is shown as far as it is known
	claims := &helper.Claims{Reader: r.Client}
	out := evaluated{}
	variables, err := pods.OfStaging(pv, claim, node, false)
	if err == nil {
		of := pods.Attachment{Namespace: p.Spec.Request.Namespace, Name: p.Spec.Request.Name, UID: p.Spec.AttachmentUID, Epoch: p.Spec.Epoch}
		out.template, err = s.provisioner.Provisioner.Revoke(ctx, claims, variables.For(of))
	}
	if out.err = err; err == nil && out.template == nil {
		out.err = errors.New("the provisioner has no volumeRevocation any more")
	}
	return out, claims.Err
}
