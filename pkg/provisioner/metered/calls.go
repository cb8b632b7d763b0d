package metered

import (
	"context"

	"github.com/moor-storage/moor/pkg/provisioner"
)

type volumes decorator[provisioner.Volumes]

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

type attachments decorator[provisioner.Attachments]

func (a attachments) Attach(ctx context.Context, spec provisioner.AttachSpec) (_ provisioner.Attachment, err error) {
	defer a.end("Attach", &err)()
	return a.next.Attach(ctx, spec)
}

func (a attachments) Detach(ctx context.Context, volumeID, node string) (err error) {
	defer a.end("Detach", &err)()
	return a.next.Detach(ctx, volumeID, node)
}

type host decorator[provisioner.Host]

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

type dpu decorator[provisioner.DPU]

func (d dpu) Expose(ctx context.Context, spec provisioner.ExposeSpec) (_ provisioner.Exposure, err error) {
	defer d.end("Expose", &err)()
	return d.next.Expose(ctx, spec)
}

func (d dpu) Withdraw(ctx context.Context, deviceName string) (err error) {
	defer d.end("Withdraw", &err)()
	return d.next.Withdraw(ctx, deviceName)
}

func (d dpu) Discard(ctx context.Context, deviceName, pciAddress string) (err error) {
	defer d.end("Discard", &err)()
	return d.next.Discard(ctx, deviceName, pciAddress)
}

func (d dpu) Tidy(ctx context.Context) (_, _ int, err error) {
	defer d.end("Tidy", &err)()
	return d.next.Tidy(ctx)
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

func (d dpu) Paths(ctx context.Context, devices []string) (_ []provisioner.Path, err error) {
	defer d.end("Paths", &err)()
	return d.next.Paths(ctx, devices)
}

func (d dpu) ProbePath(ctx context.Context, device string) (err error) {
	defer d.end("ProbePath", &err)()
	return d.next.ProbePath(ctx, device)
}

type copies decorator[provisioner.Copies]

func (c copies) CreateFrom(ctx context.Context, spec provisioner.VolumeSpec, source provisioner.Source) (_ provisioner.Volume, err error) {
	defer c.end("CreateFrom", &err)()
	return c.next.CreateFrom(ctx, spec, source)
}

type snapshots decorator[provisioner.Snapshots]

func (s snapshots) Create(ctx context.Context, spec provisioner.SnapshotSpec) (_ provisioner.Snapshot, err error) {
	defer s.end("Create", &err)()
	return s.next.Create(ctx, spec)
}

func (s snapshots) Delete(ctx context.Context, id string) (err error) {
	defer s.end("Delete", &err)()
	return s.next.Delete(ctx, id)
}

func (s snapshots) Get(ctx context.Context, id string) (_ provisioner.Snapshot, err error) {
	defer s.end("Get", &err)()
	return s.next.Get(ctx, id)
}

func (s snapshots) List(ctx context.Context, filter provisioner.SnapshotFilter, page provisioner.Page) (_ []provisioner.Snapshot, _ string, err error) {
	defer s.end("List", &err)()
	return s.next.List(ctx, filter, page)
}

type blocks decorator[provisioner.Blocks]

func (b blocks) Allocated(ctx context.Context, snapshotID string, from int64, found func(provisioner.Range) error) (err error) {
	defer b.end("Allocated", &err)()
	return b.next.Allocated(ctx, snapshotID, from, found)
}

func (b blocks) Changed(ctx context.Context, baseID, targetID string, from int64, found func(provisioner.Range) error) (err error) {
	defer b.end("Changed", &err)()
	return b.next.Changed(ctx, baseID, targetID, from, found)
}

type groups decorator[provisioner.Groups]

func (g groups) Create(ctx context.Context, spec provisioner.GroupSpec) (_ provisioner.Group, err error) {
	defer g.end("Create", &err)()
	return g.next.Create(ctx, spec)
}

func (g groups) Delete(ctx context.Context, id string) (err error) {
	defer g.end("Delete", &err)()
	return g.next.Delete(ctx, id)
}

func (g groups) Get(ctx context.Context, id string) (_ provisioner.Group, err error) {
	defer g.end("Get", &err)()
	return g.next.Get(ctx, id)
}

type inventory decorator[provisioner.Inventory]

func (i inventory) List(ctx context.Context, page provisioner.Page) (_ []provisioner.Entry, _ string, err error) {
	defer i.end("List", &err)()
	return i.next.List(ctx, page)
}

func (i inventory) Look(ctx context.Context, id string) (_ provisioner.Entry, err error) {
	defer i.end("Look", &err)()
	return i.next.Look(ctx, id)
}

type room decorator[provisioner.Room]

func (r room) Capacity(ctx context.Context, parameters map[string]string, from provisioner.Place) (_ provisioner.Capacity, err error) {
	defer r.end("Capacity", &err)()
	return r.next.Capacity(ctx, parameters, from)
}

type expansion decorator[provisioner.Expansion]

func (e expansion) Expand(ctx context.Context, id string, bytes, limit int64) (_ int64, err error) {
	defer e.end("Expand", &err)()
	return e.next.Expand(ctx, id, bytes, limit)
}

type change decorator[provisioner.Change]

func (c change) Modify(ctx context.Context, id string, parameters map[string]string) (err error) {
	defer c.end("Modify", &err)()
	return c.next.Modify(ctx, id, parameters)
}

type health decorator[provisioner.Health]

func (h health) Get(ctx context.Context, id string) (_ provisioner.VolumeHealth, err error) {
	defer h.end("Get", &err)()
	return h.next.Get(ctx, id)
}

func (h health) List(ctx context.Context, page provisioner.Page) (_ []provisioner.VolumeHealth, _ string, err error) {
	defer h.end("List", &err)()
	return h.next.List(ctx, page)
}

type rescan decorator[provisioner.Rescan]

func (r rescan) Rescan(ctx context.Context, volumeID string, atLeast int64) (_ int64, err error) {
	defer r.end("Rescan", &err)()
	return r.next.Rescan(ctx, volumeID, atLeast)
}

type fencing decorator[provisioner.Fencing]

func (f fencing) Fence(ctx context.Context, volumeID string, epoch int64) (err error) {
	defer f.end("Fence", &err)()
	return f.next.Fence(ctx, volumeID, epoch)
}

type epochs decorator[provisioner.Epochs]

func (e epochs) OpenAtEpoch(ctx context.Context, volumeID, deviceName string, epoch int64) (err error) {
	defer e.end("OpenAtEpoch", &err)()
	return e.next.OpenAtEpoch(ctx, volumeID, deviceName, epoch)
}
