package attachments

import (
	"cmp"
	"context"
	"strings"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// Preceding returns the attachment of the same volume that goes before mine on
// this DPU: by the right to write, by role, by having the device, by age. Nil if
// mine goes first. It reads the cache.
func (s *Store) Preceding(ctx context.Context, mine *storagev1alpha1.VolumeAttachment) (*storagev1alpha1.VolumeAttachment, error) {
	all, err := s.Cached(ctx)
	if err != nil {
		return nil, err
	}
	for i := range all {
		other := &all[i]
		if other.Name != mine.Name && other.VolumeName() == mine.VolumeName() && rank(other, mine) < 0 {
			return other, nil
		}
	}
	return nil, nil
}

// rank is negative if a goes before b.
func rank(a, b *storagev1alpha1.VolumeAttachment) int {
	return cmp.Or(
		first(a.Spec.Epoch != 0, b.Spec.Epoch != 0),
		first(!a.IsReplica(), !b.IsReplica()),
		first(a.Status.DPU.DeviceName != "", b.Status.DPU.DeviceName != ""),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		strings.Compare(a.Name, b.Name),
	)
}

func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
