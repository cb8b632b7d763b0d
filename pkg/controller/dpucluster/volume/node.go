package volume

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// annotationSelectedNode is Kubernetes' way of telling csi-provisioner for which node a
// pvc is; it heeds it with either volumeBindingMode.
const annotationSelectedNode = "volume.kubernetes.io/selected-node"

// unreachable is a wait for something that, as things are, will not come: the
// volume cannot be had from where it is to be reached.
type unreachable struct{ error }

func (u unreachable) Unwrap() error { return u.error }

func unreachablef(format string, args ...any) error {
	return unreachable{kube.WaitFor(format, args...)}
}

func isUnreachable(err error) bool {
	var u unreachable
	return errors.As(err, &u)
}

// dpus reads the DPUs. They are not to be changed.
func (r *Reconciler) dpus(ctx context.Context) ([]dpu, error) {
	nodes, known := &corev1.NodeList{}, &storagev1.CSINodeList{}
	if err := r.DPU.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the DPUs: %w", err)
	}
	if err := r.DPU.Client.List(ctx, known, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the drivers of the DPUs: %w", err)
	}
	return dpusOf(nodes.Items, known.Items), nil
}

// selectNode is the DPU for which the vendor is to make the volume; "" if that is
// left to the vendor.
func (r *Reconciler) selectNode(ctx context.Context, v *storagev1alpha1.Volume, from *origin) (string, error) {
	class := &storagev1.StorageClass{}
	found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Name: v.Spec.Volume.CSIReference.StorageClassName}, class)
	if err != nil || !found || !waitsForNode(class) && len(v.Spec.Request.AccessibleFrom) == 0 {
		return "", err
	}
	dpus, err := r.dpus(ctx)
	if err != nil {
		return "", err
	}
	s := constraintsOf(v, class, from)
	if !waitsForNode(class) && !topologyAware(dpus, s.driver) {
		return "", nil
	}
	fit := bestNodes(dpus, s)
	switch {
	case len(fit) > 0:
		return fit[r.IntN(len(fit))].node.Name, nil
	case len(s.wanted)+len(s.source) == 0:
		return "", nil
	}
	return "", unreachablef("StorageClass %s makes no volume that is reached from one of the places asked for: %s", class.Name, describePlaces(s.wanted))
}

// waitsForNode reports whether the class makes no volume before a node is selected.
func waitsForNode(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}
