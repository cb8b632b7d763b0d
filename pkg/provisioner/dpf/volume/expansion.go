package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
)

// expander is provisioner.Expansion.
type expander struct{ *Volumes }

// Expansion makes volumes larger.
func (v *Volumes) Expansion() provisioner.Expansion { return expander{v} }

// Expand has the DPUVolume ask for the size and waits until the vendor has
// given it. Every DPU that has the volume sees it by itself, its host after
// Rescan there.
func (e expander) Expand(ctx context.Context, id string, bytes, limit int64) (int64, error) {
	size, err := e.expand(ctx, id, bytes, limit)
	if err != nil {
		return 0, fmt.Errorf("expand volume %s to %d bytes: %w", id, bytes, err)
	}
	return size, nil
}

func (e expander) expand(ctx context.Context, id string, bytes, limit int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, e.options.Patience(ctx))
	defer cancel()
	if bytes < 0 || limit < 0 || limit > 0 && limit < bytes {
		return 0, fmt.Errorf("%w: at least %d and at most %d bytes are asked for", provisioner.ErrOutOfRange, bytes, limit)
	}
	volume, err := e.bound(ctx, id)
	if err != nil {
		return 0, err
	}
	have := sizeOf(volume)
	switch {
	case limit > 0 && have > limit:
		return 0, fmt.Errorf("%w: it has %d bytes, more than the limit of %d, and cannot shrink", provisioner.ErrOutOfRange, have, limit)
	case have >= bytes:
		return have, nil
	}
	if _, err := kube.Patch(ctx, e.options.Client, volume, func(v *storagev1alpha1.DPUVolume) { askSize(v, bytes, limit) }); err != nil {
		return 0, request.Refused("ask for it", err)
	}
	last, err := e.changed(ctx, volume, storagev1alpha1.ConditionExpanded, provisioner.ErrOutOfRange, func(v *storagev1alpha1.DPUVolume) bool {
		return sizeOf(v) >= bytes
	})
	return sizeOf(last), err
}

// askSize has the volume ask for bytes. The limit with which it was made was for
// the size it had then: what grows past it by request raises it.
func askSize(v *storagev1alpha1.DPUVolume, bytes, limit int64) {
	v.Spec.Resources.Requests[corev1.ResourceStorage] = *resource.NewQuantity(bytes, resource.BinarySI)
	if most, limited := v.Spec.Resources.Limits[corev1.ResourceStorage]; limited && most.Value() < bytes {
		v.Spec.Resources.Limits[corev1.ResourceStorage] = *resource.NewQuantity(max(bytes, limit), resource.BinarySI)
	}
}

// sizeOf is what the vendor gave, in bytes; 0 if it has given nothing yet.
func sizeOf(v *storagev1alpha1.DPUVolume) int64 {
	if v.Status.State == nil || v.Status.State.VolumeInfo == nil {
		return 0
	}
	size := v.Status.State.VolumeInfo.Capacity[corev1.ResourceStorage]
	return size.Value()
}

// bound reads a volume that can be changed: one that the vendor has made.
func (v *Volumes) bound(ctx context.Context, id string) (*storagev1alpha1.DPUVolume, error) {
	volume := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, v.options.Client, v.key(id), volume)
	switch {
	case err != nil:
		return nil, request.Refused("read it", err)
	case !found:
		return nil, fmt.Errorf("%w in namespace %s", provisioner.ErrNotFound, v.options.Namespace)
	case !volume.DeletionTimestamp.IsZero():
		return nil, fmt.Errorf("%w: it is being deleted", provisioner.ErrBusy)
	case volume.Status.Phase != storagev1alpha1.DPUVolumeBound || sizeOf(volume) == 0:
		return nil, fmt.Errorf("%w: the vendor has not made it yet", provisioner.ErrUnavailable)
	}
	return volume, nil
}

// changed waits until a volume that was asked to change has done so. What the
// vendor refuses for good is an error of kind final, in the words of the
// condition.
func (v *Volumes) changed(ctx context.Context, asked *storagev1alpha1.DPUVolume, condition string, final error,
	done func(*storagev1alpha1.DPUVolume) bool,
) (*storagev1alpha1.DPUVolume, error) {
	var words string
	last, err := v.awaiter.Await(ctx, v.key(asked.Name), func(o *storagev1alpha1.DPUVolume, found bool) (bool, error) {
		switch {
		case !found || o.UID != asked.UID || !o.DeletionTimestamp.IsZero():
			return false, fmt.Errorf("%w: it was deleted meanwhile", provisioner.ErrNotFound)
		case done(o):
			return true, nil
		}
		told := meta.FindStatusCondition(o.Status.Conditions, condition)
		if told == nil || told.ObservedGeneration < asked.Generation {
			return false, nil
		}
		if words = told.Message; told.Reason == storagev1alpha1.ReasonFailure {
			return false, fmt.Errorf("%w: %s", final, words)
		}
		return false, nil
	})
	if err != nil && ctx.Err() != nil && words != "" {
		err = fmt.Errorf("%w: %s", err, words)
	}
	return last, err
}
