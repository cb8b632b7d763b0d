package staging

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// confirmUser asks the API server itself whether what a volume is to be staged for is on that node and
// uses the claim: a node has no right to what is not used there. Of what is healed the user is known.
func (r *Reconciler) confirmUser(ctx context.Context, p *moorv1alpha1.PodStaging, claim *corev1.PersistentVolumeClaim) error {
	switch {
	case p.Status.Phase == isBroken:
		return nil
	case p.Spec.User.IsPod():
		return r.confirmPod(ctx, p, claim)
	}
	return r.confirmAttachment(ctx, p, claim)
}

func (r *Reconciler) confirmPod(ctx context.Context, p *moorv1alpha1.PodStaging, claim *corev1.PersistentVolumeClaim) error {
	u, pod := p.Spec.User, &corev1.Pod{}
	found, err := kube.Find(ctx, r.Live, client.ObjectKey{Namespace: u.Namespace, Name: u.Name}, pod)
	switch {
	case err != nil:
		return passes{err}
	case !found || pod.UID != u.UID:
		return gone(u)
	case pod.Spec.NodeName != p.Spec.NodeName:
		return elsewhere(p, pod.Spec.NodeName)
	case !slices.Contains(podvolume.ClaimsInUse(pod), claim.Namespace+"/"+claim.Name):
		return fmt.Errorf("%s does not use claim %s/%s", u, claim.Namespace, claim.Name)
	}
	return nil
}

// confirmAttachment is that of a DPU, to which snap-controller attaches a Volume whose claim it is.
func (r *Reconciler) confirmAttachment(ctx context.Context, p *moorv1alpha1.PodStaging, claim *corev1.PersistentVolumeClaim) error {
	u, a, v := p.Spec.User, &storagev1alpha1.VolumeAttachment{}, &storagev1alpha1.Volume{}
	found, err := kube.Find(ctx, r.Live, client.ObjectKey{Namespace: u.Namespace, Name: u.Name}, a)
	switch {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%s cannot be one of this cluster, which is none of DPUs", u)
	case err != nil:
		return passes{err}
	case !found || a.UID != u.UID:
		return gone(u)
	case !a.DeletionTimestamp.IsZero():
		return fmt.Errorf("%s, for which the volume is asked for, is being deleted: nothing is staged for it any more", u)
	case a.Spec.NodeName != p.Spec.NodeName:
		return elsewhere(p, a.Spec.NodeName)
	case a.Spec.Source.VolumeRef == nil:
		return fmt.Errorf("%s names no Volume", u)
	}
	name := a.Spec.Source.VolumeRef.Name
	if found, err = kube.Find(ctx, r.Live, client.ObjectKey{Namespace: u.Namespace, Name: name}, v); err != nil {
		return passes{err}
	}
	if ref := v.Spec.Volume.CSIReference.PVCRef; !found || ref == nil || ref.Name != claim.Name {
		return fmt.Errorf("%s is of Volume %s, whose claim is not %s/%s", u, name, claim.Namespace, claim.Name)
	}
	return nil
}

func gone(u moorv1alpha1.StagingUser) error {
	return fmt.Errorf("%s, for which the volume is asked for, does not exist, or is another one by now", u)
}

func elsewhere(p *moorv1alpha1.PodStaging, node string) error {
	return fmt.Errorf("%s is on node %q, and node %s asks for its volume", p.Spec.User, node, p.Spec.NodeName)
}

// userOf is the object that is told of a staging.
func userOf(u moorv1alpha1.StagingUser) *corev1.ObjectReference {
	out := &corev1.ObjectReference{APIVersion: "v1", Kind: string(moorv1alpha1.PodUser), Namespace: u.Namespace, Name: u.Name, UID: u.UID}
	if !u.IsPod() {
		out.APIVersion, out.Kind = storagev1alpha1.GroupVersion.String(), string(u.Kind)
	}
	return out
}
