package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
)

// changer is provisioner.Change.
type changer struct{ *Volumes }

// Change changes the mutable parameters of volumes.
func (v *Volumes) Change() provisioner.Change { return changer{v} }

// Modify has the DPUVolume ask for the parameters, beside those that are in
// effect, and waits until the vendor has put them into effect.
func (c changer) Modify(ctx context.Context, id string, parameters map[string]string) error {
	if err := c.modify(ctx, id, parameters); err != nil {
		return fmt.Errorf("modify volume %s: %w", id, err)
	}
	return nil
}

func (c changer) modify(ctx context.Context, id string, parameters map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, c.options.Patience(ctx))
	defer cancel()
	volume, err := c.bound(ctx, id)
	if err != nil {
		return err
	}
	// Not what was asked for last: that may be what the vendor refused.
	want := maps.Clone(inEffect(volume))
	if want == nil {
		want = map[string]string{}
	}
	maps.Copy(want, parameters)
	if _, err := kube.Patch(ctx, c.options.Client, volume, func(v *storagev1alpha1.DPUVolume) { v.Spec.MutableParameters = want }); err != nil {
		return request.Refused("ask for it", err)
	}
	return c.modified(ctx, volume, want)
}

// modified waits until the vendor has put the parameters into effect.
func (v *Volumes) modified(ctx context.Context, volume *storagev1alpha1.DPUVolume, want map[string]string) error {
	_, err := v.changed(ctx, volume, storagev1alpha1.ConditionModified, provisioner.ErrInvalid, func(v *storagev1alpha1.DPUVolume) bool {
		return maps.Equal(inEffect(v), want)
	})
	return err
}

// awaitMutable waits until a volume that was made has the mutable parameters that it
// was made with, unless it was changed since. One for which the vendor refuses
// them is taken back, within whole: no caller was told of it yet.
func (v *Volumes) awaitMutable(ctx, whole context.Context, made *storagev1alpha1.DPUVolume, want map[string]string) error {
	if len(want) == 0 || !maps.Equal(made.Spec.MutableParameters, want) {
		return nil
	}
	err := v.modified(ctx, made, want)
	if !errors.Is(err, provisioner.ErrInvalid) || inEffect(made) != nil {
		return err
	}
	if failed := request.TakeBack(whole, v.options, v.awaiter, made); failed != nil {
		return fmt.Errorf("take the volume back: %w: %w; the vendor refuses it: %s", provisioner.ErrUnavailable, failed, err.Error())
	}
	return err
}

// inEffect are the mutable parameters that the vendor has put into effect.
func inEffect(v *storagev1alpha1.DPUVolume) map[string]string {
	if v.Status.State == nil || v.Status.State.VolumeInfo == nil {
		return nil
	}
	return v.Status.State.VolumeInfo.MutableParameters
}
