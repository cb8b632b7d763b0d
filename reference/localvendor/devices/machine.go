package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/go-logr/logr"

	"github.com/moor-storage/moor/internal/keylock"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/localvendor/files"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// Show makes a block device of an open volume.
type Show func(ctx context.Context, volumeID string, volume *blocktarget.Device) (Shown, error)

// Shown is a block device of a machine.
type Shown interface {
	// Node makes the device's file at path, replacing what is there.
	Node(path string) error
	// Resize gives the device another size in bytes.
	Resize(bytes int64) error
	// Fence ends its I/O for ever.
	Fence()
	// Detach gives it back, after Fence.
	Detach() error
}

// Machine implements provisioner.Host and provisioner.Rescan on a machine that
// reaches the target itself, with no DPU between: the device of a volume is a
// block device of its own. Devices live as long as the process: after a restart
// volumes have to be staged anew.
type Machine struct {
	show   Show
	devDir string
	log    logr.Logger
	locks  keylock.Locks

	mu   sync.Mutex
	open map[string]shownVolume
}

type shownVolume struct {
	export string
	volume *blocktarget.Device
	shown  Shown
}

// NewMachine returns a Machine that makes its device files in devDir, which is
// made anew: what is there belonged to devices that are gone.
func NewMachine(show Show, devDir string, log logr.Logger) (*Machine, error) {
	if err := errors.Join(os.RemoveAll(devDir), os.MkdirAll(devDir, 0o750)); err != nil {
		return nil, fmt.Errorf("make the directory of the devices: %w", err)
	}
	return &Machine{show: show, devDir: devDir, log: log, open: map[string]shownVolume{}}, nil
}

// Open makes the device of a volume. See provisioner.Host.
func (m *Machine) Open(ctx context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	id, export := spec.VolumeID, spec.PublishContext[records.ContextTargetExport]
	if !records.Valid(id) || export == "" {
		return provisioner.Device{}, fmt.Errorf("open volume %q: was it attached by this driver? %w", id, provisioner.ErrInvalid)
	}
	unlock, ok := m.locks.TryLock(id)
	if !ok {
		return provisioner.Device{}, fmt.Errorf("open volume %q: another operation on it is under way: %w", id, provisioner.ErrBusy)
	}
	defer unlock()
	have, there := m.get(id)
	if there && have.export != export { // its right was taken back and given anew
		if err := m.close(id, have); err != nil {
			return provisioner.Device{}, fmt.Errorf("open volume %q anew: %w", id, err)
		}
		there = false
	}
	if !there {
		if err := m.make(ctx, spec, export); err != nil {
			return provisioner.Device{}, fmt.Errorf("open volume %q: %w", id, err)
		}
	}
	return m.device(id), nil
}

func (m *Machine) make(ctx context.Context, spec provisioner.OpenSpec, export string) error {
	volume, err := blocktarget.OpenDevice(ctx, blocktarget.DeviceOptions{
		Address: spec.PublishContext[records.ContextTargetAddress], Export: export, Log: m.log,
	})
	if errors.Is(err, blocktarget.ErrDenied) {
		return fmt.Errorf("%w: %w", provisioner.ErrPrecondition, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	shown, err := m.show(ctx, spec.VolumeID, volume)
	if err != nil {
		return errors.Join(err, volume.Close())
	}
	if err := shown.Node(m.path(spec.VolumeID)); err != nil {
		shown.Fence()
		return errors.Join(err, shown.Detach(), volume.Close())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open[spec.VolumeID] = shownVolume{export: export, volume: volume, shown: shown}
	return nil
}

func (m *Machine) path(id string) string { return filepath.Join(m.devDir, id) }

func (m *Machine) device(id string) provisioner.Device {
	return provisioner.Device{VolumeID: id, Name: id, Path: m.path(id), Mode: provisioner.Block}
}

func (m *Machine) get(id string) (shownVolume, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.open[id]
	return v, ok
}

// Close removes the device of a volume.
func (m *Machine) Close(_ context.Context, volumeID, _ string) error {
	unlock, ok := m.locks.TryLock(volumeID)
	if !ok {
		return fmt.Errorf("close volume %q: another operation on it is under way: %w", volumeID, provisioner.ErrBusy)
	}
	defer unlock()
	have, there := m.get(volumeID)
	if !there {
		return nil
	}
	if err := m.close(volumeID, have); err != nil {
		return fmt.Errorf("close volume %q: %w", volumeID, err)
	}
	return nil
}

func (m *Machine) close(id string, v shownVolume) error {
	v.shown.Fence()
	if err := errors.Join(v.shown.Detach(), files.IgnoreMissing(os.Remove(m.path(id)))); err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.open, id)
	m.mu.Unlock()
	return v.volume.Close()
}

// Lookup returns the open device of a volume.
func (m *Machine) Lookup(_ context.Context, volumeID string) (provisioner.Device, error) {
	if _, there := m.get(volumeID); !there {
		return provisioner.Device{}, fmt.Errorf("volume %q is not open on this machine: %w", volumeID, provisioner.ErrNotFound)
	}
	return m.device(volumeID), nil
}

// List returns every open device.
func (m *Machine) List(context.Context) ([]provisioner.Device, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []provisioner.Device
	for _, id := range slices.Sorted(maps.Keys(m.open)) {
		out = append(out, m.device(id))
	}
	return out, nil
}

// Rescan gives the device the size that the volume has now. See
// provisioner.Rescan.
func (m *Machine) Rescan(ctx context.Context, volumeID string, atLeast int64) (int64, error) {
	have, there := m.get(volumeID)
	if !there {
		return 0, fmt.Errorf("volume %q is not open on this machine: %w", volumeID, provisioner.ErrNotFound)
	}
	size, err := have.volume.Refresh(ctx)
	if err != nil {
		return 0, fmt.Errorf("look at the size of volume %q: %w: %w", volumeID, provisioner.ErrUnavailable, err)
	}
	if err := have.shown.Resize(size); err != nil {
		return 0, fmt.Errorf("resize the device of volume %q: %w", volumeID, err)
	}
	if size < atLeast {
		return 0, fmt.Errorf("volume %q has %d bytes yet, not %d: %w", volumeID, size, atLeast, provisioner.ErrUnavailable)
	}
	return size, nil
}

// CloseAll removes every device, at the end of the process.
func (m *Machine) CloseAll() error {
	m.mu.Lock()
	all := maps.Clone(m.open)
	m.mu.Unlock()
	var errs error
	for id, v := range all {
		errs = errors.Join(errs, m.close(id, v))
	}
	return errs
}
