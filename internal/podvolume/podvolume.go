// Package podvolume knows how Kubernetes ties a pod to a volume: pod, claim,
// PersistentVolume, volume handle.
package podvolume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ClaimName is the name of the claim behind a volume of a pod, "" if there is
// none. The claim of a generic ephemeral volume is named "<pod>-<volume>" by
// Kubernetes.
func ClaimName(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// Claims are the claims of a pod, as "namespace/name".
func Claims(pod *corev1.Pod) []string {
	var out []string
	for i := range pod.Spec.Volumes {
		if name := ClaimName(pod, &pod.Spec.Volumes[i]); name != "" {
			out = append(out, pod.Namespace+"/"+name)
		}
	}
	return out
}

// Finished reports whether none of the pod's containers runs, or ever will.
func Finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Handle is the handle of a PersistentVolume of any CSI driver, "" if it has
// none.
func Handle(pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI == nil {
		return ""
	}
	return pv.Spec.CSI.VolumeHandle
}

// HandleOf is the handle of a PersistentVolume of that CSI driver, "" if it is
// another's.
func HandleOf(driver string, pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != driver {
		return ""
	}
	return pv.Spec.CSI.VolumeHandle
}

// BoundTo is the claim for which a PersistentVolume is, as "namespace/name",
// "" if there is none.
func BoundTo(pv *corev1.PersistentVolume) string {
	if pv.Spec.ClaimRef == nil {
		return ""
	}
	return pv.Spec.ClaimRef.Namespace + "/" + pv.Spec.ClaimRef.Name
}

// The fields that Behind and On look by.
const (
	fieldBound  = "spec.claimRef"
	fieldClaims = "spec.volumes.claimName"
)

// Index registers the field indexes that Behind and On read by; once per cache,
// before it starts.
func Index(ctx context.Context, indexer client.FieldIndexer) error {
	err := errors.Join(
		indexer.IndexField(ctx, &corev1.PersistentVolume{}, fieldBound, func(o client.Object) []string {
			if claim := BoundTo(o.(*corev1.PersistentVolume)); claim != "" {
				return []string{claim}
			}
			return nil
		}),
		indexer.IndexField(ctx, &corev1.Pod{}, fieldClaims, func(o client.Object) []string { return Claims(o.(*corev1.Pod)) }),
	)
	if err != nil {
		return fmt.Errorf("index PersistentVolumes and pods by their claims: %w", err)
	}
	return nil
}

// Behind are the PersistentVolumes of a CSI driver that are for a claim,
// "namespace/name": one, if all is well. from has the indexes of Index.
func Behind(ctx context.Context, from client.Reader, driver, claim string) ([]corev1.PersistentVolume, error) {
	var list corev1.PersistentVolumeList
	if err := from.List(ctx, &list, client.MatchingFields{fieldBound: claim}); err != nil {
		return nil, fmt.Errorf("find the PersistentVolume of claim %s: %w", claim, err)
	}
	return slices.DeleteFunc(list.Items, func(pv corev1.PersistentVolume) bool { return HandleOf(driver, &pv) == "" }), nil
}

// On are the pods that use a claim, "namespace/name", and have not finished. from
// has the indexes of Index.
func On(ctx context.Context, from client.Reader, claim string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := from.List(ctx, &list, client.MatchingFields{fieldClaims: claim}); err != nil {
		return nil, fmt.Errorf("find the pods on claim %s: %w", claim, err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return Finished(&p) }), nil
}

// SlimClaim is a cache transform that drops of a claim what nobody reads.
func SlimClaim(o any) (any, error) {
	if c, ok := o.(*corev1.PersistentVolumeClaim); ok {
		c.ManagedFields, c.Annotations, c.Labels = nil, nil, nil
	}
	return o, nil
}

// Slim is a cache transform that drops of a pod what this package, and the
// placement of pods, never reads.
func Slim(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	p.ManagedFields, p.Annotations = nil, nil
	p.Spec.Containers, p.Spec.InitContainers, p.Spec.EphemeralContainers = nil, nil, nil
	p.Status = corev1.PodStatus{Phase: p.Status.Phase}
	return p, nil
}
