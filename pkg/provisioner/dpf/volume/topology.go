package volume

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
)

// inaccessible is ErrExhausted for a volume of which it was said that it cannot
// be had where it is to be reached.
func inaccessible(v *storagev1alpha1.DPUVolume) error {
	if !meta.IsStatusConditionFalse(v.Status.Conditions, storagev1alpha1.ConditionAccessible) || v.Status.Phase == storagev1alpha1.DPUVolumeBound {
		return nil
	}
	return fmt.Errorf("%w: %s", provisioner.ErrExhausted, meta.FindStatusCondition(v.Status.Conditions, storagev1alpha1.ConditionAccessible).Message)
}

// unreachable takes a volume back that cannot be had where it is to be reached:
// no node has it, since it was never bound. If it is not gone in time, the
// outcome stays uncertain.
func unreachable(ctx context.Context, o request.Options, awaiter *kube.Awaiter[*storagev1alpha1.DPUVolume], v *storagev1alpha1.DPUVolume, cause error) error {
	if err := request.TakeBack(ctx, o, awaiter, v); err != nil {
		return fmt.Errorf("%w: it is being removed: %s", provisioner.ErrBusy, cause.Error())
	}
	return cause
}

// reached reports whether what is reached from some places is, or may be, from
// one of those wanted.
func reached(from, wanted []provisioner.Place) bool {
	return len(wanted) == 0 || slices.ContainsFunc(wanted, func(at provisioner.Place) bool {
		return provisioner.ReachFrom(at, from) != provisioner.Elsewhere
	})
}
