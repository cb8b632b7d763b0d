package snapshot

import (
	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// pass is what one pass knows of a snapshot.
type pass struct {
	// mirror is the StorageSnapshot, nil if it is not there or not ours.
	mirror *moorv1alpha1.StorageSnapshot
	// outcome is what carrying it came to.
	outcome kube.Outcome
}

// report rebuilds the status. What was taken stays: a
// snapshot of which the mirror is lost was taken all the same.
func report(s *moorv1alpha1.DPUVolumeSnapshot, p pass) {
	conditions := kube.Conditions{List: &s.Status.Conditions, Generation: s.Generation}
	s.Status.ObservedGeneration = s.Generation
	s.Status.ReadyToUse = false
	message := ""
	if p.outcome.Waits() {
		message = p.outcome.Message
	}
	if m := p.mirror; m != nil {
		if m.Spec.Origin != nil {
			s.Status.Origin = m.Spec.Origin
		}
		if m.Spec.Taken != nil {
			s.Status.Taken = m.Spec.Taken
		}
		s.Status.ReadyToUse = m.Spec.Taken != nil && m.Status.ReadyToUse
		message = m.Status.Message
		if message == "" {
			message = "waiting for snap-controller in the DPU cluster"
		}
	}
	conditions.Whether(moorv1alpha1.ConditionTaken, s.Status.Taken != nil, message)
	conditions.Whether(moorv1alpha1.ConditionReadyToUse, s.Status.ReadyToUse, message)
	conditions.Reconciled(moorv1alpha1.ConditionDPUVolumeSnapshotReconciled, p.outcome)
	conditions.Summarize(moorv1alpha1.ConditionReady,
		moorv1alpha1.ConditionDPUVolumeSnapshotReconciled, moorv1alpha1.ConditionTaken, moorv1alpha1.ConditionReadyToUse)
}

// leaving says what a snapshot on its way out waits for.
func leaving(s *moorv1alpha1.DPUVolumeSnapshot, message string) {
	s.Status.ReadyToUse = false
	conditions := kube.Conditions{List: &s.Status.Conditions, Generation: s.Generation}
	conditions.False(moorv1alpha1.ConditionDPUVolumeSnapshotReconciled, storagev1alpha1.ReasonAwaitingDeletion, message)
	conditions.Summarize(moorv1alpha1.ConditionReady, moorv1alpha1.ConditionDPUVolumeSnapshotReconciled)
}
