package revocation

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/daemon"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/writer"
)

// Requests is the attacher of the volumes of PavProvisioners: there is nothing to attach, so each SVVolumeAttachment
// is attached at once. One that is deleted while a failover takes the right to write is kept until the storage's word
// is written into the VolumeAttachment.
type Requests struct {
	kube.Cluster
	Provisioners *compiled.Store
	Clock        clock.PassiveClock
	// Recorder tells of words, and of revocations that prove nothing.
	Recorder record.EventRecorder
}

// Reconcile takes the next step of one request.
func (r *Requests) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	sv := &storagev1alpha1.SVVolumeAttachment{}
	found, err := kube.Find(ctx, r.Client, req.NamespacedName, sv)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	if !sv.DeletionTimestamp.IsZero() {
		if !controllerutil.ContainsFinalizer(sv, moorv1alpha1.FinalizerPodRevocation) {
			return ctrl.Result{}, nil
		}
		return r.told(ctx, sv, r.answer(ctx, sv))
	}
	return ctrl.Result{}, r.attach(ctx, sv)
}

// attach says that the volume is attached, after the finalizer is there: from then on it can be revoked.
func (r *Requests) attach(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment) error {
	if !controllerutil.ContainsFinalizer(sv, moorv1alpha1.FinalizerPodRevocation) {
		ours, err := r.ours(ctx, sv)
		if err != nil || !ours {
			return err
		}
		if _, err := kube.AddFinalizer(ctx, r.Client, sv, moorv1alpha1.FinalizerPodRevocation); err != nil {
			return err
		}
	}
	_, err := kube.PatchStatus(ctx, r.Client, sv, func(sv *storagev1alpha1.SVVolumeAttachment) { sv.Status.Attached = true })
	return err
}

// ours reports whether a request is of a volume of a PavProvisioner. Others have attachers of their own.
func (r *Requests) ours(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment) (bool, error) {
	pv, key := &corev1.PersistentVolume{}, types.NamespacedName{Name: volumeOf(sv)}
	if key.Name == "" {
		return false, nil
	}
	found, err := kube.Find(ctx, r.Client, key, pv)
	if err == nil && !found {
		found, err = kube.Find(ctx, r.Live, key, pv)
	}
	if err != nil || !found || pv.Spec.CSI == nil {
		return false, err
	}
	return kube.Find(ctx, r.Client, types.NamespacedName{Name: pv.Spec.CSI.Driver}, &pavv1alpha1.PavProvisioner{}, client.UnsafeDisableDeepCopy)
}

// answer takes the next step of a request that is being deleted.
func (r *Requests) answer(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment) error {
	f, err := r.look(ctx, sv)
	if err != nil {
		return fmt.Errorf("find out whether the storage's word is needed of volume %s and DPU %s: %w", volumeOf(sv), sv.Spec.NodeName, err)
	}
	revocation := &moorv1alpha1.PodRevocation{}
	found, err := kube.Find(ctx, r.Live, types.NamespacedName{Name: nameOf(sv)}, revocation)
	if err != nil {
		return err
	}
	if !found {
		revocation = nil
	}
	do, words := next(sv, f, revocation)
	switch do {
	case release:
		return r.release(ctx, sv)
	case shut:
		return r.shut(ctx, f)
	case ask:
		return r.ask(ctx, sv, f)
	case discard:
		words = fmt.Sprintf("PodRevocation %s proves nothing, and is made anew: %s", revocation.Name, words)
		if err := kube.DeleteExact(ctx, r.Client, revocation); err != nil {
			return err
		}
		r.Recorder.Event(f.attachment, corev1.EventTypeWarning, "RevocationDiscarded", words)
	case say:
		if err := r.say(ctx, sv, f); err != nil {
			return err
		}
		return r.release(ctx, sv)
	}
	return kube.WaitRetry(again, "%s", words)
}

// again is when a request is looked at again that waits: claims, pods and provisioners wake none.
const again = 5 * time.Second

// shut has no staging pod made any more for the attachment. A pass of its own follows, which looks again at what was
// made before.
func (r *Requests) shut(ctx context.Context, f facts) error {
	for p := f.open(); p != nil; p = f.open() {
		if _, err := kube.PatchStatusExact(ctx, r.Client, p, func(p *moorv1alpha1.PodStaging) { p.Status.RevokedFor = f.attachment.UID }); err != nil {
			return err
		}
	}
	return kube.WaitRetry(time.Second, "waiting until nothing is staged any more on DPU %s", f.attachment.Spec.NodeName)
}

// ask makes the PodRevocation. It has its finalizer from the beginning.
func (r *Requests) ask(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment, f facts) error {
	revocation := &moorv1alpha1.PodRevocation{
		ObjectMeta: metav1.ObjectMeta{Name: nameOf(sv), Finalizers: []string{moorv1alpha1.FinalizerPodRevocation}},
		Spec:       f.specOf(sv, f.needed(sv)),
	}
	if _, err := kube.CreateLive(ctx, r.Client, r.Live, revocation); err != nil {
		return err
	}
	return kube.WaitRetry(again, "the revocation pod of PodRevocation %s is to run", revocation.Name)
}

// say writes the storage's word.
func (r *Requests) say(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment, f facts) error {
	a := f.attachment
	wrote, err := kube.PatchStatus(ctx, r.Client, a, func(a *storagev1alpha1.VolumeAttachment) {
		writer.Revoked(a, sv.Spec.NodeName, r.Clock.Now())
	})
	if err != nil || !wrote {
		return kube.IgnoreNotFound(err)
	}
	r.Recorder.Eventf(a, corev1.EventTypeNormal, "VolumeRevoked", "the storage accepts nothing more of volume %s from DPU %s (epoch %d): its revocation pod has succeeded", volumeOf(sv), sv.Spec.NodeName, a.Spec.Epoch)
	ctrl.LoggerFrom(ctx).Info("revoked", daemon.KeyAttachment, sv.Name, daemon.KeyVolume, volumeOf(sv), daemon.KeyNode, sv.Spec.NodeName, daemon.KeyEpoch, a.Spec.Epoch)
	return nil
}

// release lets a request go. Where others hold it, it must not say "attached".
func (r *Requests) release(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment) error {
	if len(sv.Finalizers) > 1 && sv.Status.Attached {
		if _, err := kube.PatchStatus(ctx, r.Client, sv, func(sv *storagev1alpha1.SVVolumeAttachment) { sv.Status.Attached = false }); err != nil {
			return err
		}
	}
	return kube.RemoveFinalizers(ctx, r.Client, sv, moorv1alpha1.FinalizerPodRevocation)
}

// told writes what a request waits for into its status, from where it gets up to the user. One that was never attached has
// no status that the API server would take.
func (r *Requests) told(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment, why error) (ctrl.Result, error) {
	out := kube.Settle(why, r.Clock.Now())
	if said := sv.Status.DetachError; out.Waits() && sv.Status.Attached && (said == nil || said.Message != out.Message) {
		if _, err := kube.PatchStatus(ctx, r.Client, sv, func(sv *storagev1alpha1.SVVolumeAttachment) {
			sv.Status.DetachError = &storagev1.VolumeError{Time: metav1.NewTime(r.Clock.Now()), Message: out.Message}
		}); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{RequeueAfter: out.RetryAfter}, out.Err
}
