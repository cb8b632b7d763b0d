package replica

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

// pass is what is seen of a volume and its attachments.
type pass struct {
	name string
	// volume is nil if it is gone.
	volume *storagev1alpha1.DPUVolume
	// attachments are all of the volume's, ordered by name.
	attachments []*storagev1alpha1.DPUVolumeAttachment
}

func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (*pass, error) {
	s := &pass{name: key.Name, volume: &storagev1alpha1.DPUVolume{}}
	found, err := kube.Find(ctx, r.Host.Client, key, s.volume)
	if err != nil {
		return nil, err
	}
	if !found {
		s.volume = nil
	}
	var list storagev1alpha1.DPUVolumeAttachmentList
	if err := r.Host.Client.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingFields{index.DPUVolumeAttachmentByVolume: key.Name}); err != nil {
		return nil, fmt.Errorf("list the attachments of volume %s: %w", key.Name, err)
	}
	for i := range list.Items {
		s.attachments = append(s.attachments, &list.Items[i])
	}
	slices.SortFunc(s.attachments, func(a, b *storagev1alpha1.DPUVolumeAttachment) int { return cmp.Compare(a.Name, b.Name) })
	return s, nil
}

// wanted is how many replicas the volume is to have while it has a primary.
func (s *pass) wanted() int {
	if s.volume == nil || !s.volume.DeletionTimestamp.IsZero() || s.volume.Spec.Replication == nil {
		return 0
	}
	return int(s.volume.Spec.Replication.MaxMountReplicaCount)
}

// warmth is how ready replicas are to be kept.
func (s *pass) warmth() storagev1alpha1.Warmth {
	return cmp.Or(s.volume.Spec.Replication.Warmth, storagev1alpha1.WarmthPreEmulated)
}

// outlive is how long the replicas stay after the last primary.
func (s *pass) outlive(otherwise time.Duration) time.Duration {
	if own := s.volume.Spec.Replication.ReleaseAfterSeconds; own != nil {
		return time.Duration(*own) * time.Second
	}
	return otherwise
}

// primary is the attachment through which the volume is used; nil if there is
// none. Of several the first that is attached.
func (s *pass) primary() *storagev1alpha1.DPUVolumeAttachment {
	var first *storagev1alpha1.DPUVolumeAttachment
	for _, a := range s.attachments {
		switch {
		case isReplica(a) || !a.DeletionTimestamp.IsZero():
		case attached(a):
			return a
		case first == nil:
			first = a
		}
	}
	return first
}

// ours are the replicas that this controller made, those on their way out
// with them.
func (s *pass) ours() []*storagev1alpha1.DPUVolumeAttachment {
	var out []*storagev1alpha1.DPUVolumeAttachment
	for _, a := range s.attachments {
		if isOurs(a) {
			out = append(out, a)
		}
	}
	return out
}

// standing are those of ours that are not on their way out.
func (s *pass) standing() []*storagev1alpha1.DPUVolumeAttachment {
	return slices.DeleteFunc(s.ours(), func(a *storagev1alpha1.DPUVolumeAttachment) bool { return !a.DeletionTimestamp.IsZero() })
}

// vendor is that of the volume.
func (s *pass) vendor() string { return vendorOf(s.volume) }

func vendorOf(v *storagev1alpha1.DPUVolume) string {
	if v.Status.State == nil {
		return ""
	}
	return v.Status.State.SelectedDPUStorageVendorName
}

// leaving is the state while replicas that are not wanted are on their way out.
func (s *pass) leaving() *storagev1alpha1.ReplicaState {
	if len(s.ours()) == 0 {
		return nil
	}
	return &storagev1alpha1.ReplicaState{Message: "its replicas are being released: none are wanted"}
}

func isReplica(a *storagev1alpha1.DPUVolumeAttachment) bool {
	return a.Spec.Role == storagev1alpha1.RoleReplica
}

func isOurs(a *storagev1alpha1.DPUVolumeAttachment) bool {
	return isReplica(a) && a.Labels[storagev1alpha1.LabelReplicaOf] == kube.LabelValue(a.Spec.DPUVolumeName)
}

func attached(a *storagev1alpha1.DPUVolumeAttachment) bool {
	return a.Status.DPUAttached != nil && *a.Status.DPUAttached
}
