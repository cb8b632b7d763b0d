package metered

import (
	"context"

	"github.com/moor-storage/moor/pkg/provisioner"
)

type volumes struct {
	meter
	next provisioner.Volumes
}

func (v volumes) Create(ctx context.Context, spec provisioner.VolumeSpec) (_ provisioner.Volume, err error) {
	defer v.end("Create", &err)()
	return v.next.Create(ctx, spec)
}

func (v volumes) Delete(ctx context.Context, id string) (err error) {
	defer v.end("Delete", &err)()
	return v.next.Delete(ctx, id)
}

func (v volumes) Get(ctx context.Context, id string) (_ provisioner.Volume, err error) {
	defer v.end("Get", &err)()
	return v.next.Get(ctx, id)
}

type attachments struct {
	meter
	next provisioner.Attachments
}

func (a attachments) Attach(ctx context.Context, spec provisioner.AttachSpec) (_ provisioner.Attachment, err error) {
	defer a.end("Attach", &err)()
	return a.next.Attach(ctx, spec)
}

func (a attachments) Detach(ctx context.Context, volumeID, node string) (err error) {
	defer a.end("Detach", &err)()
	return a.next.Detach(ctx, volumeID, node)
}

type host struct {
	meter
	next provisioner.Host
}

func (h host) Open(ctx context.Context, spec provisioner.OpenSpec) (_ provisioner.Device, err error) {
	defer h.end("Open", &err)()
	return h.next.Open(ctx, spec)
}

func (h host) Close(ctx context.Context, volumeID, deviceName string) (err error) {
	defer h.end("Close", &err)()
	return h.next.Close(ctx, volumeID, deviceName)
}

func (h host) Lookup(ctx context.Context, volumeID string) (_ provisioner.Device, err error) {
	defer h.end("Lookup", &err)()
	return h.next.Lookup(ctx, volumeID)
}

func (h host) List(ctx context.Context) (_ []provisioner.Device, err error) {
	defer h.end("List", &err)()
	return h.next.List(ctx)
}

type dpu struct {
	meter
	next provisioner.DPU
}

func (d dpu) Expose(ctx context.Context, spec provisioner.ExposeSpec) (_ provisioner.Exposure, err error) {
	defer d.end("Expose", &err)()
	return d.next.Expose(ctx, spec)
}

func (d dpu) Withdraw(ctx context.Context, deviceName string) (err error) {
	defer d.end("Withdraw", &err)()
	return d.next.Withdraw(ctx, deviceName)
}

func (d dpu) List(ctx context.Context) (_ []provisioner.Exposure, err error) {
	defer d.end("List", &err)()
	return d.next.List(ctx)
}

func (d dpu) Functions(ctx context.Context) (_ []provisioner.FunctionCount, err error) {
	defer d.end("Functions", &err)()
	return d.next.Functions(ctx)
}

func (d dpu) Size(ctx context.Context, device string) (_ int64, err error) {
	defer d.end("Size", &err)()
	return d.next.Size(ctx, device)
}
