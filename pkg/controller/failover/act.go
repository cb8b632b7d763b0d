package failover

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// AnnotationRevokes on a vendor's CSIDriver in the DPU cluster, with the value
// "true": the vendor vouches that once ControllerUnpublish has succeeded, its
// storage accepts nothing more from that node.
const AnnotationRevokes = "storage.moor.dev/revokes"

// fence takes the right to write to one volume back, as far as it can go now:
// Granted -> Fencing -> (receipt) -> Free.
func (f *Failover) fence(ctx context.Context, s *scene, t *target) error {
	if !t.held(s.dpu()) {
		return f.letGo(ctx, s, t)
	}
	if !t.inFencing(s.dpu()) {
		if !f.mayFence(s, t) {
			return nil
		}
		if err := f.beginFencing(ctx, s, t); err != nil {
			return err
		}
	}
	if err := f.end(ctx, s, t); err != nil {
		return err
	}
	storage, err := f.revoke(ctx, s, t)
	if err != nil {
		return err
	}
	lease, err := f.confirmLease(ctx, s, t)
	if err != nil {
		return err
	}
	receipt, words := prove(t.claim, t.mirror, storage, lease)
	if receipt == nil {
		t.waits = words
		return nil
	}
	if err := freeClaim(ctx, f.DPU, f.Clock, t.claim, *receipt); err != nil {
		return err
	}
	f.Recorder.Event(t.volume, corev1.EventTypeNormal, eventFenced, fencedWords(*receipt))
	return f.letGo(ctx, s, t)
}

func fencedWords(r moorv1alpha1.Receipt) string {
	return fmt.Sprintf("epoch %d of DPU %s is over, receipt %s: %s", r.Epoch, r.Holder, r.Kind, r.Message)
}

// mayFence: the host is dead, or has lost its volumes, and its failover has begun;
// or an operator vouches for a host that is not well.
func (f *Failover) mayFence(s *scene, t *target) bool {
	if t.vouched(s.dpu()) && s.state != Healthy {
		return true
	}
	return t.fails && s.underway && s.takes()
}

// beginFencing writes with the resourceVersion that was read: whoever changed
// the claim in between wins.
func (f *Failover) beginFencing(ctx context.Context, s *scene, t *target) error {
	t.claim.Status.Phase = moorv1alpha1.ClaimFencing
	if err := f.DPU.Status().Update(ctx, t.claim); err != nil {
		return fmt.Errorf("begin to fence volume %s from DPU %s, epoch %d: %w", t.volume.Name, s.dpu(), t.claim.Status.Epoch, err)
	}
	f.Recorder.Event(t.volume, corev1.EventTypeWarning, eventFencing,
		fmt.Sprintf("host %s is %s: %s; the right to write is taken back from DPU %s (epoch %d)", s.node.Name, s.state, s.evidence, s.dpu(), t.claim.Status.Epoch))
	return nil
}

// end deletes the VolumeAttachment: the DPU withdraws, the right to write is
// not granted for it again, and the vendor is not asked to attach for it again.
func (f *Failover) end(ctx context.Context, s *scene, t *target) error {
	if t.mirror == nil || !t.mirror.DeletionTimestamp.IsZero() || t.mirror.Spec.NodeName != s.dpu() {
		return nil
	}
	if err := kube.Delete(ctx, f.DPU, t.mirror); err != nil {
		return err
	}
	return f.read(ctx, f.DPULive, t)
}

// revoke asks the storage to revoke a DPU that is silent, once it is certain
// that nobody asks to attach it again.
func (f *Failover) revoke(ctx context.Context, s *scene, t *target) (revocation, error) {
	if !s.signs.DPU.Silent() || t.mirror == nil {
		return revocation{}, nil
	}
	volume, driver := &storagev1alpha1.Volume{}, &storagev1.CSIDriver{}
	found, err := kube.Find(ctx, f.DPULive, client.ObjectKey{Namespace: f.TargetNamespace, Name: t.volume.Name}, volume)
	if err != nil || !found {
		return revocation{}, err
	}
	out := revocation{driver: volume.Spec.Volume.CSIReference.CSIDriverName}
	found, err = kube.Find(ctx, f.DPULive, client.ObjectKey{Name: out.driver}, driver)
	if err != nil || !found {
		return out, err
	}
	out.vouched = driver.Annotations[AnnotationRevokes] == "true"
	out.asked = t.mirror.Spec.VolumeAttachmentRef != nil
	out.noticed = !t.mirror.DeletionTimestamp.IsZero() && t.mirror.Status.StorageDetaching
	if !out.vouched || !out.asked || !out.noticed {
		return out, nil
	}
	sv := &storagev1alpha1.SVVolumeAttachment{}
	found, err = kube.Find(ctx, f.DPULive, client.ObjectKeyFromObject(t.mirror), sv)
	if err != nil {
		return out, err
	}
	out.gone = !found
	if found {
		return out, kube.Delete(ctx, f.DPU, sv)
	}
	return out, nil
}

// letGo takes the holds of a DPU that does not answer off an attachment whose
// epoch is over by another's word, once the host cluster lets go of it too.
// The DPU looks after its own list of devices when it comes back.
func (f *Failover) letGo(ctx context.Context, s *scene, t *target) error {
	if t.mirror == nil || t.mirror.DeletionTimestamp.IsZero() || t.attachment.DeletionTimestamp.IsZero() {
		return nil
	}
	if !s.signs.DPU.Silent() || !overWithoutDPU(t) || !controllerutil.ContainsFinalizer(t.mirror, storagev1alpha1.FinalizerWriterClaim) {
		return nil
	}
	return kube.RemoveFinalizers(ctx, f.DPU, t.mirror, storagev1alpha1.FinalizerDPUAttachment, storagev1alpha1.FinalizerWriterClaim)
}

// overWithoutDPU reports whether another receipt than the DPU's own has ended the
// epoch of the attachment, and its DPU holds nothing since.
func overWithoutDPU(t *target) bool {
	if t.claim == nil || t.claim.Status == nil || t.held(t.mirror.Spec.NodeName) {
		return false
	}
	for _, r := range t.claim.Status.Receipts {
		if r.Holder == t.mirror.Spec.NodeName && r.Epoch >= t.mirror.Spec.Epoch &&
			r.Kind != moorv1alpha1.ReceiptDPU {
			return true
		}
	}
	return false
}

// freeClaim writes the claim with the resourceVersion that was read: whoever
// changed it in between wins, and everything is looked at again.
func freeClaim(ctx context.Context, c client.Client, clock clock.PassiveClock, claim *moorv1alpha1.WriterClaim, receipt moorv1alpha1.Receipt) error {
	receipt.Time = metav1.NewTime(clock.Now())
	claim.Status.Phase = moorv1alpha1.ClaimFree
	claim.Status.Holder, claim.Status.Attachment = "", ""
	if receipt.Kind != moorv1alpha1.ReceiptDPU {
		claim.Status.Revoked = revoked(claim.Status.Revoked, receipt)
	}
	claim.Status.Receipts = append(claim.Status.Receipts, receipt)
	if extra := len(claim.Status.Receipts) - keepReceipts; extra > 0 {
		claim.Status.Receipts = claim.Status.Receipts[extra:]
	}
	if err := c.Status().Update(ctx, claim); err != nil {
		return fmt.Errorf("free the right to write volume %s, held by DPU %s under epoch %d: %w", claim.Spec.VolumeName, receipt.Holder, receipt.Epoch, err)
	}
	return nil
}

// revoked notes a DPU that did not confirm the end of its epoch itself.
func revoked(list []moorv1alpha1.Revoked, receipt moorv1alpha1.Receipt) []moorv1alpha1.Revoked {
	for i := range list {
		if list[i].DPU == receipt.Holder {
			list[i].Epoch = max(list[i].Epoch, receipt.Epoch)
			return list
		}
	}
	return append(list, moorv1alpha1.Revoked{DPU: receipt.Holder, Epoch: receipt.Epoch})
}
