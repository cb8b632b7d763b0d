package podvolume

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
)

// The field indexes by which Users looks.
const (
	PersistentVolumeByClaim  = "spec.claimRef"
	PersistentVolumeByHandle = "spec.csi.volumeHandle"
	PodByClaim               = "spec.volumes.claimName"
	PodByNode                = "spec.nodeName"
)

// Indexes are what a cache needs for Users, but for those of pods by their node.
func Indexes() []kube.Index {
	return []kube.Index{
		IndexPersistentVolumesByClaim(),
		kube.IndexOf(PersistentVolumeByHandle, func(pv *corev1.PersistentVolume) []string { return kube.Some(Handle(pv)) }),
		kube.IndexOf(PodByClaim, Claims),
	}
}

// IndexPersistentVolumesByClaim finds PersistentVolumes by the claim that they
// are for, "namespace/name".
func IndexPersistentVolumesByClaim() kube.Index {
	return kube.IndexOf(PersistentVolumeByClaim, func(pv *corev1.PersistentVolume) []string { return kube.Some(BoundTo(pv)) })
}

// IndexPodsByNode is what PodsOnNode and AllPodsOnNode look by.
func IndexPodsByNode() kube.Index {
	return kube.IndexOf(PodByNode, func(p *corev1.Pod) []string { return kube.Some(p.Spec.NodeName) })
}

// ClaimsInUse are the claims that a pod uses: it is bound to a node and has not
// finished.
func ClaimsInUse(p *corev1.Pod) []string {
	if p.Spec.NodeName == "" || Finished(p) {
		return nil
	}
	return Claims(p)
}

// Users finds which pods use which volumes of some CSI drivers.
type Users struct {
	// Host is the cluster of the pods, with the indexes of package index.
	Host kube.Cluster
	// Drivers are the names of the CSI drivers.
	Drivers []string
}

// Pods are the pods on a claim, "namespace/name", that have not finished.
func (u Users) Pods(ctx context.Context, claim string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := u.Host.Client.List(ctx, &list, client.MatchingFields{PodByClaim: claim}); err != nil {
		return nil, fmt.Errorf("find the pods on claim %s: %w", claim, err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return Finished(&p) }), nil
}

// PodsOnNode are the pods that use a claim, "namespace/name", on a node. They are
// looked for among those of the node, which are few, as those on a claim need not be; an
// index of both would have an entry for each pod.
func (u Users) PodsOnNode(ctx context.Context, node, claim string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := u.Host.Client.List(ctx, &list, client.MatchingFields{PodByNode: node}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("find the pods of node %s on claim %s: %w", node, claim, err)
	}
	var out []corev1.Pod
	for i := range list.Items {
		if p := &list.Items[i]; slices.Contains(ClaimsInUse(p), claim) {
			out = append(out, *p.DeepCopy())
		}
	}
	return out, nil
}

// AllPodsOnNode are the pods that are bound to a node.
func (u Users) AllPodsOnNode(ctx context.Context, node string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := u.Host.Client.List(ctx, &list, client.MatchingFields{PodByNode: node}); err != nil {
		return nil, fmt.Errorf("find the pods of node %s: %w", node, err)
	}
	return list.Items, nil
}

// Volumes are the PersistentVolumes of the drivers that are for a claim,
// "namespace/name": one, if all is well.
func (u Users) Volumes(ctx context.Context, claim string) ([]corev1.PersistentVolume, error) {
	return u.persistent(ctx, client.MatchingFields{PersistentVolumeByClaim: claim}, "claim "+claim)
}

// OfOthers reports whether a volume is one of other drivers: there is a PersistentVolume of
// this handle, and none is of the drivers.
func (u Users) OfOthers(ctx context.Context, handle string) (bool, error) {
	var list corev1.PersistentVolumeList
	if err := u.Host.Client.List(ctx, &list, client.MatchingFields{PersistentVolumeByHandle: handle}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("find the PersistentVolumes of volume %s: %w", handle, err)
	}
	ours := func(pv corev1.PersistentVolume) bool { return HandleOf(&pv, u.Drivers...) != "" }
	return len(list.Items) > 0 && !slices.ContainsFunc(list.Items, ours), nil
}

// Handles are the volume handles of Volumes.
func (u Users) Handles(ctx context.Context, claim string) ([]string, error) {
	volumes, err := u.Volumes(ctx, claim)
	return handles(volumes), err
}

// BoundHandles are the handles of those of Volumes that are bound.
func (u Users) BoundHandles(ctx context.Context, claim string) ([]string, error) {
	volumes, err := u.Volumes(ctx, claim)
	return handles(slices.DeleteFunc(volumes, notBound)), err
}

// HandlesOf are the handles of the volumes of a pod.
func (u Users) HandlesOf(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	var out []string
	for _, claim := range Claims(pod) {
		found, err := u.Handles(ctx, claim)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// VolumesOf follows a pod's claims to the handles of its volumes. What a claim is bound to
// never changes, nor does a claim go while a pod uses it: so a cache will do that has
// them, and the API server is asked for what it lacks.
func (u Users) VolumesOf(ctx context.Context, p *corev1.Pod) ([]string, error) {
	var out []string
	for i := range p.Spec.Volumes {
		name := ClaimName(p, &p.Spec.Volumes[i])
		if name == "" {
			continue
		}
		claim, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
		if err := u.find(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, claim, func() bool { return claim.Spec.VolumeName != "" }); err != nil {
			return nil, err
		}
		if claim.Spec.VolumeName == "" {
			continue
		}
		if err := u.find(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume, func() bool { return volume.UID != "" }); err != nil {
			return nil, err
		}
		if handle := HandleOf(volume, u.Drivers...); handle != "" {
			out = append(out, handle)
		}
	}
	return out, nil
}

// find reads an object from the cache, and from the API server itself if that does
// not have what is looked for. One that does not exist is left empty.
func (u Users) find(ctx context.Context, key client.ObjectKey, o client.Object, has func() bool) error {
	if _, err := kube.Find(ctx, u.Host.Client, key, o); err != nil || has() {
		return err
	}
	_, err := kube.Find(ctx, u.Host.Live, key, o)
	return err
}

// Claims are the claims for which the PersistentVolumes of a volume are, each as
// "namespace/name": one, if all is well.
func (u Users) Claims(ctx context.Context, handle string) ([]string, error) {
	volumes, err := u.persistent(ctx, client.MatchingFields{PersistentVolumeByHandle: handle}, "volume "+handle)
	return claims(volumes), err
}

// BoundClaims are those of Claims that are bound. Only these count where
// a pod's use gives a right: anyone can write a claim that names a
// PersistentVolume.
func (u Users) BoundClaims(ctx context.Context, handle string) ([]string, error) {
	volumes, err := u.persistent(ctx, client.MatchingFields{PersistentVolumeByHandle: handle}, "volume "+handle)
	return claims(slices.DeleteFunc(volumes, notBound)), err
}

// Confirm reads a pod from the API server itself, and reports whether it exists
// and uses the claim, "namespace/name", on the node.
func (u Users) Confirm(ctx context.Context, pod *corev1.Pod, node, claim string) (bool, error) {
	found, err := kube.Find(ctx, u.Host.Live, client.ObjectKeyFromObject(pod), pod)
	return found && pod.Spec.NodeName == node && slices.Contains(ClaimsInUse(pod), claim), err
}

func (u Users) persistent(ctx context.Context, by client.MatchingFields, of string) ([]corev1.PersistentVolume, error) {
	var list corev1.PersistentVolumeList
	if err := u.Host.Client.List(ctx, &list, by); err != nil {
		return nil, fmt.Errorf("find the PersistentVolume of %s: %w", of, err)
	}
	return slices.DeleteFunc(list.Items, func(pv corev1.PersistentVolume) bool { return HandleOf(&pv, u.Drivers...) == "" }), nil
}

func notBound(pv corev1.PersistentVolume) bool { return pv.Status.Phase != corev1.VolumeBound }

func handles(volumes []corev1.PersistentVolume) []string {
	var out []string
	for i := range volumes {
		out = append(out, Handle(&volumes[i]))
	}
	return out
}

func claims(volumes []corev1.PersistentVolume) []string {
	var out []string
	for i := range volumes {
		if claim := BoundTo(&volumes[i]); claim != "" {
			out = append(out, claim)
		}
	}
	return out
}
