// Package devices makes the devices of attached volumes: Host on a DPU, through
// its SNAP service; Machine on a host without one. It reads records, and writes
// none.
package devices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moor-storage/moor/internal/keylock"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// blockSize of the bdevs in bytes: what every file system and guest accepts.
const blockSize = 512

// rpc is what Host needs of the SNAP service; *snaprpc.Client has it.
type rpc interface {
	BdevGetBdevs(ctx context.Context, name string) ([]snaprpc.Bdev, error)
	BdevAioCreate(ctx context.Context, spec snaprpc.AIOSpec) (string, error)
	BdevAioDelete(ctx context.Context, name string) error
	BdevAioRescan(ctx context.Context, name string) error
	BdevMoorTargetCreate(ctx context.Context, spec snaprpc.TargetSpec) (string, error)
	BdevMoorTargetDelete(ctx context.Context, name string) error
	BdevMoorTargetRescan(ctx context.Context, name string) error
	BdevMoorTargetEpoch(ctx context.Context, name string, epoch int64) error
	FsdevGetFsdevs(ctx context.Context) ([]snaprpc.FSDev, error)
	FsdevAioCreate(ctx context.Context, name, rootPath string) error
	FsdevAioDelete(ctx context.Context, name string) error
}

// Host implements provisioner.Host on a DPU: the device of a volume is a bdev
// over the target if the volume was attached through one, else an AIO bdev over
// its image; that of a directory is an fsdev. The SNAP service's own list is the truth.
type Host struct {
	rpc       rpc
	targetDir string
	stateDir  string
	locks     keylock.Locks
}

// NewHost returns the Host interface of the DPU whose SNAP service is r. targetDir
// is where the images are on this DPU; stateDir, made when needed, remembers
// which volume a device of a hashed name belongs to, and is this DPU's alone.
func NewHost(r rpc, targetDir, stateDir string) *Host {
	return &Host{rpc: r, targetDir: targetDir, stateDir: stateDir}
}

// Open makes the bdev of a volume; one that is there gets the size that the
// volume has now. See provisioner.Host.
func (h *Host) Open(ctx context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	d, err := h.open(ctx, spec)
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("open volume %q: %w", spec.VolumeID, err)
	}
	return d, nil
}

func (h *Host) open(ctx context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	if spec.VolumeID == "" {
		return provisioner.Device{}, fmt.Errorf("no volume is named: %w", provisioner.ErrInvalid)
	}
	unlock, ok := h.locks.TryLock(spec.VolumeID)
	if !ok {
		return provisioner.Device{}, fmt.Errorf("another operation on it is under way: %w", provisioner.ErrBusy)
	}
	defer unlock()
	if spec.Mode == provisioner.Filesystem {
		return fsDevice(spec.VolumeID, snaprpc.FSDevName(spec.VolumeID)), h.openDirectory(ctx, spec)
	}
	open := h.openImage
	if spec.PublishContext[records.ContextTargetExport] != "" || spec.PublishContext[records.ContextTargetAddress] != "" {
		open = h.openTarget
	}
	if err := open(ctx, spec); err != nil {
		return provisioner.Device{}, err
	}
	return device(spec.VolumeID), nil
}

// openImage makes the device of a volume whose image this DPU has.
func (h *Host) openImage(ctx context.Context, spec provisioner.OpenSpec) error {
	image, err := h.imageOf(spec)
	if err != nil {
		return err
	}
	want := snaprpc.AIOSpec{
		Name: records.Device(spec.VolumeID), Filename: image, BlockSize: blockSize, ReadOnly: readOnly(spec),
	}
	found, err := h.exists(ctx, want)
	if err != nil {
		return err
	}
	if found {
		return h.rescan(ctx, want.Name, h.rpc.BdevAioRescan)
	}
	if err := h.checkImage(image); err != nil {
		return err
	}
	if err := h.remember(spec.VolumeID); err != nil {
		return err
	}
	return h.make(ctx, want)
}

// rescan gives a bdev the size that its volume has now. A service that cannot do
// that, or finds no bdev of that kind any more, leaves it as it is: the user of the
// size checks it.
func (h *Host) rescan(ctx context.Context, name string, look func(context.Context, string) error) error {
	err := look(ctx, name)
	if err == nil || snaprpc.IsMethodNotFound(err) || snaprpc.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("look at the size of device %s again: %w", name, kind(err))
}

func device(volumeID string) provisioner.Device {
	return provisioner.Device{VolumeID: volumeID, Name: records.Device(volumeID), Mode: provisioner.Block}
}

// make creates the bdev; one that appeared meanwhile is as good.
func (h *Host) make(ctx context.Context, want snaprpc.AIOSpec) error {
	_, err := h.rpc.BdevAioCreate(ctx, want)
	if err == nil {
		return nil
	}
	if snaprpc.IsExists(err) {
		found, again := h.exists(ctx, want)
		if again != nil || found {
			return again
		}
	}
	return fmt.Errorf("make device %s over %s: %w", want.Name, want.Filename, kind(err))
}

// imageOf returns the path of the volume's image on this DPU. Only the file
// name is taken from the contexts: no volume can name a file outside targetDir.
func (h *Host) imageOf(spec provisioner.OpenSpec) (string, error) {
	name := spec.VolumeContext[records.ContextImage]
	if path := spec.PublishContext[records.ContextPath]; path != "" {
		name = path
	}
	base := filepath.Base(name)
	id, isImage := strings.CutSuffix(base, ".img")
	if name == "" || !isImage || !records.Valid(id) {
		return "", fmt.Errorf("neither %s in the publish context nor %s in the volume context names an image: "+
			"was it made and attached by the local vendor's controller? %w", records.ContextPath, records.ContextImage, provisioner.ErrInvalid)
	}
	return filepath.Join(h.targetDir, base), nil
}

// readOnly reports whether the device must refuse writes.
func readOnly(spec provisioner.OpenSpec) bool {
	return spec.PublishContext[records.ContextReadOnly] == "true" || records.ReadOnlyModes(spec.AccessModes)
}

func (h *Host) checkImage(image string) error {
	_, err := os.Stat(image)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("its image %s is not on this DPU: is the target directory the controller's? %w",
			image, provisioner.ErrPrecondition)
	}
	if err != nil {
		return fmt.Errorf("look at its image: %w", err)
	}
	return nil
}

// exists reports whether the bdev is there; one of that name over another file
// is an error, never a device of this volume.
func (h *Host) exists(ctx context.Context, want snaprpc.AIOSpec) (bool, error) {
	b, err := h.find(ctx, want.Name)
	if err != nil || b == nil {
		return false, err
	}
	if b.DriverSpecific.MoorTarget != nil {
		return false, fmt.Errorf("device %s is over a target, not over %s: %w", b.Name, want.Filename, provisioner.ErrExists)
	}
	if a := b.DriverSpecific.AIO; a != nil && a.Filename != "" && a.Filename != want.Filename {
		return false, fmt.Errorf("device %s is over %s, not over %s: %w", b.Name, a.Filename, want.Filename, provisioner.ErrExists)
	}
	return true, nil
}

// find returns the bdev of that name, nil if there is none. It lists them all:
// services differ in how they refuse an unknown name.
func (h *Host) find(ctx context.Context, name string) (*snaprpc.Bdev, error) {
	list, err := h.rpc.BdevGetBdevs(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("list the devices of the snap service: %w", kind(err))
	}
	for i := range list {
		if list[i].Name == name {
			return &list[i], nil
		}
	}
	return nil, nil
}

// Close removes the bdev of a volume; the image stays. A device that is not
// the volume's own is gone already. See provisioner.Host.
func (h *Host) Close(ctx context.Context, volumeID, deviceName string) error {
	name := records.Device(volumeID)
	if volumeID == "" || (deviceName != "" && deviceName != name && deviceName != snaprpc.FSDevName(volumeID)) {
		return nil
	}
	if err := h.close(ctx, volumeID, name); err != nil {
		return fmt.Errorf("close device %s of volume %s: %w", name, volumeID, err)
	}
	return nil
}

func (h *Host) close(ctx context.Context, volumeID, name string) error {
	unlock, ok := h.locks.TryLock(volumeID)
	if !ok {
		return fmt.Errorf("another operation on it is under way: %w", provisioner.ErrBusy)
	}
	defer unlock()
	b, err := h.find(ctx, name)
	if err != nil {
		return err
	}
	if b != nil && h.owns(*b) {
		if err := h.remove(ctx, *b); err != nil {
			return err
		}
	}
	if err := h.closeDirectory(ctx, volumeID); err != nil {
		return err
	}
	return h.forget(volumeID)
}

// Lookup returns the device of a volume, or ErrNotFound. See provisioner.Host.
func (h *Host) Lookup(ctx context.Context, volumeID string) (provisioner.Device, error) {
	b, err := h.find(ctx, records.Device(volumeID))
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("look up the device of volume %s: %w", volumeID, err)
	}
	if b != nil && h.owns(*b) {
		return device(volumeID), nil
	}
	shared, err := h.findFS(ctx, snaprpc.FSDevName(volumeID))
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("look up the device of volume %s: %w", volumeID, err)
	}
	if shared == nil {
		return provisioner.Device{}, fmt.Errorf("volume %s has no device here: %w", volumeID, provisioner.ErrNotFound)
	}
	return fsDevice(volumeID, shared.Name), nil
}

// List returns the devices of the platform, ordered by volume. See
// provisioner.Host.
func (h *Host) List(ctx context.Context) ([]provisioner.Device, error) {
	list, err := h.rpc.BdevGetBdevs(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("list the devices of the snap service: %w", kind(err))
	}
	out, err := h.directories(ctx)
	if err != nil {
		return nil, err
	}
	for _, b := range list {
		id, hashed, ok := records.VolumeOf(b.Name)
		if !ok || !h.owns(b) {
			continue
		}
		if hashed {
			if id, err = h.recall(b.Name); err != nil {
				return nil, err
			}
		}
		out = append(out, provisioner.Device{VolumeID: id, Name: b.Name, Mode: provisioner.Block})
	}
	slices.SortFunc(out, func(a, b provisioner.Device) int {
		return cmp.Or(cmp.Compare(a.VolumeID, b.VolumeID), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// owns reports whether a bdev is over an image of the target directory, as far
// as the service tells.
func (h *Host) owns(b snaprpc.Bdev) bool {
	a := b.DriverSpecific.AIO
	return a == nil || a.Filename == "" || filepath.Dir(a.Filename) == filepath.Clean(h.targetDir)
}
