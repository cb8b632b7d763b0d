package attachments

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// TestRank: each attachment goes before the one that follows it, and the right to
// write counts more than all else.
func TestRank(t *testing.T) {
	attachment := func(name string, age time.Duration, change func(*storagev1alpha1.VolumeAttachment)) *storagev1alpha1.VolumeAttachment {
		a := &storagev1alpha1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(0, 0).Add(-age))}}
		change(a)
		return a
	}
	same := func(*storagev1alpha1.VolumeAttachment) {}
	replica := func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Role = storagev1alpha1.RoleReplica }
	inOrder := []*storagev1alpha1.VolumeAttachment{
		attachment("f", 0, func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 1; replica(a) }),
		attachment("e", 0, func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.DeviceName = "d" }),
		attachment("d", time.Hour, same),
		attachment("b", 0, same),
		attachment("c", 0, same),
		attachment("a", time.Hour, func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.DeviceName = "d"; replica(a) }),
		attachment("a", 2*time.Hour, replica),
	}
	for i, a := range inOrder {
		for j, b := range inOrder {
			if got := rank(a, b); (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("attachment %d against %d: got %d", i, j, got)
			}
		}
	}
}
