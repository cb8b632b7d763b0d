package podresync

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// BackOffEvents selects, of all events, what the cache has to hold of those about
// pods.
func BackOffEvents() fields.Selector {
	return fields.OneTermEqualSelector("reason", podvolume.ReasonFailedMount)
}

// ofBackOff has the pod looked at that a kubelet has left alone.
func ofBackOff(_ context.Context, o client.Object) []reconcile.Request {
	e, ok := o.(*corev1.Event)
	if !ok || podvolume.BackedOff(e) == "" {
		return nil
	}
	return []reconcile.Request{kube.RequestFor(e.InvolvedObject.Namespace, e.InvolvedObject.Name)}
}

// backedOffVolume is a volume of ours on a pod that its kubelet has left alone; "" if
// there is none.
func (r *Reconciler) backedOffVolume(ctx context.Context, pod *corev1.Pod) (string, error) {
	var said corev1.EventList
	if err := r.Host.Client.List(ctx, &said, client.InNamespace(pod.Namespace), client.MatchingFields{index.EventByBackedOffPod: string(pod.UID)}); err != nil {
		return "", fmt.Errorf("read what its kubelet says of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if len(said.Items) == 0 {
		return "", nil
	}
	return r.first(ctx, pod, func(string) (bool, error) { return true, nil })
}
