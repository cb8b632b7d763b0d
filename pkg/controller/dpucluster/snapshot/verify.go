package snapshot

import (
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// verify returns what a VolumeSnapshot still lacks to be the snapshot that is asked
// for; nil once it holds the data. ours is false if it has another owner.
func verify(s *moorv1alpha1.StorageSnapshot, made *snapshotv1.VolumeSnapshot, ours bool) error {
	switch {
	case !ours:
		return kube.WaitFor("VolumeSnapshot %s exists already and does not belong to this snapshot: delete it, or choose another name for the snapshot", made.Name)
	case !made.DeletionTimestamp.IsZero():
		return kube.WaitFor("the vendor's VolumeSnapshot %s is being deleted", made.Name)
	case s.Spec.Taken != nil && made.Status == nil:
		return kube.WaitFor("the vendor's VolumeSnapshot %s holds nothing any more: delete the snapshot", made.Name)
	case made.Status == nil || made.Status.CreationTime == nil || made.Status.RestoreSize == nil:
		return kube.WaitSince(made.CreationTimestamp.Time, "waiting for the vendor's VolumeSnapshot %s%s", made.Name, errorOf(made))
	case s.Spec.Taken != nil && !made.Status.CreationTime.Equal(&s.Spec.Taken.Time):
		return kube.WaitFor("VolumeSnapshot %s holds the data of another instant, %s: it is not the snapshot that was taken; delete this one",
			made.Name, made.Status.CreationTime.UTC().Format("2006-01-02T15:04:05Z"))
	}
	return nil
}

// errorOf is what went wrong with a VolumeSnapshot last, to be appended to a message.
func errorOf(made *snapshotv1.VolumeSnapshot) string {
	if made.Status == nil {
		return ""
	}
	return messageOf(made.Status.Error)
}

func messageOf(wrong *snapshotv1.VolumeSnapshotError) string {
	if wrong == nil || wrong.Message == nil {
		return ""
	}
	return ": " + *wrong.Message
}
