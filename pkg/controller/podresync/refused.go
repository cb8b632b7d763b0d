package podresync

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// What a kubelet says of a pod that it then leaves alone (FailedMountVolume in
// pkg/kubelet/events, SyncPod in pkg/kubelet/kubelet.go of Kubernetes 1.35). With
// another message the volume is tried again at once.
const (
	reasonFailedMount = "FailedMount"
	leftAlone         = "Unable to attach or mount volumes"
)

// Complaints selects, of all events, what the cache has to hold of those about
// pods.
func Complaints() fields.Selector { return fields.OneTermEqualSelector("reason", reasonFailedMount) }

// leftPod is the UID of the pod that a kubelet says it has left alone; none if it
// says something else.
func leftPod(e *corev1.Event) []string {
	if e.Reason != reasonFailedMount || e.InvolvedObject.Kind != "Pod" || !strings.HasPrefix(e.Message, leftAlone) {
		return nil
	}
	return []string{string(e.InvolvedObject.UID)}
}

// ofComplaint has the pod looked at that a kubelet has left alone.
func ofComplaint(_ context.Context, o client.Object) []reconcile.Request {
	e, ok := o.(*corev1.Event)
	if !ok || leftPod(e) == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name}}}
}

// refused is a volume of ours on a pod that its kubelet has left alone; "" if
// there is none.
func (r *Reconciler) refused(ctx context.Context, pod *corev1.Pod) (string, error) {
	var said corev1.EventList
	if err := r.Host.Client.List(ctx, &said, client.InNamespace(pod.Namespace), client.MatchingFields{indexLeft: string(pod.UID)}); err != nil {
		return "", fmt.Errorf("read what its kubelet says of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if len(said.Items) == 0 {
		return "", nil
	}
	return r.first(ctx, pod, func(string) (bool, error) { return true, nil })
}
