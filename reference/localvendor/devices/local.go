package devices

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor"
	"github.com/moor-storage/moor/reference/localvendor/filesystems"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// Local is a machine with both sorts of volumes: devices that a target serves, and
// file systems in images. It implements provisioner.Host, provisioner.Rescan and
// localvendor.DataPath.
type Local struct {
	Devices     *Machine
	Filesystems *filesystems.Host
	// Target is the data path of the devices.
	Target localvendor.DataPath
}

// local is what both sorts have.
type local interface {
	provisioner.Host
	provisioner.Rescan
}

// Open opens a volume as what it was attached as.
func (l Local) Open(ctx context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	if spec.PublishContext[records.ContextFilesystem] != "" {
		return l.Filesystems.Open(ctx, spec)
	}
	return l.Devices.Open(ctx, spec)
}

// Close closes a volume of either sort.
func (l Local) Close(ctx context.Context, volumeID, name string) error {
	return errors.Join(l.Filesystems.Close(ctx, volumeID, name), l.Devices.Close(ctx, volumeID, name))
}

// Lookup returns the open device of a volume.
func (l Local) Lookup(ctx context.Context, volumeID string) (provisioner.Device, error) {
	host, err := l.of(ctx, volumeID)
	if err != nil {
		return provisioner.Device{}, err
	}
	return host.Lookup(ctx, volumeID)
}

// of is where a volume is open, or was.
func (l Local) of(ctx context.Context, volumeID string) (local, error) {
	_, err := l.Filesystems.Lookup(ctx, volumeID)
	if errors.Is(err, provisioner.ErrNotFound) {
		return l.Devices, nil
	}
	return l.Filesystems, err
}

// List returns every open device.
func (l Local) List(ctx context.Context) ([]provisioner.Device, error) {
	directories, err := l.Filesystems.List(ctx)
	if err != nil {
		return nil, err
	}
	devices, err := l.Devices.List(ctx)
	all := slices.Concat(directories, devices)
	slices.SortFunc(all, func(a, b provisioner.Device) int { return cmp.Compare(a.VolumeID, b.VolumeID) })
	return all, err
}

// Rescan gives an open volume the size that it has now.
func (l Local) Rescan(ctx context.Context, volumeID string, atLeast int64) (int64, error) {
	host, err := l.of(ctx, volumeID)
	if err != nil {
		return 0, err
	}
	return host.Rescan(ctx, volumeID, atLeast)
}

// Pause makes the changes to volumes wait while during runs: those of devices at the
// target, those of file systems where they are mounted.
func (l Local) Pause(ctx context.Context, volumeIDs []string, during func(context.Context) error) error {
	var served, mounted []string
	for _, id := range volumeIDs {
		if _, err := l.Filesystems.Lookup(ctx, id); err == nil {
			mounted = append(mounted, id)
		} else if errors.Is(err, provisioner.ErrNotFound) {
			served = append(served, id)
		} else {
			return err
		}
	}
	standstill := func(ctx context.Context) error { return l.Filesystems.Standstill(ctx, mounted, during) }
	if len(served) == 0 {
		return standstill(ctx)
	}
	return l.Target.Pause(ctx, served, standstill)
}

// Adjust has the limits of a volume take effect at the target.
func (l Local) Adjust(ctx context.Context, volumeID string) error {
	return l.Target.Adjust(ctx, volumeID)
}
