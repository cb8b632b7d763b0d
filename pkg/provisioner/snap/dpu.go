// Package snap is provisioner.DPU over a SNAP service: it shows an SPDK block
// device to the host as an NVMe namespace on an emulated function, or an fsdev
// as a virtio-fs device, and takes it away again.
//
// Every volume has a subsystem of its own, named for its device. What there is
// is read from the service before each step, so an exposure that was left
// half-made by a crash is found and completed, or removed; nothing is kept in
// memory but locks, and which function a virtio-fs device was given, without
// which such a device is made anew.
//
// It never touches a subsystem that is not its own, but for a namespace there
// that holds the very device it is asked to withdraw.
package snap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap/nvme"
	"github.com/moor-storage/moor/pkg/provisioner/snap/paths"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
	"github.com/moor-storage/moor/pkg/provisioner/snap/virtiofs"
)

// Options of a DPU; the zero value will do.
type Options = service.Options

// DPU is provisioner.DPU over one SNAP service. It is safe for concurrent use;
// a second call for the same device is refused with ErrBusy while one is
// under way.
type DPU struct {
	service *service.Service
	nvme    *nvme.Emulation
	shared  *virtiofs.Emulation
	paths   *paths.Paths
}

var _ provisioner.DPU = (*DPU)(nil)

// New returns the DPU over the service that rpc calls. Nothing is called.
func New(rpc *snaprpc.Client, options Options) *DPU {
	s := service.New(rpc, options)
	d := &DPU{service: s, nvme: nvme.New(s, options.NewUUID), shared: virtiofs.New(s), paths: paths.New(s)}
	s.CleanBy(d.shared.Tidy)
	s.CleanBy(func(ctx context.Context) int {
		removed, _, _ := d.nvme.Tidy(ctx)
		return removed
	})
	return d
}

// Expose shows the device to the host. It completes what an earlier call left
// half-made. A hidden exposure has all but the attachment of the namespace, and
// its controller runs: to show it takes one call that changes something, and so
// does to hide it again. With a recorded identity the host sees the same PCI address, NSID
// and UUID again, or an error says what is in the way: ErrInUse if another
// volume has the function, ErrExists if the device is shown with another
// identity. An error that is not uncertain leaves nothing behind.
func (d *DPU) Expose(ctx context.Context, spec provisioner.ExposeSpec) (provisioner.Exposure, error) {
	var out provisioner.Exposure
	err := d.alone(spec.Device, func() (err error) {
		if spec.Mode == provisioner.Filesystem {
			out, err = d.shared.Expose(ctx, spec)
		} else {
			out, err = d.nvme.Expose(ctx, spec)
		}
		return err
	})
	if err != nil {
		return provisioner.Exposure{}, fmt.Errorf("expose device %s: %w", spec.Device, err)
	}
	return out, nil
}

// Withdraw takes the device away from the host and removes what showed it: the
// namespace is detached first, which ends the host's I/O. It returns nil only
// when the service lists none of it any more. What List calls a device, an NQN or
// a function, is taken in place of one. A static function stays, free for the
// next volume. A hot-plugged one is unplugged and removed, but not waited for:
// while the host does not let go of it, its port remains taken by a subsystem
// without a namespace, which List tells of. A file system is another matter:
// only a device that was stopped is known to serve no more, and it cannot be
// stopped while the host has it, so a host that does not let go makes Withdraw
// fail with ErrUnavailable.
func (d *DPU) Withdraw(ctx context.Context, device string) error {
	err := d.alone(device, func() error {
		switch {
		case strings.HasPrefix(device, nvme.SparePrefix):
			return d.nvme.RemoveSpare(ctx, device)
		case strings.HasPrefix(device, virtiofs.SparePrefix):
			return d.shared.RemoveSpare(ctx, device)
		}
		// Both are tried: neither may hold up the withdrawal of the other.
		return errors.Join(d.nvme.Withdraw(ctx, device), d.shared.Withdraw(ctx, device))
	})
	if err != nil {
		return fmt.Errorf("withdraw device %s: %w", device, err)
	}
	return nil
}

// Discard ends what a function has kept, by a controller that never serves: it is made suspended
// and destroyed. A hot-plugged function goes with it, as in Withdraw. The service keeps nothing
// of a file system.
func (d *DPU) Discard(ctx context.Context, device, pciAddress string) error {
	err := d.alone(device, func() error { return d.nvme.Discard(ctx, device, pciAddress) })
	if err != nil {
		return fmt.Errorf("discard what the function at %s has kept of device %s: %w", pciAddress, device, err)
	}
	return nil
}

// Tidy removes what withdrawals have left of hot-plugged functions, as far as the host has let
// go of it.
func (d *DPU) Tidy(ctx context.Context) (removed, left int, err error) {
	if removed, left, err = d.nvme.Tidy(ctx); err != nil {
		err = fmt.Errorf("remove what withdrawn devices have left: %w", err)
	}
	return removed, left, err
}

// alone runs act while no other call works on the device.
func (d *DPU) alone(device string, act func() error) error {
	return d.service.Alone(nvme.NQN(device), device, act)
}

// List returns the exposures in the subsystems made here, ordered by device. A
// subsystem that holds no namespace yet is listed with its NQN as the device;
// Withdraw takes that too, as it does the name of a hot-plugged function that no
// device has. It costs four calls, however many volumes there are.
func (d *DPU) List(ctx context.Context) ([]provisioner.Exposure, error) {
	out, err := d.nvme.List(ctx)
	if err != nil {
		return nil, err
	}
	shared, err := d.shared.List(ctx)
	if err != nil {
		return nil, err
	}
	out = append(out, shared...)
	slices.SortFunc(out, func(a, b provisioner.Exposure) int { return cmp.Compare(a.Device, b.Device) })
	return out, nil
}

// Functions counts the static NVMe functions, of which those are free that carry
// no controller, and those that can be plugged in, if the service offers that.
func (d *DPU) Functions(ctx context.Context) ([]provisioner.FunctionCount, error) {
	out, plugged, err := d.nvme.Count(ctx)
	if err != nil || plugged < 0 {
		return out, err
	}
	shared, err := d.shared.Functions(ctx)
	if err != nil {
		return nil, err
	}
	limit := d.service.HotplugLimit
	return append(out, provisioner.FunctionCount{Type: provisioner.Hotplug, Total: limit, Free: max(0, limit-plugged-shared)}), nil
}

// Size returns how large the device is. A namespace has the size of the device
// below it, and follows it.
func (d *DPU) Size(ctx context.Context, device string) (int64, error) {
	what := "look at the size of device " + device
	all, err := d.service.RPC.BdevGetBdevs(ctx, device)
	if err != nil {
		return 0, service.Explain(err, nil, "%s", what)
	}
	if len(all) != 1 {
		return 0, fmt.Errorf("%s: the service tells of %d devices: %w", what, len(all), provisioner.ErrNotFound)
	}
	return all[0].SizeBytes(), nil
}

// Paths tells of the ways of block devices to their storage. A device of NVMe over Fabrics has
// that of its controller; of an fsdev, and of a bdev over a file, nothing is known. The first
// call for a device does not know what is in flight: it begins the sampling of that.
func (d *DPU) Paths(ctx context.Context, devices []string) ([]provisioner.Path, error) {
	return d.paths.List(ctx, devices)
}

// ProbePath reads the health page of a device's controller, a command that the storage has to
// answer. SPDK does not tell storage that is out of reach from storage that refuses to
// tell its health: either is ErrUnavailable.
func (d *DPU) ProbePath(ctx context.Context, device string) error {
	return d.paths.Probe(ctx, device)
}

// NQN returns the name of the subsystem that shows a device by NVMe.
func NQN(device string) string { return nvme.NQN(device) }
