package attachment

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/writer"
)

// attach goes the way to storageAttached. What cannot be found out leaves
// attached as it is: only the vendor's word, in the SVVolumeAttachment, takes
// it back, since a DPU may be using the volume.
func (r *Reconciler) attach(ctx context.Context, a *storagev1alpha1.VolumeAttachment, attached *bool) error {
	v, err := r.volume(ctx, a)
	if err != nil {
		return err
	}
	required, err := r.attachRequired(ctx, a, v)
	if err != nil {
		return err
	}
	if err := r.hold(ctx, a, v, required); err != nil {
		return err
	}
	var metadata map[string]string
	if required {
		sv, err := r.ask(ctx, a, v, attached)
		if err != nil {
			return err
		}
		metadata = sv.Status.AttachmentMetadata
	}
	want := parameters(v, metadata)
	if _, err := kube.Patch(ctx, r.DPU.Client, a, func(a *storagev1alpha1.VolumeAttachment) { setParameters(a, want) }); err != nil {
		return err
	}
	*attached = true
	return nil
}

// volume returns the Volume, which has to be Available. A Volume that changes
// wakes its attachments.
func (r *Reconciler) volume(ctx context.Context, a *storagev1alpha1.VolumeAttachment) (*storagev1alpha1.Volume, error) {
	ref := a.Spec.Source.VolumeRef
	if ref == nil || ref.Name == "" {
		return nil, kube.WaitFor("spec.source.volumeRef names no Volume")
	}
	if a.Spec.NodeName == "" {
		return nil, kube.WaitFor("spec.nodeName names no DPU")
	}
	v := &storagev1alpha1.Volume{}
	found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Namespace: a.Namespace, Name: ref.Name}, v)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, kube.WaitFor("waiting for Volume %s, which does not exist", ref.Name)
	case !v.DeletionTimestamp.IsZero():
		return nil, kube.WaitFor("Volume %s is being deleted", v.Name)
	case v.Status.State == storagev1alpha1.VolumeAvailable:
		return v, nil
	case v.Status.Message != "":
		return nil, kube.WaitFor("waiting for Volume %s to become Available: %s", v.Name, v.Status.Message)
	}
	return nil, kube.WaitSince(a.CreationTimestamp.Time, "waiting for Volume %s to become Available", v.Name)
}

// attachRequired asks the CSIDriver whether the vendor has to attach; one that
// does not say so means yes. With the driver gone, an SVVolumeAttachment asked
// for earlier still counts. A vendor that attaches nothing, and revokes, is asked by
// the deletion of an SVVolumeAttachment, so it has one; a volume that was let in
// without one stays as it is.
func (r *Reconciler) attachRequired(ctx context.Context, a *storagev1alpha1.VolumeAttachment, v *storagev1alpha1.Volume) (bool, error) {
	name := v.Spec.Volume.CSIReference.CSIDriverName
	driver := &storagev1.CSIDriver{}
	found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Name: name}, driver)
	switch {
	case err != nil:
		return false, err
	case found:
		required := driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired
		revokes := driver.Annotations[storagev1alpha1.AnnotationRevokes] == "true"
		return required || revokes && (a.Spec.VolumeAttachmentRef != nil || !a.Status.StorageAttached), nil
	case a.Spec.VolumeAttachmentRef != nil:
		return true, nil
	}
	return false, kube.WaitFor("waiting for CSIDriver %s of StorageVendor %s, which does not exist: is the vendor's driver installed in this cluster?",
		name, v.Spec.Volume.StorageVendorName)
}

// hold puts the finalizer on, and the name of the SVVolumeAttachment that is
// about to be made, or the parameters if none is, in one patch. The volume's
// capacity goes with them: when it grows, the DPU is woken by that.
func (r *Reconciler) hold(ctx context.Context, a *storagev1alpha1.VolumeAttachment, v *storagev1alpha1.Volume, required bool) error {
	_, err := kube.PatchExact(ctx, r.DPU.Client, a, func(a *storagev1alpha1.VolumeAttachment) {
		controllerutil.AddFinalizer(a, storagev1alpha1.FinalizerVolumeAttachment)
		a.Spec.Capacity = v.Spec.Volume.Capacity
		if !required {
			setParameters(a, parameters(v, nil))
			return
		}
		a.Spec.VolumeAttachmentRef = &storagev1alpha1.ObjectRef{
			Kind: "SVVolumeAttachment", APIVersion: storagev1alpha1.GroupVersion.String(), Name: a.Name, Namespace: a.Namespace,
		}
	})
	return err
}

// ask makes the SVVolumeAttachment and waits until the vendor has attached.
func (r *Reconciler) ask(ctx context.Context, a *storagev1alpha1.VolumeAttachment, v *storagev1alpha1.Volume, attached *bool) (*storagev1alpha1.SVVolumeAttachment, error) {
	pv, err := r.persistentVolume(ctx, v)
	if err != nil {
		return nil, err
	}
	sv := desired(a, pv)
	found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Namespace: a.Namespace, Name: a.Name}, sv)
	if err != nil {
		return nil, err
	}
	if found {
		r.made.Forget(a.UID)
	} else if sv, err = r.make(ctx, a, pv); err != nil {
		return nil, err
	}
	*attached = sv.Status.Attached && sv.DeletionTimestamp.IsZero() && asks(sv, a.Spec.NodeName, pv)
	if *attached {
		return sv, nil
	}
	return nil, r.waitForVendor(ctx, a, sv, pv)
}

// make makes the SVVolumeAttachment. One that was made a moment ago is waited for, until
// the cache shows it.
func (r *Reconciler) make(ctx context.Context, a *storagev1alpha1.VolumeAttachment, pv string) (*storagev1alpha1.SVVolumeAttachment, error) {
	now := r.Clock.Now()
	if sv, left := r.made.Get(a.UID, now); left > 0 && asks(sv, a.Spec.NodeName, pv) {
		return nil, &kube.Waiting{Message: attaching(a, pv), Since: sv.CreationTimestamp.Time, RetryAfter: left}
	}
	if err := r.cleared(ctx, a); err != nil {
		return nil, err
	}
	sv := desired(a, pv)
	if _, err := kube.CreateLive(ctx, r.DPU.Client, r.DPU.Live, sv); err != nil {
		return nil, err
	}
	r.made.Note(a.UID, sv.DeepCopy(), now, now.Add(kube.CacheLag))
	return sv, nil
}

// attaching is the message while the vendor attaches.
func attaching(a *storagev1alpha1.VolumeAttachment, pv string) string {
	return fmt.Sprintf("waiting for the vendor to attach PersistentVolume %s to DPU %s", pv, a.Spec.NodeName)
}

// rememberedAgain is when a claim that has lost its record is looked at again: claims
// wake no attachment here.
const rememberedAgain = 5 * time.Second

// cleared waits for a DPU from which the volume was taken without its own word:
// it may still show the volume, and once the storage lets it in again its host
// would write beside the new holder. It says itself, on this attachment, when
// it shows nothing any more. A claim that does not know who that is lets none in; nor does one
// that the DPU holds for another attachment, since what closes the storage may not be over.
func (r *Reconciler) cleared(ctx context.Context, a *storagev1alpha1.VolumeAttachment) error {
	claim := &moorv1alpha1.WriterClaim{}
	name := a.Spec.Source.VolumeRef.Name
	found, err := kube.Find(ctx, r.DPU.Live, types.NamespacedName{Namespace: a.Namespace, Name: name}, claim)
	if err != nil {
		return err
	}
	if !found && writer.SingleWriter(a, nil) { // it was there before the attachment
		return kube.WaitRetry(rememberedAgain, "WriterClaim %s is gone, and with it who may not be let into the storage: waiting until snap-host-controller has made it anew", name)
	}
	known, err := r.known(ctx, a.Namespace, name)
	if err != nil {
		return err
	}
	if writer.Behind(claim, known) {
		return kube.WaitRetry(rememberedAgain, "WriterClaim %s was deleted or restored, and with it went who may not be let into the storage: waiting until snap-host-controller has noted that epoch %d was granted", name, known)
	}
	if writer.HeldForAnother(claim, a) {
		s := claim.Status
		return kube.WaitRetry(rememberedAgain, "waiting for proof that DPU %s can no longer write Volume %s under epoch %d: DPU %s holds the right to write it for another VolumeAttachment %s (UID %s)",
			s.Holder, name, s.Epoch, s.Holder, s.Attachment, s.AttachmentUID)
	}
	if epoch := writer.Uncleared(claim, a.Spec.NodeName, a.Status.DPU.RetiredEpoch); epoch != 0 {
		return kube.WaitFor("waiting for DPU %s to confirm that it shows nothing of Volume %s any more: the volume was taken from it under epoch %d while it was silent",
			a.Spec.NodeName, claim.Name, epoch)
	}
	return nil
}

// known is the highest epoch that the attachments of a volume know of.
func (r *Reconciler) known(ctx context.Context, namespace, volume string) (int64, error) {
	var list storagev1alpha1.VolumeAttachmentList
	of := client.MatchingFields{index.VolumeAttachmentByVolume: volume}
	if err := r.DPU.Client.List(ctx, &list, client.InNamespace(namespace), of, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("list the VolumeAttachments of Volume %s: %w", volume, err)
	}
	var out int64
	for i := range list.Items {
		out = max(out, writer.Seen(&list.Items[i]))
	}
	return out, nil
}

func (r *Reconciler) waitForVendor(ctx context.Context, a *storagev1alpha1.VolumeAttachment, sv *storagev1alpha1.SVVolumeAttachment, pv string) error {
	switch {
	case !sv.DeletionTimestamp.IsZero():
		return kube.WaitFor("waiting for an earlier SVVolumeAttachment %s to go, then it is made anew%s", sv.Name, detachWords(sv))
	case !asks(sv, a.Spec.NodeName, pv) && controllerutil.ContainsFinalizer(a, storagev1alpha1.FinalizerDPUAttachment):
		return kube.WaitFor("SVVolumeAttachment %s attaches something else, and a DPU still uses it: delete this VolumeAttachment", sv.Name)
	case !asks(sv, a.Spec.NodeName, pv):
		if err := kube.Delete(ctx, r.DPU.Client, sv); err != nil {
			return err
		}
		return kube.WaitFor("SVVolumeAttachment %s attaches something else: it is deleted, then made anew", sv.Name)
	case sv.Status.AttachError != nil:
		return kube.WaitFor("the vendor could not attach PersistentVolume %s to DPU %s: %s", pv, a.Spec.NodeName, sv.Status.AttachError.Message)
	}
	return kube.WaitSince(sv.CreationTimestamp.Time, "%s", attaching(a, pv))
}

// persistentVolume returns the name of the vendor's volume: it stands in the
// claim, which is bound as long as the Volume is Available.
func (r *Reconciler) persistentVolume(ctx context.Context, v *storagev1alpha1.Volume) (string, error) {
	ref := v.Spec.Volume.CSIReference.PVCRef
	if ref == nil {
		return "", kube.WaitFor("Volume %s is Available, yet names no PersistentVolumeClaim", v.Name)
	}
	pvc := &corev1.PersistentVolumeClaim{}
	found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Namespace: v.Namespace, Name: ref.Name}, pvc)
	switch {
	case err != nil:
		return "", err
	case !found || pvc.Spec.VolumeName == "":
		return "", kube.WaitFor("Volume %s is Available, yet its PersistentVolumeClaim %s is gone or not bound", v.Name, ref.Name)
	}
	return pvc.Spec.VolumeName, nil
}

func desired(a *storagev1alpha1.VolumeAttachment, pv string) *storagev1alpha1.SVVolumeAttachment {
	return &storagev1alpha1.SVVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name},
		Spec: storagev1.VolumeAttachmentSpec{
			NodeName: a.Spec.NodeName,
			Source:   storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv},
		},
	}
}

func asks(sv *storagev1alpha1.SVVolumeAttachment, node, pv string) bool {
	name := sv.Spec.Source.PersistentVolumeName
	return sv.Spec.NodeName == node && name != nil && *name == pv
}

// parameters are what the node driver passes to the vendor's plugin: the
// policy's, overlaid by what the vendor answered when it attached.
func parameters(v *storagev1alpha1.Volume, metadata map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, v.Spec.StoragePolicyParameters)
	maps.Copy(out, metadata)
	return out
}

// setParameters leaves an equal map alone, so that none and an empty one do
// not count as different.
func setParameters(a *storagev1alpha1.VolumeAttachment, want map[string]string) {
	if !maps.Equal(a.Spec.Parameters, want) {
		a.Spec.Parameters = want
	}
}
