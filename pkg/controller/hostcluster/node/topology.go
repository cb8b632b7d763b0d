package node

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// place is where a DPU is, for storage.
func (r *Reconciler) place(ctx context.Context, dpu string) (map[string]string, error) {
	node, drivers := &corev1.Node{}, &storagev1.CSINode{}
	if _, err := kube.Find(ctx, r.Clusters.DPU.Client, client.ObjectKey{Name: dpu}, node); err != nil {
		return nil, err
	}
	if _, err := kube.Find(ctx, r.Clusters.DPU.Client, client.ObjectKey{Name: dpu}, drivers); err != nil {
		return nil, err
	}
	out := placeOf(dpu, node.Labels, drivers.Spec.Drivers)
	r.Clusters.Place(out)
	return out, nil
}

// placeOf is the DPU itself, and its labels for the topology keys of the drivers
// there. The name of a machine is left out: the host has its own under that key,
// and its kubelet would refuse another.
func placeOf(dpu string, labels map[string]string, drivers []storagev1.CSINodeDriver) map[string]string {
	out := map[string]string{moorv1alpha1.TopologyDPU: kube.LabelValue(dpu)}
	for _, d := range drivers {
		for _, key := range d.TopologyKeys {
			if value, ok := labels[key]; ok && key != corev1.LabelHostname {
				out[key] = value
			}
		}
	}
	return out
}

// relabelled lets pass a Node with other labels.
func relabelled(e event.TypedUpdateEvent[*corev1.Node]) bool {
	return !maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels)
}
