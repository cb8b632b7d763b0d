package dpu

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// small reports whether the device has less than the volume, as far as is known.
func (p *pass) small() bool {
	want, have := p.attachment.Spec.Capacity, p.dpu.Capacity
	return want != nil && (have == nil || have.Cmp(*want) < 0)
}

// grow lets the device have the size that the volume has now; the namespace over
// it follows. It comes before the device is shown: what is smaller than its
// volume may lack the end of a file system that grew elsewhere. A device that is
// shown stays shown meanwhile, and if it fails.
func (r *Reconciler) grow(ctx context.Context, p *pass) error {
	if !p.small() || volumeMode(p.volume) != provisioner.Block {
		return nil
	}
	want := p.attachment.Spec.Capacity.Value()
	size, err := r.deviceSize(ctx, p)
	if errors.Is(err, provisioner.ErrNotFound) || err == nil && size < want {
		// Repeated, CreateDevice lets the device have the volume's size.
		if err := r.createDevice(ctx, p); err != nil || p.stop {
			return err
		}
		size, err = r.deviceSize(ctx, p)
	}
	if err != nil {
		return err
	}
	had := p.dpu.Capacity
	p.dpu.Capacity = resource.NewQuantity(size, resource.BinarySI)
	if size < want {
		return fmt.Errorf("device %s on DPU %s has %d bytes and its volume %d: vendor plugin %s does not let it grow when CreateDevice is repeated: %w",
			p.dpu.DeviceName, r.o.Node, size, want, p.vendor.name, provisioner.ErrUnavailable)
	}
	if had != nil {
		ctrl.LoggerFrom(ctx).Info("the device grew", "device", p.dpu.DeviceName, "bytes", size)
	}
	return nil
}

func (r *Reconciler) deviceSize(ctx context.Context, p *pass) (int64, error) {
	size, err := r.o.Providers.get(p.vendor.provider).Size(ctx, p.dpu.DeviceName)
	if err != nil {
		return 0, fmt.Errorf("SNAP service %s on DPU %s: %w", p.vendor.provider, r.o.Node, err)
	}
	return size, nil
}
