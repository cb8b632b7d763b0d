package revocation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// facts are all that a request is judged by, as the API server itself has it; what is not there is nil.
type facts struct {
	attachment *storagev1alpha1.VolumeAttachment
	claim      *moorv1alpha1.WriterClaim
	pv         *corev1.PersistentVolume
	// provisioner is that of pv.
	provisioner compiled.Found
	// stagings are those of the volume on the DPU, and pods the staging pods of them.
	stagings []moorv1alpha1.PodStaging
	pods     []corev1.Pod
}

// volumeOf is the PersistentVolume of a request.
func volumeOf(sv *storagev1alpha1.SVVolumeAttachment) string {
	if name := sv.Spec.Source.PersistentVolumeName; name != nil {
		return *name
	}
	return ""
}

// look reads the facts. Whether the word is needed is read first: it mostly is not.
func (r *Requests) look(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment) (facts, error) {
	var f facts
	a := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, r.Live, client.ObjectKeyFromObject(sv), a)
	if err != nil || !found {
		return f, err
	}
	f.attachment = a
	claim := &moorv1alpha1.WriterClaim{}
	if found, err = kube.Find(ctx, r.Live, client.ObjectKey{Namespace: sv.Namespace, Name: a.VolumeName()}, claim); err != nil {
		return f, err
	}
	if found {
		f.claim = claim
	}
	if f.needed(sv) == 0 {
		return f, nil
	}
	err = r.behind(ctx, sv, &f)
	return f, err
}

// behind reads what stands behind a volume, and where it is staged.
func (r *Requests) behind(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment, f *facts) error {
	pv := &corev1.PersistentVolume{}
	found, err := kube.Find(ctx, r.Live, types.NamespacedName{Name: volumeOf(sv)}, pv)
	if err != nil || !found {
		return err
	}
	f.pv = pv
	if pv.Spec.CSI == nil {
		return nil
	}
	if f.provisioner, err = r.Provisioners.Find(ctx, r.Live, pv.Spec.CSI.Driver); err != nil {
		return err
	}
	var stagings moorv1alpha1.PodStagingList
	if err := r.Live.List(ctx, &stagings, client.MatchingFields{index.PodStagingByNode: sv.Spec.NodeName}); err != nil {
		return fmt.Errorf("list what is staged on DPU %s: %w", sv.Spec.NodeName, err)
	}
	for i := range stagings.Items {
		p := &stagings.Items[i]
		if p.Spec.VolumeName != pv.Name {
			continue
		}
		f.stagings = append(f.stagings, *p)
		var all corev1.PodList
		if err := r.Live.List(ctx, &all, client.MatchingLabels{moorv1alpha1.LabelPodStaging: string(p.UID), moorv1alpha1.LabelHelperPhase: string(pods.Staging)}); err != nil {
			return fmt.Errorf("list the staging pods of PodStaging %s: %w", p.Name, err)
		}
		f.pods = append(f.pods, all.Items...)
	}
	return nil
}

// lacks says what is missing for a revocation; empty if nothing is.
func (f facts) lacks(sv *storagev1alpha1.SVVolumeAttachment) string {
	switch {
	case f.pv == nil || f.pv.Spec.CSI == nil:
		return fmt.Sprintf("PersistentVolume %s is gone, so the storage cannot be asked", volumeOf(sv))
	case f.provisioner.Provisioner == nil:
		return f.provisioner.Words + ", so the storage cannot be asked"
	case f.provisioner.Provisioner.Revokes() == "":
		return fmt.Sprintf("PavProvisioner %s has no volumeRevocation any more, so the storage cannot be asked", f.pv.Spec.CSI.Driver)
	}
	return ""
}

// open is the first staging of the attachment for which a staging pod may still be made; nil if there is none.
func (f facts) open() *moorv1alpha1.PodStaging {
	for i := range f.stagings {
		if p := &f.stagings[i]; p.Spec.User.UID == f.attachment.UID && p.Status.RevokedFor != f.attachment.UID {
			return p
		}
	}
	return nil
}

// stages says which staging is under way on the DPU, or is there for another: what its pod does may open the storage
// again behind the revocation. Empty if none is.
func (f facts) stages() string {
	for i := range f.stagings {
		switch p := &f.stagings[i]; {
		case p.Status.Phase == moorv1alpha1.PodStagingFailed || p.Status.Phase == moorv1alpha1.PodStagingUnstaged: // nothing is there
		case p.Spec.User.UID != f.attachment.UID:
			return fmt.Sprintf("PodStaging %s on DPU %s is for %s (UID %s), and not for the one whose right to write is being taken: until it is gone the storage gives no receipt",
				p.Name, p.Spec.NodeName, p.Spec.User, p.Spec.User.UID)
		case p.Status.Phase == "" || p.Status.Phase == moorv1alpha1.PodStagingStaging:
			return fmt.Sprintf("PodStaging %s on DPU %s is under way, and may open the storage again: waiting until it has ended", p.Name, p.Spec.NodeName)
		}
	}
	for i := range f.pods {
		if pod := &f.pods[i]; !podvolume.Finished(pod) && !f.ready(pod) {
			return fmt.Sprintf("staging pod %s/%s on DPU %s has not ended, and may open the storage again: waiting until it has", pod.Namespace, pod.Name, pod.Spec.NodeName)
		}
	}
	return ""
}

// ready reports whether a staging pod that runs on has said that it has staged.
func (f facts) ready(pod *corev1.Pod) bool {
	for i := range f.stagings {
		p := &f.stagings[i]
		if report := p.Status.Report; string(p.UID) == pod.Labels[moorv1alpha1.LabelPodStaging] && report != nil && report.PodUID == pod.UID && report.Ready {
			return true
		}
	}
	return false
}

// stale says why the success of a revocation proves nothing now; empty if it does.
func (f facts) stale(r *moorv1alpha1.PodRevocation) string {
	began := r.Status.Began
	switch {
	case began == nil || r.Status.Pod == nil || r.Status.Pod.UID == "":
		return "it is not on record which pod has revoked"
	case r.Status.ProvisionerUID != f.provisioner.UID || r.Status.Template != f.provisioner.Provisioner.Revokes():
		return fmt.Sprintf("volumeRevocation of PavProvisioner %s is another than that of which its pod was made", r.Spec.ProvisionerName)
	}
	for i := range f.pods {
		if pod := &f.pods[i]; !pod.CreationTimestamp.Before(began) {
			return fmt.Sprintf("staging pod %s/%s on DPU %s was made after its pod, and may have opened the storage again", pod.Namespace, pod.Name, pod.Spec.NodeName)
		}
	}
	return ""
}

// specOf is what a request asks for now.
func (f facts) specOf(sv *storagev1alpha1.SVVolumeAttachment, epoch int64) moorv1alpha1.PodRevocationSpec {
	return moorv1alpha1.PodRevocationSpec{
		ProvisionerName: f.pv.Spec.CSI.Driver, VolumeName: f.pv.Name, VolumeUID: f.pv.UID, NodeName: sv.Spec.NodeName,
		Request:       moorv1alpha1.RevocationRequest{Namespace: sv.Namespace, Name: sv.Name, UID: sv.UID},
		AttachmentUID: f.attachment.UID, Epoch: epoch,
	}
}

// nameOf is the name of the PodRevocation of a request.
func nameOf(sv *storagev1alpha1.SVVolumeAttachment) string {
	return pods.RevocationName(helper.Short(string(sv.UID)))
}
