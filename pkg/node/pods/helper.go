package pods

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/node/pods/endpoint"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// The kinds that helper pods work for, as owner references have them.
const (
	kindVolume  = "PodVolume"
	kindStaging = "PodStaging"
)

// helper is what a pod works for.
type helper struct {
	kind, name string
	uid        types.UID
}

// helperOf is what a pod works for; ok is false if it is none of ours. Its label and its owner have to
// say the same: any user can set a label.
func helperOf(pod *corev1.Pod) (h helper, ok bool) {
	for _, of := range []helper{{kind: kindVolume, uid: types.UID(pod.Labels[moorv1alpha1.LabelPodVolume])}, {kind: kindStaging, uid: types.UID(pod.Labels[moorv1alpha1.LabelPodStaging])}} {
		for _, owner := range pod.OwnerReferences {
			if of.uid != "" && owner.UID == of.uid && owner.Kind == of.kind && owner.APIVersion == moorv1alpha1.GroupVersion.String() {
				of.name = owner.Name
				return of, true
			}
		}
	}
	return helper{}, false
}

// unstages reports whether a pod is one that undoes a staging, in the directory of the staging pod.
func unstages(pod *corev1.Pod) bool {
	return strings.HasPrefix(pod.Name, pods.StagingPodName(pods.Unstaging, ""))
}

// has reports whether a pod has a directory of the node as a volume.
func has(pod *corev1.Pod, path string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil && v.HostPath.Path == path })
}

// slimPod leaves of a pod where it runs, how it is, and what it works for. It is a cache transform.
func slimPod(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	out := &corev1.Pod{
		TypeMeta: p.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			DeletionTimestamp: p.DeletionTimestamp, Finalizers: p.Finalizers,
		},
		Spec:   corev1.PodSpec{NodeName: p.Spec.NodeName},
		Status: corev1.PodStatus{Phase: p.Status.Phase, StartTime: p.Status.StartTime},
	}
	if _, ok := helperOf(p); ok {
		out.Labels, out.OwnerReferences = p.Labels, p.OwnerReferences
		for _, v := range p.Spec.Volumes {
			if v.HostPath != nil {
				out.Spec.Volumes = append(out.Spec.Volumes, v)
			}
		}
		if pods.Held(p) { // its phase does not say when its work has ended
			out.Spec.RestartPolicy, out.Status.ContainerStatuses = p.Spec.RestartPolicy, p.Status.ContainerStatuses
			for i := range p.Spec.Containers {
				out.Spec.Containers = append(out.Spec.Containers, corev1.Container{Name: p.Spec.Containers[i].Name})
			}
		}
	}
	return out, nil
}

// used reports whether a helper pod of this node, whatever it is at, has a directory as /pav. The API
// server says so, and not the cache.
func (a *Agent) used(ctx context.Context, directory string) (bool, error) {
	for _, label := range []string{moorv1alpha1.LabelPodVolume, moorv1alpha1.LabelPodStaging} {
		var list corev1.PodList
		err := a.cluster.Live.List(ctx, &list, client.MatchingFields{podvolume.PodByNode: a.o.Node}, client.HasLabels{label})
		if err != nil {
			return false, fmt.Errorf("find out whether a pod needs %s: %w", a.root.Path(directory), err)
		}
		if slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return has(&p, a.root.Path(directory)) }) {
			return true, nil
		}
	}
	return false, nil
}

// stagings are those of this node, as the API server has them.
func (a *Agent) stagings(ctx context.Context) ([]moorv1alpha1.PodStaging, error) {
	var list moorv1alpha1.PodStagingList
	if err := a.cluster.Live.List(ctx, &list, client.MatchingFields{endpoint.FieldNode: a.o.Node}); err != nil {
		return nil, fmt.Errorf("find out what is staged here: %w", err)
	}
	return list.Items, nil
}
