// Package ephemeral makes the reference vendor's volumes for single pods, which go with
// them. Whether a volume is one stands in its record: no other is removed.
package ephemeral

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// Volumes implements provisioner.Ephemeral on a machine that has the storage itself.
type Volumes struct {
	Storage *localvendor.Storage
	Host    provisioner.Host
	// TargetDir is the directory of the storage, Node the name of this machine in it.
	TargetDir, Node string
}

// Make makes the volume, attaches it to this machine and opens it. See
// provisioner.Ephemeral.
func (v Volumes) Make(ctx context.Context, spec provisioner.VolumeSpec) (provisioner.Device, error) {
	d, err := v.make(ctx, spec)
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("make ephemeral volume %q: %w", spec.Name, err)
	}
	return d, nil
}

func (v Volumes) make(ctx context.Context, spec provisioner.VolumeSpec) (provisioner.Device, error) {
	if spec.Mode != provisioner.Filesystem {
		return provisioner.Device{}, fmt.Errorf("it is a directory, ask for volumeMode Filesystem: %w", provisioner.ErrInvalid)
	}
	if spec.Parameters = maps.Clone(spec.Parameters); spec.Parameters == nil {
		spec.Parameters = map[string]string{}
	}
	spec.Parameters[records.ParameterKind] = records.KindDirectory
	made, err := v.Storage.CreateEphemeral(ctx, spec)
	if err != nil {
		return provisioner.Device{}, err
	}
	d, err := v.open(ctx, made)
	if err == nil || provisioner.Uncertain(err) {
		return d, err
	}
	if left := v.Remove(ctx, spec.Name); left != nil {
		err = fmt.Errorf("%v; and remove it: %v: %w", err, left, provisioner.ErrBusy)
	}
	return provisioner.Device{}, err
}

func (v Volumes) open(ctx context.Context, made provisioner.Volume) (provisioner.Device, error) {
	a, err := v.Storage.Attach(ctx, provisioner.AttachSpec{VolumeID: made.ID, Node: v.Node, AccessModes: made.AccessModes, VolumeContext: made.Context})
	if err != nil {
		return provisioner.Device{}, err
	}
	return v.Host.Open(ctx, provisioner.OpenSpec{
		VolumeID: made.ID, Mode: provisioner.Filesystem, PublishContext: a.PublishContext, VolumeContext: made.Context,
	})
}

// Remove closes, detaches and deletes the volume. One whose record is damaged is left
// alone: it may be a claim's, whose pods have to be able to end. See
// provisioner.Ephemeral.
func (v Volumes) Remove(ctx context.Context, name string) error {
	id := records.ID(name)
	have, found, err := records.Load(v.TargetDir, id)
	if errors.Is(err, provisioner.ErrPrecondition) {
		return nil
	}
	if err != nil || !found || !have.Ephemeral || have.Name != name {
		return err
	}
	if err := v.Host.Close(ctx, id, id); err != nil {
		return fmt.Errorf("remove ephemeral volume %q: %w", name, err)
	}
	if err := v.Storage.Detach(ctx, id, v.Node); err != nil {
		return fmt.Errorf("remove ephemeral volume %q: %w", name, err)
	}
	return v.Storage.Delete(ctx, id)
}
