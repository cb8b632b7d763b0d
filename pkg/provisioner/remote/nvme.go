package remote

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/moor-storage/moor/internal/keylock"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// fabric is what NVMe needs of the SNAP service; *snaprpc.Client has it.
type fabric interface {
	BdevGetBdevs(ctx context.Context, name string) ([]snaprpc.Bdev, error)
	BdevNvmeAttachController(ctx context.Context, name string, to snaprpc.TransportID) ([]string, error)
	BdevNvmeGetControllers(ctx context.Context) ([]snaprpc.NVMeController, error)
	BdevNvmeDetachController(ctx context.Context, name string) error
}

// NVMe implements provisioner.Host on a DPU: the device of a volume is the
// first namespace of the subsystem that its context names.
type NVMe struct {
	rpc    fabric
	owners owners
	locks  keylock.Locks
}

// NewNVMe returns the Host over the SNAP service r. stateDir, made when
// needed, remembers whose a device is, and is this DPU's alone.
func NewNVMe(r fabric, stateDir string) *NVMe { return &NVMe{rpc: r, owners: ownersIn(stateDir)} }

// opened is a device that is there.
type opened struct {
	bdev, volume string
	reaches      snaprpc.TransportID
}

func (o opened) device() provisioner.Device {
	return provisioner.Device{VolumeID: o.volume, Name: o.bdev, Mode: provisioner.Block}
}

// Open connects to the volume's subsystem, or uses a connection that is there.
// Two volumes never share a device. See provisioner.Host.
func (n *NVMe) Open(ctx context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	d, err := n.open(ctx, spec)
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("open volume %q: %w", spec.VolumeID, err)
	}
	return d.device(), nil
}

func (n *NVMe) open(ctx context.Context, spec provisioner.OpenSpec) (opened, error) {
	switch {
	case spec.VolumeID == "":
		return opened{}, fmt.Errorf("no volume is named: %w", provisioner.ErrInvalid)
	case spec.Mode == provisioner.Filesystem:
		return opened{}, fmt.Errorf("a subsystem of NVMe is a block device, ask for volumeMode Block: %w", provisioner.ErrUnsupported)
	}
	target, err := targetOf(spec.VolumeContext)
	if err != nil {
		return opened{}, err
	}
	// Keyed by the subsystem: it is what two volumes must not share.
	unlock, ok := n.locks.TryLock(target.SubNQN)
	if !ok {
		return opened{}, errBusy
	}
	defer unlock()
	if d, err := n.claim(ctx, spec.VolumeID, target); err != nil || d.bdev != "" {
		return d, err
	}
	return n.connect(ctx, spec.VolumeID, target)
}

// claim makes the device over target the volume's, if there is such a device.
func (n *NVMe) claim(ctx context.Context, volumeID string, target snaprpc.TransportID) (opened, error) {
	all, err := n.list(ctx)
	if err != nil {
		return opened{}, err
	}
	for _, d := range all {
		if !d.reaches.Same(target) {
			if d.volume == volumeID {
				return opened{}, fmt.Errorf("its device %s is over %s, and not over %s: close it first: %w", d.bdev, d.reaches, target, provisioner.ErrExists)
			}
			continue
		}
		if d.volume != "" && d.volume != volumeID {
			return opened{}, fmt.Errorf("%s is device %s of volume %s: %w", target, d.bdev, d.volume, provisioner.ErrInUse)
		}
		if d.volume == volumeID {
			return d, nil
		}
		d.volume = volumeID
		return d, n.owners.remember(owner{Device: d.bdev, Volume: volumeID, Reaches: d.reaches.String()})
	}
	return opened{}, nil
}

// connect makes a controller, and undoes it if it shows no namespace.
func (n *NVMe) connect(ctx context.Context, volumeID string, target snaprpc.TransportID) (opened, error) {
	name := controllerOf(volumeID)
	_, err := n.rpc.BdevNvmeAttachController(ctx, name, target)
	if code, _ := snaprpc.Code(err); err != nil && code != snaprpc.CodeExists && code != snaprpc.CodeInAlready {
		return opened{}, fmt.Errorf("connect controller %s to %s: %w", name, target, Kind(err))
	}
	d, again := n.claim(ctx, volumeID, target)
	switch {
	case again != nil || d.bdev != "":
		return d, again
	case err != nil:
		return opened{}, fmt.Errorf("connect controller %s to %s: %w: %w", name, target, provisioner.ErrExists, err)
	}
	if err := n.rpc.BdevNvmeDetachController(ctx, name); err != nil && !snaprpc.IsNotFound(err) {
		return opened{}, fmt.Errorf("disconnect controller %s, which shows no namespace: %w", name, Kind(err))
	}
	return opened{}, fmt.Errorf("%s has no namespace that is active: %w", target, provisioner.ErrPrecondition)
}

// list returns what is over subsystems, ordered by volume, then device. What
// others have connected to is among it, with no volume.
func (n *NVMe) list(ctx context.Context) ([]opened, error) {
	bdevs, err := n.rpc.BdevGetBdevs(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("list the devices of the snap service: %w", Kind(err))
	}
	var out []opened
	for _, b := range bdevs {
		if paths := b.DriverSpecific.NVMe; len(paths) == 0 || strings.EqualFold(paths[0].TrID.TrType, "PCIe") {
			continue // a disk of the DPU itself is no business of ours
		}
		d := opened{bdev: b.Name, reaches: b.DriverSpecific.NVMe[0].TrID}
		if d.volume, err = n.owners.of(d.bdev, d.reaches.String()); err != nil {
			return nil, err
		}
		if d.volume == "" {
			d.volume = volumeOf(ofController(d.bdev))
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b opened) int {
		return cmp.Or(cmp.Compare(a.volume, b.volume), cmp.Compare(a.bdev, b.bdev))
	})
	return out, nil
}

// find returns the volume's device; one without a name if there is none.
func (n *NVMe) find(ctx context.Context, volumeID string) (opened, error) {
	all, err := n.list(ctx)
	if err != nil || volumeID == "" {
		return opened{}, err
	}
	i := slices.IndexFunc(all, func(d opened) bool { return d.volume == volumeID })
	if i < 0 {
		return opened{}, nil
	}
	return all[i], nil
}

// Close disconnects from the volume's subsystem. A connection that another
// else made, and this volume used, stays. See provisioner.Host.
func (n *NVMe) Close(ctx context.Context, volumeID, deviceName string) error {
	if err := n.close(ctx, volumeID, deviceName); err != nil {
		return fmt.Errorf("close the device of volume %s: %w", volumeID, err)
	}
	return nil
}

func (n *NVMe) close(ctx context.Context, volumeID, deviceName string) error {
	seen, err := n.find(ctx, volumeID)
	if err != nil || seen.bdev == "" {
		return err
	}
	unlock, ok := n.locks.TryLock(seen.reaches.SubNQN)
	if !ok {
		return errBusy
	}
	defer unlock()
	// Again, now that no other call connects it.
	d, err := n.find(ctx, volumeID)
	if err != nil || d != seen || (deviceName != "" && deviceName != d.bdev) {
		return err
	}
	name, err := n.controller(ctx, d)
	if err != nil {
		return err
	}
	if name == controllerOf(d.volume) {
		if err := n.rpc.BdevNvmeDetachController(ctx, name); err != nil && !snaprpc.IsNotFound(err) {
			return fmt.Errorf("disconnect controller %s from %s: %w", name, d.reaches, Kind(err))
		}
	}
	return n.owners.forget(d.bdev)
}

// controller returns the name of the connection that a device is of; empty if
// it is gone.
func (n *NVMe) controller(ctx context.Context, d opened) (string, error) {
	all, err := n.rpc.BdevNvmeGetControllers(ctx)
	if err != nil {
		return "", fmt.Errorf("list the controllers of the snap service: %w", Kind(err))
	}
	for _, c := range all {
		if c.Name == ofController(d.bdev) && slices.ContainsFunc(c.Paths, func(p snaprpc.NVMePath) bool { return p.TrID.Same(d.reaches) }) {
			return c.Name, nil
		}
	}
	return "", nil
}

// Lookup returns the device of a volume, or ErrNotFound. See provisioner.Host.
func (n *NVMe) Lookup(ctx context.Context, volumeID string) (provisioner.Device, error) {
	d, err := n.find(ctx, volumeID)
	if err == nil && d.bdev == "" {
		err = fmt.Errorf("it has no device here: %w", provisioner.ErrNotFound)
	}
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("look up the device of volume %s: %w", volumeID, err)
	}
	return d.device(), nil
}

// List returns the volumes' devices. See provisioner.Host.
func (n *NVMe) List(ctx context.Context) ([]provisioner.Device, error) {
	all, err := n.list(ctx)
	if err != nil {
		return nil, err
	}
	var out []provisioner.Device
	for _, d := range all {
		if d.volume != "" {
			out = append(out, d.device())
		}
	}
	return out, nil
}
