package volume

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// follow lets the Volume ask for what may change in the life of a volume: its
// size and the mutable parameters. It is changed in place: data hangs on it.
func (r *Reconciler) follow(ctx context.Context, volume *storagev1alpha1.DPUVolume, mirror *storagev1alpha1.Volume) error {
	want := mirrorOf(volume, r.Clusters).Spec.Request
	_, err := kube.Patch(ctx, r.Clusters.DPU.Client, mirror, func(m *storagev1alpha1.Volume) {
		m.Spec.Request.CapacityRange = want.CapacityRange
		m.Spec.Request.MutableParameters = want.MutableParameters
	})
	if err != nil {
		return fmt.Errorf("have the Volume ask for what is wanted now: %w", err)
	}
	return nil
}

// tellChanges says of a volume that is there whether it has become what was
// asked for since. What it was made with needs no condition.
func tellChanges(c kube.Conditions, v *storagev1alpha1.DPUVolume, m *storagev1alpha1.Volume) {
	asked, have := v.Spec.Resources.Requests[corev1.ResourceStorage], m.Spec.Volume.Capacity
	ours := m.Status.Expansion
	if ours != nil && (ours.Size == nil || ours.Size.Cmp(asked) != 0) {
		ours = nil // it speaks of an earlier request
	}
	tellChange(c, storagev1alpha1.ConditionExpanded, have == nil || have.Cmp(asked) >= 0, ours)
	ours = m.Status.Modification
	if ours != nil && !maps.Equal(ours.Parameters, v.Spec.MutableParameters) {
		ours = nil
	}
	tellChange(c, storagev1alpha1.ConditionModified, maps.Equal(m.Spec.Volume.MutableParameters, v.Spec.MutableParameters), ours)
}

func tellChange(c kube.Conditions, kind string, done bool, change *storagev1alpha1.VolumeChange) {
	switch {
	case done && meta.FindStatusCondition(*c.List, kind) == nil:
	case done:
		c.True(kind)
	case change == nil:
		c.False(kind, storagev1alpha1.ReasonPending, "waiting for snap-controller in the DPU cluster")
	case change.Refused:
		c.False(kind, storagev1alpha1.ReasonFailure, change.Message)
	default:
		c.False(kind, storagev1alpha1.ReasonPending, change.Message)
	}
}

// tellHealth says of a volume that is there whether something is wrong with
// what the vendor has made. One with which nothing ever was needs no condition.
func tellHealth(c kube.Conditions, wrong string) {
	switch {
	case wrong != "":
		c.False(storagev1alpha1.ConditionHealthy, storagev1alpha1.ReasonError, wrong)
	case meta.FindStatusCondition(*c.List, storagev1alpha1.ConditionHealthy) != nil:
		c.True(storagev1alpha1.ConditionHealthy)
	}
}

// tellAccess says of a volume that is not there yet that it cannot be had where
// it is to be reached. One of which that was never said needs no condition.
func tellAccess(c kube.Conditions, v *storagev1alpha1.DPUVolume, m *storagev1alpha1.Volume) {
	switch {
	case m != nil && m.Status.Unreachable && v.Status.Phase != storagev1alpha1.DPUVolumeBound:
		c.False(storagev1alpha1.ConditionAccessible, storagev1alpha1.ReasonFailure, m.Status.Message)
	case meta.FindStatusCondition(*c.List, storagev1alpha1.ConditionAccessible) != nil:
		c.True(storagev1alpha1.ConditionAccessible)
	}
}
