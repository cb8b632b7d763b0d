package failover

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/failover/detach"
	"github.com/moor-storage/moor/pkg/controller/failover/powerproof"
	"github.com/moor-storage/moor/pkg/writer"
)

// fencer takes the right to write back.
type fencer struct {
	dpu             kube.Cluster
	targetNamespace string
	targets         targetReader
	leases          *leases
	clock           clock.PassiveClock
	recorder        record.EventRecorder
	progress        *progress
	// power has the BMCs asked of which no other proof comes; nil: none is on record.
	power *powerproof.Keeper
}

// fenceAll takes the right to write back of all volumes of the host, each as far as
// it can go now.
func (f fencer) fenceAll(ctx context.Context, p *pass) error {
	err := forEach(p.targets, func(t *target) error {
		outcome := kube.Settle(f.fence(ctx, p, t), f.clock.Now())
		if outcome.Err != nil {
			return fmt.Errorf("fail over volume %s from host %s: %w", t.attachment.Spec.DPUVolumeName, p.node.Name, outcome.Err)
		}
		t.waits = outcome.Message
		return nil
	})
	if !slices.ContainsFunc(p.targets, (*target).inFencing) {
		f.progress.end(p.node.Name)
	}
	return err
}

// fence takes the right to write to one volume back, as far as it can go now:
// Granted -> Fencing -> (receipt) -> Free. Without a receipt it waits.
func (f fencer) fence(ctx context.Context, p *pass, t *target) error {
	if !t.held() {
		f.power.Done(p.node.Name, powerClaim(t))
		return f.letGo(ctx, p, t)
	}
	if !t.inFencing() {
		if !p.mayFence(t) {
			return nil
		}
		err := f.beginFencing(ctx, p, t)
		if apierrors.IsConflict(err) && t.cached {
			if t.cached, err = false, f.targets.read(ctx, f.dpu.Live, t); err == nil {
				err = f.fence(ctx, p, t)
			}
			return err
		}
		if err != nil {
			return err
		}
	}
	if err := f.ask(ctx, t); err != nil {
		return err
	}
	if t.missing != "" { // nothing is done by what a cache shows
		return f.wait(ctx, p, t)
	}
	if err := f.end(ctx, p, t); err != nil {
		return err
	}
	storage, err := f.revoke(ctx, p, t)
	if err != nil {
		return err
	}
	lease, err := f.leases.confirm(ctx, p, t)
	if err != nil {
		return err
	}
	receipt, err := f.prove(ctx, p, t, writer.Evidence{Attachment: t.mirror, Storage: storage, Lease: lease})
	if err != nil {
		return err
	}
	freed, err := detach.Free(ctx, f.dpu.Client, t.claim, *receipt, f.clock.Now())
	if err != nil {
		return f.freedBefore(ctx, p, t, err)
	}
	f.over(p, t, freed)
	f.recorder.Event(t.volume, corev1.EventTypeNormal, storagev1alpha1.EventFailoverFenced, detach.Message(*receipt))
	return f.letGo(ctx, p, t)
}

// wait says what a fence waits for of which the caches lack the end.
func (f fencer) wait(ctx context.Context, p *pass, t *target) error {
	power, err := f.powerOf(ctx, p, t, false)
	if err != nil {
		return err
	}
	return kube.WaitFor("%s%s", t.missing, power.Words())
}

// over notes that the claim of a target is free.
func (f fencer) over(p *pass, t *target, freed *moorv1alpha1.WriterClaim) {
	f.power.Done(p.node.Name, powerClaim(t))
	t.claim = freed
	f.progress.note(p.node.Name, f.clock.Now())
	f.targets.note(t)
}

// prove is the receipt that ends the epoch, or a wait that says what is missing. Machines are
// asked for only where there is no other.
func (f fencer) prove(ctx context.Context, p *pass, t *target, e writer.Evidence) (*moorv1alpha1.Receipt, error) {
	e.Operator, e.Refused = p.vouch(t)
	receipt, missing := writer.Prove(t.claim, e)
	if receipt == nil {
		var err error
		if e.Power, err = f.powerOf(ctx, p, t, e.PowerAlone()); err != nil {
			return nil, err
		}
		receipt, missing = writer.Prove(t.claim, e)
	}
	if receipt == nil {
		return nil, kube.WaitFor("%s", missing)
	}
	return receipt, nil
}

// freedBefore goes on where a claim could not be freed because the orderly end of the
// attachment, which the same word of the DPU starts, has freed it: that is no cause to
// read all else of the host again. Any other failure stays one.
func (f fencer) freedBefore(ctx context.Context, p *pass, t *target, failure error) error {
	if !apierrors.IsConflict(failure) {
		return failure
	}
	if err := f.targets.read(ctx, f.dpu.Live, t); err != nil {
		return err
	}
	if t.held() {
		return failure
	}
	return f.letGo(ctx, p, t)
}

// mayFence: the volume has lost its way to the storage, and moves for that; or the host is dead, or its DPU has taken the volumes from it, and its failover
// has begun, as that of a host for which it was requested; or an operator vouches for a host that is not well, or for a DPU that is not
// the host's and is not heard: how that host is says nothing of it.
func (p *pass) mayFence(t *target) bool {
	strange := p.strange(t)
	if t.moves() && !strange {
		return true
	}
	if counts, _ := p.vouch(t); counts {
		return true
	}
	return t.fails && p.underway && (p.action == Fence || p.action == Evict && (!strange || p.requested()))
}

// beginFencing writes with the resourceVersion that was read: if the
// claim was changed in between, the write fails.
func (f fencer) beginFencing(ctx context.Context, p *pass, t *target) error {
	fencing, err := writer.BeginFencing(t.claim)
	if err == nil {
		err = f.dpu.Client.Status().Update(ctx, fencing)
	}
	if err != nil {
		return fmt.Errorf("begin to fence volume %s from DPU %s, epoch %d: %w", t.volume.Name, t.holder(), t.claim.Status.Epoch, err)
	}
	t.claim = fencing
	f.progress.note(p.node.Name, f.clock.Now())
	f.recorder.Event(t.volume, corev1.EventTypeWarning, storagev1alpha1.EventFailoverFencing,
		fmt.Sprintf("%s; the right to write is taken back from DPU %s (epoch %d)", p.cause(t), t.holder(), t.claim.Status.Epoch))
	return nil
}

// cause is why the right to write to a volume is taken from the host.
func (p *pass) cause(t *target) string {
	if t.moves() {
		return fmt.Sprintf("host %s: %s", p.node.Name, t.path.Words)
	}
	return fmt.Sprintf("host %s is %s: %s", p.node.Name, p.state, p.evidence)
}

// ask asks the storage by the VolumeAttachment to accept nothing more of the epoch that
// is being taken, if it knows epochs. It needs neither the DPU nor its silence. It is
// asked before the attachment is deleted, by which the vendor's attacher may let go of
// it; what a cache shows is enough for that, as it asks for what the claim says, which
// was written as Fencing or read so.
func (f fencer) ask(ctx context.Context, t *target) error {
	epoch := writer.FenceFor(t.claim, t.mirror)
	if epoch == 0 {
		return nil
	}
	_, err := kube.Patch(ctx, f.dpu.Client, t.mirror, func(a *storagev1alpha1.VolumeAttachment) { a.Spec.FenceEpoch = epoch })
	if err = kube.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("ask the storage to accept nothing of volume %s below epoch %d: %w", t.volume.Name, epoch, err)
	}
	return nil
}

// end deletes the VolumeAttachment: the DPU withdraws, the right to write is
// not granted for it again, and the vendor is not asked to attach for it again. What is
// gone on with was read after that. A DPU that is heard has only then been told, so its
// answer is waited for, which starts a pass: to read at once would find none.
func (f fencer) end(ctx context.Context, p *pass, t *target) error {
	ends := t.mirror != nil && t.mirror.DeletionTimestamp.IsZero() && t.mirror.Spec.NodeName == t.holder()
	if ends {
		if err := kube.Delete(ctx, f.dpu.Client, t.mirror); err != nil {
			return err
		}
		now := metav1.NewTime(f.clock.Now())
		t.mirror.DeletionTimestamp = &now
		if t.missing = p.missing(t); t.missing != "" {
			f.targets.note(t)
			return kube.WaitFor("%s", t.missing)
		}
	}
	if !ends && !t.cached {
		return nil
	}
	if err := f.targets.readMirror(ctx, f.dpu.Live, t); err != nil {
		return err
	}
	t.cached = false
	f.targets.note(t)
	return nil
}

// revoke asks the storage to revoke a DPU that is silent, or has lost its way there, once it is
// certain that it is not asked to attach it again.
func (f fencer) revoke(ctx context.Context, p *pass, t *target) (writer.Revocation, error) {
	silent := p.silent(t.holder())
	if !silent && !t.moves() || t.mirror == nil || t.mirror.Spec.NodeName != t.holder() {
		return writer.Revocation{}, nil
	}
	volume := &storagev1alpha1.Volume{}
	found, err := kube.Find(ctx, f.dpu.Live, client.ObjectKey{Namespace: f.targetNamespace, Name: t.volume.Name}, volume)
	if err != nil || !found {
		return writer.Revocation{}, err
	}
	out := writer.Revocation{Driver: volume.Spec.Volume.CSIReference.CSIDriverName, Cut: !silent}
	if out.Vouched, err = f.revokes(ctx, out.Driver); err != nil {
		return out, err
	}
	out.Asked = t.mirror.Spec.VolumeAttachmentRef != nil
	out.Noticed = !t.mirror.DeletionTimestamp.IsZero() && t.mirror.Status.StorageDetaching
	if !out.Vouched || !out.Asked || !out.Noticed {
		return out, nil
	}
	sv := &storagev1alpha1.SVVolumeAttachment{}
	found, err = kube.Find(ctx, f.dpu.Live, client.ObjectKeyFromObject(t.mirror), sv)
	if err != nil {
		return out, err
	}
	out.Gone = !found
	if found {
		if said := sv.Status.DetachError; said != nil {
			out.Says = said.Message
		}
		return out, kube.Delete(ctx, f.dpu.Client, sv)
	}
	return out, nil
}

// revokes reports whether the vendor of a CSIDriver vouches that its ControllerUnpublish
// revokes, as the API server itself has it.
func (f fencer) revokes(ctx context.Context, name string) (bool, error) {
	driver := &storagev1.CSIDriver{}
	found, err := kube.Find(ctx, f.dpu.Live, client.ObjectKey{Name: name}, driver)
	return found && driver.Annotations[storagev1alpha1.AnnotationRevokes] == "true", err
}

// powerOf is what is known of the power of the holder, which is asked for where a failover has
// taken the right to write and the proofs that leave machines alone do not come. A host is
// switched off only if its failover takes its pods by force too. Another DPU than the host's is
// none of its PowerControl. alone: no other proof can come.
func (f fencer) powerOf(ctx context.Context, p *pass, t *target, alone bool) (*writer.Power, error) {
	if !t.inFencing() || !p.underway || !p.takes() || t.moves() || p.strange(t) {
		return nil, nil //nolint:nilnil // nothing is asked
	}
	return f.power.Ask(ctx, powerproof.Question{
		Host: p.node.Name, DPU: t.holder(), Claim: powerClaim(t), Epoch: t.claim.Status.Epoch, MayOff: p.action == Fence, MayReset: p.silent(t.holder()), Alone: alone,
	})
}

// powerClaim is by what a keeper of power knows a claim; "" if there is none.
func powerClaim(t *target) string {
	if t.claim == nil {
		return ""
	}
	return string(t.claim.UID)
}

// switchOn lets a host be switched on again that was switched off, once no right to write is
// held for it any more. Nothing is switched off of which no volume is to be taken now.
func (f fencer) switchOn(ctx context.Context, p *pass) error {
	if !p.underway || !p.takes() {
		f.power.Forget(p.node.Name)
	}
	if !p.underway || p.yields || slices.ContainsFunc(p.targets, (*target).held) {
		return nil
	}
	words, err := f.power.Release(ctx, p.node.Name)
	if words != "" && p.action == Fence {
		p.waits = append(p.waits, words)
	}
	return err
}

// letGo takes the holds of a DPU that does not answer off an attachment whose
// epoch is over by another's word, once the host cluster lets go of it too.
// The DPU looks after its own list of devices when it comes back.
func (f fencer) letGo(ctx context.Context, p *pass, t *target) error {
	if !p.letsGo(t) || !writer.OverWithoutDPU(t.mirror, t.claim) {
		return nil
	}
	return kube.RemoveFinalizers(ctx, f.dpu.Client, t.mirror, storagev1alpha1.FinalizerDPUAttachment, storagev1alpha1.FinalizerWriterClaim)
}
