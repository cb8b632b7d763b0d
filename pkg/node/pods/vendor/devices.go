package vendor

import (
	"context"
	"fmt"
	"slices"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/remote"
)

// SNAP is what the Host needs of the SNAP service; *snaprpc.Client has it.
type SNAP interface {
	BdevGetBdevs(ctx context.Context, name string) ([]snaprpc.Bdev, error)
	BdevAioCreate(ctx context.Context, spec snaprpc.AIOSpec) (string, error)
	BdevAioDelete(ctx context.Context, name string) error
	FsdevGetFsdevs(ctx context.Context) ([]snaprpc.FSDev, error)
	FsdevAioCreate(ctx context.Context, name, rootPath string) error
	FsdevAioDelete(ctx context.Context, name string) error
}

// devices makes devices in SNAP, and removes them.
type devices struct{ SNAP }

// create makes the device over path, unless it is there.
func (s devices) create(ctx context.Context, d provisioner.Device, path string, readOnly bool) error {
	there, err := s.exists(ctx, d.Name, d.Mode)
	if err != nil || there {
		return err
	}
	if d.Mode == provisioner.Block {
		_, err = s.BdevAioCreate(ctx, snaprpc.AIOSpec{Name: d.Name, Filename: path, ReadOnly: readOnly})
	} else {
		err = s.FsdevAioCreate(ctx, d.Name, path)
	}
	if err != nil {
		return fmt.Errorf("make device %s over %s: %w", d.Name, path, remote.Kind(err))
	}
	return nil
}

// remove removes the device, of whatever mode it is; one that is not there is success.
func (s devices) remove(ctx context.Context, name string) error {
	for mode, remove := range map[provisioner.VolumeMode]func(context.Context, string) error{
		provisioner.Block: s.BdevAioDelete, provisioner.Filesystem: s.FsdevAioDelete,
	} {
		there, err := s.exists(ctx, name, mode)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		if err := remove(ctx, name); err != nil {
			return fmt.Errorf("remove device %s: %w", name, remote.Kind(err))
		}
	}
	return nil
}

func (s devices) exists(ctx context.Context, name string, mode provisioner.VolumeMode) (bool, error) {
	var there bool
	var err error
	if mode == provisioner.Block {
		_, err = s.BdevGetBdevs(ctx, name)
		if there = err == nil; snaprpc.IsNotFound(err) {
			err = nil
		}
	} else {
		var all []snaprpc.FSDev
		all, err = s.FsdevGetFsdevs(ctx)
		there = slices.ContainsFunc(all, func(d snaprpc.FSDev) bool { return d.Name == name })
	}
	if err != nil {
		return false, fmt.Errorf("look for device %s: %w", name, remote.Kind(err))
	}
	return there, nil
}
