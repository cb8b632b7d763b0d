package dpu

import (
	"context"
	"errors"
	"fmt"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// shower has SNAP show a device to the host, or make it ready, if it has the right
// to at this very moment.
type shower struct {
	right
	maker maker
}

// showReady shows what stands ready, without the vendor: it has done its part, and
// the pass ends (shown). Nothing that stands ready is no error; the phases after
// it make everything. So do they with a device that has to grow first, or that the
// vendor has to open under the new epoch.
func (s shower) showReady(ctx context.Context, p *pass) (shown bool, err error) {
	if p.refused != "" || !p.dpu.PreEmulated || p.volume == nil || p.small() || p.behind() {
		return false, nil
	}
	all, _ := s.exposures.List(ctx)
	name := all.Service[p.dpu.DeviceName]
	if !all.Exposures[p.dpu.DeviceName].Hidden || !p.onRecord(name) {
		return false, nil
	}
	if err := s.confirm(ctx, p); err != nil || p.refused != "" {
		return false, err
	}
	e, err := s.expose(ctx, p, s.exposures.Service(name))
	if err != nil {
		return false, fmt.Errorf("show the replica: SNAP service %s on DPU %s: %w", name, s.attachments.Node, err)
	}
	p.observe(e)
	return true, nil
}

// behind reports whether the device is to be opened under a later epoch than it is.
func (p *pass) behind() bool {
	return p.dpu.OpenEpoch != nil && !p.replica() && *p.dpu.OpenEpoch < p.attachment.Spec.Epoch
}

// show exposes the device, if that is allowed at this very moment; that of a
// replica it makes ready.
func (s shower) show(ctx context.Context, p *pass) error {
	if p.refused != "" && !p.keepsReady() {
		return p.waitForRight()
	}
	if err := s.record(ctx, p); err != nil {
		return err
	}
	if err := s.confirm(ctx, p); err != nil {
		return err
	}
	if p.refused != "" && !p.keepsReady() {
		return p.waitForRight()
	}
	service := s.exposures.Service(p.plugin.Service)
	e, err := s.expose(ctx, p, service)
	if errors.Is(err, provisioner.ErrNotFound) {
		// The plugin knows the device, SNAP does not: it has restarted.
		if err := s.maker.create(ctx, p); err != nil {
			return err
		}
		if err := s.maker.open(ctx, p); err != nil {
			return err
		}
		e, err = s.expose(ctx, p, service)
	}
	if err != nil {
		p.dpu.Exhausted = s.exhausted(ctx, p, err)
		return fmt.Errorf("SNAP service %s on DPU %s: %w", p.plugin.Service, s.attachments.Node, err)
	}
	p.observe(e)
	return nil
}

// record puts on record by which service the device will be shown. What is new there
// has to be written before the device is shown: the pass ends, the next one goes on.
// Another service than the one on record shows it only after that one has confirmed
// that it does not.
func (s shower) record(ctx context.Context, p *pass) error {
	service := p.plugin.Service
	now := s.exposures.Incarnation(service)
	if now == "" {
		return fmt.Errorf("SNAP service %s on DPU %s, which is to show device %s, has no socket: is its pod running? %w",
			service, s.attachments.Node, p.dpu.DeviceName, provisioner.ErrUnavailable)
	}
	if p.onRecord(service) {
		p.ended(&p.dpu, p.leftBy(now))
		if p.dpu.Incarnation == now {
			return nil
		}
		p.kept(now)
		p.dpu.Incarnation = now
		return p.outdated()
	}
	undrained := p.dpu.Incarnation
	if was := p.dpu.Provider; was != "" && was != service {
		var err error
		if undrained, err = s.exposures.During(ctx, &p.dpu, func() error { return s.exposures.Withdraw(ctx, p.dpu.DeviceName) }); err != nil {
			return fmt.Errorf("device %s is of SNAP service %s now and was of %s, which has to let go of it: %w", p.dpu.DeviceName, service, was, err)
		}
		p.withdrawn()
		p.dpu.KeptEpoch = nil
	}
	p.ended(&p.dpu, undrained)
	p.dpu.Provider, p.dpu.Incarnation = service, now
	return p.outdated()
}

// exhausted reports whether the failure to show a device is one that no wait
// ends. What cannot be found out is waited for.
func (s shower) exhausted(ctx context.Context, p *pass, failure error) bool {
	if !errors.Is(failure, provisioner.ErrExhausted) {
		return false
	}
	counts, err := s.exposures.Service(p.plugin.Service).Functions(ctx)
	if err != nil {
		return false
	}
	all, err := s.attachments.Cached(ctx)
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
