package podresync

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// grownVolume is a volume of ours that has grown while the pod runs and waits for the
// pod's node, with its size; "" if there is none.
func (r *Reconciler) grownVolume(ctx context.Context, pod *corev1.Pod) (volume, size string, err error) {
	for _, name := range podvolume.Claims(pod) {
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: pod.Namespace, Name: strings.TrimPrefix(name, pod.Namespace+"/")}
		found, err := kube.Find(ctx, r.Host.Client, key, claim)
		if err != nil {
			return "", "", err
		}
		if size = waitsForNode(claim); !found || size == "" {
			continue
		}
		volumes, err := r.users().BoundHandles(ctx, name)
		if err != nil || len(volumes) > 0 {
			return strings.Join(volumes, ", "), size, err
		}
	}
	return "", "", nil
}

// waitsForNode is the size to which the volume of a claim has grown, if its node
// has yet to do its part and has not begun with it; "" if not. csi-resizer says so
// by a status since Kubernetes 1.32, and by a condition ever since.
func waitsForNode(claim *corev1.PersistentVolumeClaim) string {
	status, told := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	pending := status == corev1.PersistentVolumeClaimNodeResizePending
	if !told {
		pending = slices.ContainsFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
			return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending && c.Status == corev1.ConditionTrue
		})
	}
	if !pending {
		return ""
	}
	size, allocated := claim.Status.AllocatedResources[corev1.ResourceStorage]
	if !allocated {
		size = claim.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	return size.String()
}
