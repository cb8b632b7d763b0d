package lostpath

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// Reader reads the facts of a volume.
type Reader struct {
	// Host is the host cluster, with the index of attachments by volume; DPU is the DPU
	// cluster. Only their caches are used.
	Host, DPU kube.Cluster
	// Revokes reports whether the vendor of a CSIDriver vouches that its storage revokes.
	Revokes func(ctx context.Context, driver string) (bool, error)
	// Heartbeats tell which DPUs are heard.
	Heartbeats *nodehealth.Observer
	Clock      clock.PassiveClock
}

// Since is when the condition of an attachment began to say that its path is lost, by the
// clock of this program's host; ok: it says so.
func Since(a *storagev1alpha1.DPUVolumeAttachment) (since time.Time, ok bool) {
	c := meta.FindStatusCondition(a.Status.Conditions, storagev1alpha1.ConditionPathHealthy)
	if c == nil || c.Status != metav1.ConditionFalse {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}

// Read reads the facts of a volume whose path is lost for an attachment, since a time. open
// is the epoch under which its device is open at the storage; nil: under none.
func (r Reader) Read(ctx context.Context, v *storagev1alpha1.DPUVolume, a *storagev1alpha1.DPUVolumeAttachment, since time.Time, open *int64) (Facts, error) {
	out := Facts{Lost: r.Clock.Since(since), Timeout: v.Spec.Replication.PathTimeout(), Epochs: open != nil && *open > 0}
	var err error
	if v.Status.State != nil && !out.Epochs {
		if out.Revokes, err = r.Revokes(ctx, v.Status.State.CSIDriverName); err != nil {
			return Facts{}, err
		}
	}
	var list storagev1alpha1.DPUVolumeAttachmentList
	err = r.Host.Client.List(ctx, &list, client.InNamespace(v.Namespace), client.MatchingFields{index.DPUVolumeAttachmentByVolume: v.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return Facts{}, fmt.Errorf("list the attachments of volume %s: %w", v.Name, err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name == a.Name || !other.DeletionTimestamp.IsZero() || !hasDevice(other) {
			continue
		}
		out.Others++
		host, reaches, err := r.reaches(ctx, other)
		switch {
		case err != nil:
			return Facts{}, err
		case !reaches:
		case host.Spec.Draining() != "":
			out.Drained = append(out.Drained, host.Name)
		default:
			out.Witnesses = append(out.Witnesses, host.Name)
		}
	}
	slices.Sort(out.Witnesses)
	slices.Sort(out.Drained)
	return out, nil
}

// hasDevice reports whether the DPU of an attachment has a device of the volume, which it
// watches.
func hasDevice(a *storagev1alpha1.DPUVolumeAttachment) bool {
	return a.Status.Warmth == storagev1alpha1.WarmthPreEmulated || a.Status.Warmth == storagev1alpha1.WarmthAttached
}

// reaches reports whether the DPU of an attachment is heard, sees its devices, and does not say
// that its path is lost, as the DPU's own object has it: the copy in the host cluster comes
// later. It returns the host too.
func (r Reader) reaches(ctx context.Context, a *storagev1alpha1.DPUVolumeAttachment) (*moorv1alpha1.DPUStorageNode, bool, error) {
	node := &moorv1alpha1.DPUStorageNode{}
	found, err := kube.Find(ctx, r.Host.Client, client.ObjectKey{Name: a.Spec.DPUNodeName}, node)
	if err != nil || !found || node.Spec.DPUName == "" {
		return node, false, err
	}
	if err := nodehealth.FromDPU(ctx, r.DPU.Client, node); err != nil {
		return node, false, err
	}
	_, lost := Since(a)
	sees := node.Status.DPU != nil && node.Status.DPU.SNAPReady
	return node, sees && !lost && node.Status.LostPath(a.Spec.DPUVolumeName) == nil && r.Heartbeats.DPU(node.Spec.DPUName) == nodehealth.Fresh, nil
}
