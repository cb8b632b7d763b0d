package snapshot

import (
	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// seen is what one pass saw of a snapshot.
type seen struct {
	// mirror is the StorageSnapshot, nil if it is not there or not ours.
	mirror *moorv1alpha1.StorageSnapshot
	// waiting says in words why there is no mirror.
	waiting string
	// failure of this pass.
	failure error
}

// report rebuilds the status from what was seen. What was taken stays: a
// snapshot of which the mirror is lost was taken all the same.
func report(s *moorv1alpha1.DPUVolumeSnapshot, seen seen) {
	conditions := kube.Conditions{List: &s.Status.Conditions, Generation: s.Generation}
	s.Status.ObservedGeneration = s.Generation
	s.Status.ReadyToUse = false
	words := seen.waiting
	if m := seen.mirror; m != nil {
		if m.Spec.Origin != nil {
			s.Status.Origin = m.Spec.Origin
		}
		if m.Spec.Taken != nil {
			s.Status.Taken = m.Spec.Taken
		}
		s.Status.ReadyToUse = m.Spec.Taken != nil && m.Status.ReadyToUse
		words = m.Status.Message
		if words == "" {
			words = "waiting for snap-controller in the DPU cluster"
		}
	}
	conditions.Whether(moorv1alpha1.ConditionTaken, s.Status.Taken != nil, words)
	conditions.Whether(moorv1alpha1.ConditionReadyToUse, s.Status.ReadyToUse, words)
	conditions.Reconciled(moorv1alpha1.ConditionDPUVolumeSnapshotReconciled, seen.failure, seen.waiting)
	conditions.Summarize(moorv1alpha1.ConditionReady,
		moorv1alpha1.ConditionDPUVolumeSnapshotReconciled, moorv1alpha1.ConditionTaken, moorv1alpha1.ConditionReadyToUse)
}

// leaving says what a snapshot on its way out waits for.
func leaving(s *moorv1alpha1.DPUVolumeSnapshot, words string) {
	s.Status.ReadyToUse = false
	conditions := kube.Conditions{List: &s.Status.Conditions, Generation: s.Generation}
	conditions.False(moorv1alpha1.ConditionDPUVolumeSnapshotReconciled, storagev1alpha1.ReasonAwaitingDeletion, words)
	conditions.Summarize(moorv1alpha1.ConditionReady, moorv1alpha1.ConditionDPUVolumeSnapshotReconciled)
}
