// Package filesystems makes directories of the volumes whose images hold a file
// system: an image gets a loop device, which is mounted, and a directory in it is the
// volume. A file system ends where its image does, so its size is kept.
//
// It is not the root of the file system: a kubelet does not have a volume unstaged whose
// very directory it finds mounted elsewhere, and here it always is.
//
// It keeps nothing in memory. The kernel has the mounts, and gives a loop device back
// with its last one: a restart at any point finds what is mounted, and what was begun
// and is not mounted is not there.
package filesystems

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/mount-utils"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/internal/keylock"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/files"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// Type is the type of the file systems.
const Type = "ext4"

// content is the directory in a file system that is the volume, and contentMode that of a
// new one: pods run as any user, and who may see the volume at all is decided elsewhere.
const (
	content     = "volume"
	contentMode = 0o777
)

// Options say where things are.
type Options struct {
	// TargetDir holds the images and records.
	TargetDir string
	// Dir is where file systems are mounted; it is made if it is missing.
	Dir string
	// Node is the name by which volumes are attached to this machine.
	Node string
	// Log is told of file systems that were made or grew.
	Log logr.Logger
}

// Host implements provisioner.Host and provisioner.Rescan on the one machine that
// uses the images. Use New.
type Host struct {
	o         Options
	mounter   mount.Interface
	formatter *hostdev.Formatter
	locks     keylock.Locks
}

// New returns the Host over what is mounted. What a process that ended in the middle
// of a call left is put right: file systems that stand still go on, and volumes that
// are not mounted, as after a reboot, count as closed.
func New(o Options) (*Host, error) {
	if err := files.MakeDir(o.Dir); err != nil {
		return nil, err
	}
	dir, err := filepath.EvalSymlinks(o.Dir)
	if err == nil {
		dir, err = filepath.Abs(dir) // the mount table has no links
	}
	if err != nil {
		return nil, fmt.Errorf("find the directory of the mounts: %w", err)
	}
	o.Dir = dir
	h := &Host{o: o, mounter: mount.New(""), formatter: &hostdev.Formatter{Runner: hostdev.Commands{}}}
	if err := h.recover(); err != nil {
		return nil, fmt.Errorf("find what is mounted in %s: %w", dir, err)
	}
	return h, nil
}

func (h *Host) recover() error {
	mounted, err := h.mounted()
	if err != nil {
		return err
	}
	for id := range mounted {
		root, err := os.Open(h.path(id))
		if err != nil {
			return err
		}
		if err := errors.Join(thaw(root), root.Close()); err != nil {
			return err
		}
	}
	ids, err := records.IDs(h.o.TargetDir)
	if err != nil {
		return err
	}
	for _, id := range ids {
		have, _, err := records.Load(h.o.TargetDir, id)
		if err != nil || !have.Contained() || mounted[id] != "" {
			continue // a damaged record is reported where its volume is used
		}
		if err := h.forget(id); err != nil && !errors.Is(err, provisioner.ErrBusy) {
			return err
		}
	}
	return nil
}

// Open mounts the file system of the volume, and makes one if its image is blank. See
// provisioner.Host.
func (h *Host) Open(ctx context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	if err := h.open(ctx, spec); err != nil {
		return provisioner.Device{}, fmt.Errorf("open volume %q: %w", spec.VolumeID, err)
	}
	return h.device(spec.VolumeID), nil
}

func (h *Host) open(ctx context.Context, spec provisioner.OpenSpec) error {
	id := spec.VolumeID
	switch {
	case !records.Valid(id) || spec.PublishContext[records.ContextFilesystem] == "":
		return fmt.Errorf("was it attached by this driver? %w", provisioner.ErrInvalid)
	case spec.Mode == provisioner.Block:
		return fmt.Errorf("it is a directory, ask for volumeMode Filesystem: %w", provisioner.ErrInvalid)
	}
	unlock, ok := h.locks.TryLock(id)
	if !ok {
		return fmt.Errorf("another operation on it is under way: %w", provisioner.ErrBusy)
	}
	defer unlock()
	mounted, err := h.mounted()
	if err != nil {
		return err
	}
	if mounted[id] != "" {
		_, err := h.fit(ctx, id, 0)
		if errors.Is(err, hostdev.ErrPrivilege) {
			h.o.Log.Info("the file system stays smaller than its image", "volume", id, "reason", err.Error())
			return nil
		}
		return err
	}
	// The mark comes first, and only then is the record asked: a detach writes the
	// record first, and then looks for the mark.
	if err := records.Mark(h.o.TargetDir, id, h.o.Node); err != nil {
		return err
	}
	if err = h.mayOpen(id); err == nil {
		err = h.mount(ctx, id, spec.PublishContext[records.ContextReadOnly] == "true" || records.ReadOnlyModes(spec.AccessModes))
	}
	if err != nil {
		return errors.Join(err, h.forget(id))
	}
	return nil
}

// mayOpen returns nil if the record lets this machine have the volume.
func (h *Host) mayOpen(id string) error {
	have, found, err := records.Load(h.o.TargetDir, id)
	if err != nil {
		return err
	}
	holder, holds := have.Attachments[h.o.Node]
	if !found || !holds || holder.Revoking || !have.Contained() {
		return fmt.Errorf("it is not attached to node %s, or has no file system of its own: %w", h.o.Node, provisioner.ErrPrecondition)
	}
	return nil
}

func (h *Host) image(id string) string { return filepath.Join(h.o.TargetDir, id+".img") }

// path is where the file system of a volume is mounted.
func (h *Host) path(id string) string { return filepath.Join(h.o.Dir, id) }

func (h *Host) device(id string) provisioner.Device {
	return provisioner.Device{VolumeID: id, Name: id, Directory: filepath.Join(h.path(id), content), Mode: provisioner.Filesystem}
}

// mounted are the volumes that are mounted here, each with its device.
func (h *Host) mounted() (map[string]string, error) {
	list, err := h.mounter.List()
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	out := map[string]string{}
	for _, mp := range list {
		if id := filepath.Base(mp.Path); filepath.Dir(mp.Path) == h.o.Dir && records.Valid(id) {
			out[id] = mp.Device
		}
	}
	return out, nil
}

// Close unmounts the file system of the volume. While it is mounted elsewhere too, as
// for a pod, it is ErrBusy. See provisioner.Host.
func (h *Host) Close(_ context.Context, volumeID, _ string) error {
	if !records.Valid(volumeID) {
		return nil
	}
	unlock, ok := h.locks.TryLock(volumeID)
	if !ok {
		return fmt.Errorf("close volume %q: another operation on it is under way: %w", volumeID, provisioner.ErrBusy)
	}
	defer unlock()
	if err := h.close(volumeID); err != nil {
		return fmt.Errorf("close volume %q: %w", volumeID, err)
	}
	return nil
}

func (h *Host) close(id string) error {
	list, err := h.mounter.List()
	if err != nil {
		return fmt.Errorf("read the mount table: %w", err)
	}
	device := ""
	for _, mp := range list {
		if mp.Path == h.path(id) {
			device = mp.Device
		}
	}
	for _, mp := range list {
		if device != "" && mp.Device == device && mp.Path != h.path(id) {
			return fmt.Errorf("it is mounted on %s too, unmount it there first: %w", mp.Path, provisioner.ErrBusy)
		}
	}
	if device != "" {
		if err := h.mounter.Unmount(h.path(id)); err != nil {
			return fmt.Errorf("unmount %s: %v; a process may still use it: %w", h.path(id), err, provisioner.ErrBusy)
		}
	}
	return h.forget(id)
}

// forget takes the mark of a volume away that is not mounted here: from then on
// nothing of this machine uses its image.
func (h *Host) forget(id string) error {
	d, err := loopOf(h.image(id))
	if err != nil {
		return err
	}
	if d != nil {
		return fmt.Errorf("%s is still used over its image, by a process that was left behind: end it: %w", d.Path, provisioner.ErrBusy)
	}
	if err := files.Remove(h.path(id)); err != nil {
		return err
	}
	return records.Unmark(h.o.TargetDir, id, h.o.Node)
}

// Lookup returns the open device of a volume.
func (h *Host) Lookup(_ context.Context, volumeID string) (provisioner.Device, error) {
	mounted, err := h.mounted()
	if err == nil && mounted[volumeID] == "" {
		err = fmt.Errorf("volume %q is not open on this machine: %w", volumeID, provisioner.ErrNotFound)
	}
	if err != nil {
		return provisioner.Device{}, err
	}
	return h.device(volumeID), nil
}

// List returns every open device.
func (h *Host) List(context.Context) ([]provisioner.Device, error) {
	mounted, err := h.mounted()
	var out []provisioner.Device
	for id := range mounted {
		out = append(out, h.device(id))
	}
	slices.SortFunc(out, func(a, b provisioner.Device) int { return strings.Compare(a.VolumeID, b.VolumeID) })
	return out, err
}

// Rescan lets the file system have what its image has now. See provisioner.Rescan.
func (h *Host) Rescan(ctx context.Context, volumeID string, atLeast int64) (int64, error) {
	unlock, ok := h.locks.TryLock(volumeID)
	if !ok {
		return 0, fmt.Errorf("resize volume %q: another operation on it is under way: %w", volumeID, provisioner.ErrBusy)
	}
	defer unlock()
	if _, err := h.Lookup(ctx, volumeID); err != nil {
		return 0, err
	}
	size, err := h.fit(ctx, volumeID, atLeast)
	if err != nil {
		return 0, fmt.Errorf("resize volume %q: %w", volumeID, err)
	}
	return size, nil
}
