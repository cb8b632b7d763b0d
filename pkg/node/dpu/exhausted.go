package dpu

import (
	"context"
	"errors"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// exhausted reports whether the failure to show a device is one that nobody need
// wait for. What cannot be found out is waited for.
func (r *Reconciler) exhausted(ctx context.Context, p *pass, failure error) bool {
	if !errors.Is(failure, provisioner.ErrExhausted) {
		return false
	}
	counts, err := r.o.Providers.get(p.vendor.provider).Functions(ctx)
	if err != nil {
		return false
	}
	all, err := r.attachments(ctx)
	return err == nil && noneLeft(p.attachment.Spec.FunctionTypeConfig, counts, all)
}

// noneLeft reports whether the functions of the kind asked for are all taken. One
// that cannot be had although it is free is another's trouble, such as memory that
// SNAP lacks. Nor have they run out while an attachment of that kind goes, whose
// function comes free; or where there are none at all, as in a SNAP service that
// starts.
func noneLeft(want storagev1alpha1.FunctionTypeConfig, counts []provisioner.FunctionCount, all []storagev1alpha1.VolumeAttachment) bool {
	for i := range all {
		a := &all[i]
		if !a.DeletionTimestamp.IsZero() && a.Status.DPU.PCIDeviceAddress != "" && a.Spec.FunctionTypeConfig == want {
			return false
		}
	}
	kind := provisioner.FunctionType(want.FunctionType)
	if want.HotplugFunction {
		kind = provisioner.Hotplug
	}
	for _, c := range counts {
		if c.Type == kind {
			return c.Total > 0 && c.Free <= 0
		}
	}
	return false
}
