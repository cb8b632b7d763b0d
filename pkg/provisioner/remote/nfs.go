package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/moor-storage/moor/internal/keylock"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// fsdevs is what NFS needs of the SNAP service; *snaprpc.Client has it.
type fsdevs interface {
	FsdevGetFsdevs(ctx context.Context) ([]snaprpc.FSDev, error)
	FsdevAioCreate(ctx context.Context, name, rootPath string) error
	FsdevAioDelete(ctx context.Context, name string) error
}

// NFS implements provisioner.Host on a DPU: the device of a volume is an fsdev
// over a mount of the share that its context names.
type NFS struct {
	rpc    fsdevs
	mounts Mounts
	dir    string
	owners owners
	locks  keylock.Locks
}

// NewNFS returns the Host over the SNAP service r. Shares are mounted in
// dir, which SNAP sees at the same path; stateDir, made when needed, remembers
// whose a device is. Both are this DPU's alone.
func NewNFS(r fsdevs, m Mounts, dir, stateDir string) *NFS {
	return &NFS{rpc: r, mounts: m, dir: filepath.Clean(dir), owners: ownersIn(stateDir)}
}

func (n *NFS) root(device string) string { return filepath.Join(n.dir, device) }

// Open mounts the volume's share and makes the fsdev over it. One over the bare
// directory, whose mount is gone, is made anew: what is written there would be
// lost. See provisioner.Host.
func (n *NFS) Open(ctx context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	if err := n.open(ctx, spec); err != nil {
		return provisioner.Device{}, fmt.Errorf("open volume %q: %w", spec.VolumeID, err)
	}
	return device(spec.VolumeID), nil
}

func device(volumeID string) provisioner.Device {
	return provisioner.Device{VolumeID: volumeID, Name: snaprpc.FSDevName(volumeID), Mode: provisioner.Filesystem}
}

func (n *NFS) open(ctx context.Context, spec provisioner.OpenSpec) error {
	switch {
	case spec.VolumeID == "":
		return fmt.Errorf("no volume is named: %w", provisioner.ErrInvalid)
	case spec.Mode == provisioner.Block:
		return fmt.Errorf("a share of NFS is a file system, ask for volumeMode Filesystem: %w", provisioner.ErrUnsupported)
	}
	want, err := shareOf(spec.VolumeContext)
	if err != nil {
		return err
	}
	name := snaprpc.FSDevName(spec.VolumeID)
	unlock, ok := n.locks.TryLock(name)
	if !ok {
		return errBusy
	}
	defer unlock()
	if err := n.mine(name, spec.VolumeID); err != nil {
		return err
	}
	there, err := n.exists(ctx, name)
	if err != nil {
		return err
	}
	have, err := n.mounts.At(n.root(name))
	if err != nil {
		return err
	}
	if there && have == want.source {
		return n.remember(spec.VolumeID, want.source)
	}
	if err := n.clear(ctx, name, there, have, want); err != nil {
		return err
	}
	return n.make(ctx, spec.VolumeID, want, have == want.source)
}

// clear removes what is in the way of a device: an fsdev over the bare directory,
// and a share that nothing uses.
func (n *NFS) clear(ctx context.Context, name string, there bool, have string, want share) error {
	switch {
	case there && have != "":
		return fmt.Errorf("its device %s is over %s, and not over %s: close it first: %w", name, have, want.source, provisioner.ErrExists)
	case there:
		if err := n.remove(ctx, name); err != nil {
			return fmt.Errorf("remove device %s, whose share is no longer mounted: detach the volume: %w", name, err)
		}
	case have != "" && have != want.source:
		return n.unmount(ctx, name)
	}
	return nil
}

// mine is ErrInUse if the device is another volume's, whose name has the same
// hash.
func (n *NFS) mine(name, volumeID string) error {
	r, err := n.owners.recall(name)
	if err == nil && r.Volume != "" && r.Volume != volumeID {
		err = fmt.Errorf("device %s is that of volume %s: %w", name, r.Volume, provisioner.ErrInUse)
	}
	return err
}

// remember records whose a device is, if that is not known.
func (n *NFS) remember(volumeID, source string) error {
	want := owner{Device: snaprpc.FSDevName(volumeID), Volume: volumeID, Reaches: source}
	if have, err := n.owners.recall(want.Device); err != nil || have == want {
		return err
	}
	return n.owners.remember(want)
}

// make mounts the share, unless it is, and makes the fsdev. A final error leaves
// nothing behind.
func (n *NFS) make(ctx context.Context, volumeID string, want share, mounted bool) error {
	name := snaprpc.FSDevName(volumeID)
	root := n.root(name)
	if err := n.remember(volumeID, want.source); err != nil {
		return err
	}
	if !mounted {
		if err := os.MkdirAll(root, 0o750); err != nil {
			return fmt.Errorf("make the mount point: %w", err)
		}
		if err := n.mounts.Mount(ctx, want.source, root, want.options); err != nil {
			if ctx.Err() == nil {
				err = fmt.Errorf("%w: %w", provisioner.ErrPrecondition, errors.Join(err, n.tidy(name)))
			}
			return fmt.Errorf("mount %s: %w", want.source, err)
		}
	}
	err := n.rpc.FsdevAioCreate(ctx, name, root)
	if err == nil {
		return nil
	}
	// Every refusal looks the same: whether it is there decides.
	if there, again := n.exists(ctx, name); again == nil && there {
		return nil
	}
	err = fmt.Errorf("make device %s over %s: %w", name, want.source, Kind(err))
	if provisioner.Uncertain(err) {
		return err
	}
	return errors.Join(err, n.unmount(ctx, name), n.owners.forget(name))
}

// tidy removes what stands for a share that is not mounted.
func (n *NFS) tidy(name string) error {
	// Not all below it: were a share mounted there, its data would go.
	if err := os.Remove(n.root(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the mount point: %w", err)
	}
	return n.owners.forget(name)
}

// exists reports whether the fsdev is there; one of that name over another
// directory is an error, never a device of this volume.
func (n *NFS) exists(ctx context.Context, name string) (bool, error) {
	all, err := n.list(ctx)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(all, func(d snaprpc.FSDev) bool { return d.Name == name })
	if i < 0 {
		return false, nil
	}
	if root := all[i].Module.RootPath; filepath.Clean(root) != n.root(name) {
		return false, fmt.Errorf("device %s is over %s, not over %s: %w", name, root, n.root(name), provisioner.ErrExists)
	}
	return true, nil
}

func (n *NFS) list(ctx context.Context) ([]snaprpc.FSDev, error) {
	all, err := n.rpc.FsdevGetFsdevs(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the file systems of the snap service: %w", Kind(err))
	}
	return all, nil
}

func (n *NFS) remove(ctx context.Context, name string) error {
	if err := n.rpc.FsdevAioDelete(ctx, name); err != nil && !snaprpc.IsNotFound(err) {
		return Kind(err)
	}
	return nil
}

// unmount unmounts the share and removes its mount point.
func (n *NFS) unmount(ctx context.Context, name string) error {
	root := n.root(name)
	have, err := n.mounts.At(root)
	if err != nil {
		return err
	}
	if have != "" {
		if err := n.mounts.Unmount(ctx, root); err != nil {
			return fmt.Errorf("unmount %s: %w: %w", have, provisioner.ErrUnavailable, err)
		}
	}
	if err := os.Remove(root); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the mount point: %w", err)
	}
	return nil
}

// Close removes the fsdev and unmounts the share, whose data stays. See
// provisioner.Host.
func (n *NFS) Close(ctx context.Context, volumeID, deviceName string) error {
	name := snaprpc.FSDevName(volumeID)
	if volumeID == "" || (deviceName != "" && deviceName != name) {
		return nil
	}
	if err := n.close(ctx, volumeID, name); err != nil {
		return fmt.Errorf("close device %s of volume %s: %w", name, volumeID, err)
	}
	return nil
}

func (n *NFS) close(ctx context.Context, volumeID, name string) error {
	unlock, ok := n.locks.TryLock(name)
	if !ok {
		return errBusy
	}
	defer unlock()
	there, err := n.has(ctx, volumeID, name)
	if errors.Is(err, errOthers) {
		return nil
	}
	if err != nil {
		return err
	}
	if there {
		if err := n.remove(ctx, name); err != nil {
			return err
		}
	}
	if err := n.unmount(ctx, name); err != nil {
		return err
	}
	return n.owners.forget(name)
}

// Lookup returns the device of a volume, or ErrNotFound, also if its share is no
// longer mounted. See provisioner.Host.
func (n *NFS) Lookup(ctx context.Context, volumeID string) (provisioner.Device, error) {
	there, err := n.works(ctx, volumeID)
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("look up the device of volume %s: %w", volumeID, err)
	}
	if !there {
		return provisioner.Device{}, fmt.Errorf("volume %s has no device here: %w", volumeID, provisioner.ErrNotFound)
	}
	return device(volumeID), nil
}

// works reports whether the volume's device is there, with its share below it.
func (n *NFS) works(ctx context.Context, volumeID string) (bool, error) {
	name := snaprpc.FSDevName(volumeID)
	there, err := n.has(ctx, volumeID, name)
	if err != nil || !there {
		return false, ignore(err, errOthers)
	}
	have, err := n.mounts.At(n.root(name))
	return have != "", err
}

// errOthers: the device of that name is not of this platform.
var errOthers = errors.New("the fsdev of another volume")

// has reports whether the volume's fsdev is there; errOthers if one of its name
// is not the volume's.
func (n *NFS) has(ctx context.Context, volumeID, name string) (bool, error) {
	err := n.mine(name, volumeID)
	if errors.Is(err, provisioner.ErrInUse) {
		return false, errOthers
	}
	if err != nil {
		return false, err
	}
	there, err := n.exists(ctx, name)
	if errors.Is(err, provisioner.ErrExists) {
		return false, errOthers
	}
	return there, err
}

func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}

// List returns the volumes' devices. See provisioner.Host.
func (n *NFS) List(ctx context.Context) ([]provisioner.Device, error) {
	all, err := n.list(ctx)
	if err != nil {
		return nil, err
	}
	var out []provisioner.Device
	for _, d := range all {
		if filepath.Clean(d.Module.RootPath) != n.root(d.Name) {
			continue
		}
		have, err := n.mounts.At(n.root(d.Name))
		if err != nil {
			return nil, err
		}
		volume, err := n.owners.of(d.Name, have)
		if err != nil {
			return nil, err
		}
		if have != "" && volume != "" {
			out = append(out, device(volume))
		}
	}
	slices.SortFunc(out, func(a, b provisioner.Device) int { return cmp.Compare(a.VolumeID, b.VolumeID) })
	return out, nil
}
