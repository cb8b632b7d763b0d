package volume

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// pass is what one pass over one Volume knows, and what it works with.
type pass struct {
	volume  *storagev1alpha1.Volume
	cluster kube.Cluster
	choices *choices
	// intN returns a random number of 0..n-1.
	intN     func(n int) int
	recorder record.EventRecorder
	// now is when the pass began.
	now time.Time
}

// dpus reads the DPUs. They are not to be changed.
func (p *pass) dpus(ctx context.Context) ([]dpu, error) {
	nodes, known := &corev1.NodeList{}, &storagev1.CSINodeList{}
	if err := p.cluster.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the DPUs: %w", err)
	}
	if err := p.cluster.Client.List(ctx, known, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the drivers of the DPUs: %w", err)
	}
	return dpusOf(nodes.Items, known.Items), nil
}

// pvcKey names the vendor's claim of a volume.
func pvcKey(v *storagev1alpha1.Volume) types.NamespacedName {
	if ref := v.Spec.Volume.CSIReference.PVCRef; ref != nil {
		return types.NamespacedName{Namespace: v.Namespace, Name: ref.Name}
	}
	return types.NamespacedName{Namespace: v.Namespace, Name: kube.PVCName(v.Name)}
}

// madeByDPF reports whether DPF made both the claim and the volume, for one DPUVolume: it says so by
// the same annotation of both, and no owner.
func madeByDPF(pvc *corev1.PersistentVolumeClaim, v *storagev1alpha1.Volume) bool {
	owner := v.Annotations[storagev1alpha1.AnnotationOwnedByDPUVolume]
	return owner != "" && pvc.Annotations[storagev1alpha1.AnnotationOwnedByDPUVolume] == owner && len(pvc.OwnerReferences) == 0
}

// ownedBy reports whether the claim was made for this very volume.
func ownedBy(pvc *corev1.PersistentVolumeClaim, v *storagev1alpha1.Volume) bool {
	for _, owner := range pvc.OwnerReferences {
		if owner.UID == v.UID {
			return true
		}
	}
	return false
}
