package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

// paths are the ways of the DPUs that have a volume to its storage.
type paths struct {
	// lost are the hosts whose DPUs do not reach it, and why; well is how many do.
	lost []string
	well int
}

// pathsOf asks the attachments of a volume, as the cache has them. One that has no device yet
// says nothing of the storage.
func (r *Reconciler) pathsOf(ctx context.Context, volume *storagev1alpha1.DPUVolume) (paths, error) {
	var list storagev1alpha1.DPUVolumeAttachmentList
	err := r.Clusters.Host.Client.List(ctx, &list, client.InNamespace(volume.Namespace), client.MatchingFields{index.DPUVolumeAttachmentByVolume: volume.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return paths{}, fmt.Errorf("list the attachments of volume %s: %w", volume.Name, err)
	}
	var out paths
	for i := range list.Items {
		out.count(&list.Items[i])
	}
	return out, nil
}

func (p *paths) count(a *storagev1alpha1.DPUVolumeAttachment) {
	switch c := meta.FindStatusCondition(a.Status.Conditions, storagev1alpha1.ConditionPathHealthy); {
	case c != nil && c.Status == metav1.ConditionFalse:
		p.lost = append(p.lost, fmt.Sprintf("host %s, %s", a.Spec.DPUNodeName, c.Message))
	case a.Status.Warmth == storagev1alpha1.WarmthPreEmulated || a.Status.Warmth == storagev1alpha1.WarmthAttached:
		p.well++
	}
}

// tell says how the ways are, once one was lost.
func (p paths) tell(conditions kube.Conditions) {
	const kind = storagev1alpha1.ConditionPathHealthy
	lost := strings.Join(slices.Sorted(slices.Values(p.lost)), "; ")
	switch {
	case len(p.lost) > 0 && p.well == 0:
		conditions.False(kind, storagev1alpha1.ReasonAllPathsLost, "no DPU that has the volume reaches its storage, so nothing is moved, and I/O waits until the storage is back: "+lost)
	case len(p.lost) > 0:
		conditions.False(kind, storagev1alpha1.ReasonPathLost, fmt.Sprintf("%d of the %d DPUs that have the volume do not reach its storage: %s", len(p.lost), len(p.lost)+p.well, lost))
	case meta.FindStatusCondition(*conditions.List, kind) != nil:
		conditions.True(kind)
	}
}
