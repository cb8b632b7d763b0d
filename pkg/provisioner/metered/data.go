package metered

import (
	"context"

	"github.com/moor-storage/moor/pkg/provisioner"
)

type copies struct {
	meter
	next provisioner.Copies
}

func (c copies) CreateFrom(ctx context.Context, spec provisioner.VolumeSpec, source provisioner.Source) (_ provisioner.Volume, err error) {
	defer c.end("CreateFrom", &err)()
	return c.next.CreateFrom(ctx, spec, source)
}

type snapshots struct {
	meter
	next provisioner.Snapshots
}

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

type groups struct {
	meter
	next provisioner.Groups
}

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

type inventory struct {
	meter
	next provisioner.Inventory
}

func (i inventory) List(ctx context.Context, page provisioner.Page) (_ []provisioner.Entry, _ string, err error) {
	defer i.end("List", &err)()
	return i.next.List(ctx, page)
}

func (i inventory) Look(ctx context.Context, id string) (_ provisioner.Entry, err error) {
	defer i.end("Look", &err)()
	return i.next.Look(ctx, id)
}

type room struct {
	meter
	next provisioner.Room
}

func (r room) Capacity(ctx context.Context, parameters map[string]string, from provisioner.Place) (_ provisioner.Capacity, err error) {
	defer r.end("Capacity", &err)()
	return r.next.Capacity(ctx, parameters, from)
}

type expansion struct {
	meter
	next provisioner.Expansion
}

func (e expansion) Expand(ctx context.Context, id string, bytes, limit int64) (_ int64, err error) {
	defer e.end("Expand", &err)()
	return e.next.Expand(ctx, id, bytes, limit)
}

type change struct {
	meter
	next provisioner.Change
}

func (c change) Modify(ctx context.Context, id string, parameters map[string]string) (err error) {
	defer c.end("Modify", &err)()
	return c.next.Modify(ctx, id, parameters)
}

type health struct {
	meter
	next provisioner.Health
}

func (h health) Get(ctx context.Context, id string) (_ provisioner.VolumeHealth, err error) {
	defer h.end("Get", &err)()
	return h.next.Get(ctx, id)
}

func (h health) List(ctx context.Context, page provisioner.Page) (_ []provisioner.VolumeHealth, _ string, err error) {
	defer h.end("List", &err)()
	return h.next.List(ctx, page)
}

type rescan struct {
	meter
	next provisioner.Rescan
}

func (r rescan) Rescan(ctx context.Context, volumeID string, atLeast int64) (_ int64, err error) {
	defer r.end("Rescan", &err)()
	return r.next.Rescan(ctx, volumeID, atLeast)
}
