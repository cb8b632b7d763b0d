package devices

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/files"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// opened is what a plugin remembers of a directory that it has open, in
// <device>.json of its state directory.
type opened struct {
	VolumeID string `json:"volumeID"`
	// ID is the volume in the target directory, Node the name that this DPU
	// has there.
	ID   string `json:"id"`
	Node string `json:"node"`
}

func (h *Host) openedPath(device string) string { return filepath.Join(h.stateDir, device+".json") }

func (h *Host) recallOpened(device string) (opened, bool, error) {
	return files.Load[opened](h.openedPath(device), "device "+device)
}

// openDirectory makes the fsdev of a volume whose directory this DPU sees. The
// mark comes first, and only then is the record asked whether it may: see
// Storage.unopened.
func (h *Host) openDirectory(ctx context.Context, spec provisioner.OpenSpec) error {
	o, err := directoryOf(spec)
	if err != nil {
		return err
	}
	device, root := snaprpc.FSDevName(spec.VolumeID), filepath.Join(h.targetDir, o.ID+records.DirectorySuffix)
	have, err := h.findFS(ctx, device)
	if err != nil {
		return err
	}
	if have != nil && have.Module.RootPath != root {
		return fmt.Errorf("device %s shows %s, not %s: %w", device, have.Module.RootPath, root, provisioner.ErrExists)
	}
	if err := h.begin(o, device); err != nil {
		return err
	}
	if err := h.mayOpen(o); err != nil {
		if have == nil {
			err = errors.Join(err, h.end(o, device))
		}
		return err
	}
	if have != nil {
		return nil
	}
	if err := h.rpc.FsdevAioCreate(ctx, device, root); err != nil {
		// The service has one code for every refusal: look what there is.
		if have, again := h.findFS(ctx, device); again == nil && have != nil && have.Module.RootPath == root {
			return nil
		}
		return fmt.Errorf("make device %s of directory %s: %w", device, root, kind(err))
	}
	return nil
}

// begin marks the directory as open, once it is remembered to take the mark away
// again, and end does that.
func (h *Host) begin(o opened, device string) error {
	if err := files.MakeDir(h.stateDir); err != nil {
		return err
	}
	if err := files.Save(h.openedPath(device), "device "+device, o); err != nil {
		return err
	}
	return records.Mark(h.targetDir, o.ID, o.Node)
}

func (h *Host) end(o opened, device string) error {
	if err := records.Unmark(h.targetDir, o.ID, o.Node); err != nil {
		return err
	}
	return files.Remove(h.openedPath(device))
}

// mayOpen returns nil if the record lets this DPU have the directory.
func (h *Host) mayOpen(o opened) error {
	have, found, err := records.Load(h.targetDir, o.ID)
	if err != nil {
		return err
	}
	holder, holds := have.Attachments[o.Node]
	if !found || !holds || holder.Revoking || !have.Shared() {
		return fmt.Errorf("volume %s is not attached to node %s in %s: is the target directory the controller's? %w", o.ID, o.Node, h.targetDir, provisioner.ErrPrecondition)
	}
	return nil
}

// directoryOf reads which directory is meant. Only the name is taken from the
// contexts: no volume can name one outside the target directory.
func directoryOf(spec provisioner.OpenSpec) (opened, error) {
	name := filepath.Base(spec.PublishContext[records.ContextDirectory])
	id, isDir := strings.CutSuffix(name, records.DirectorySuffix)
	node := spec.PublishContext[records.ContextNode]
	if !isDir || !records.Valid(id) || node == "" {
		return opened{}, fmt.Errorf("%s and %s in the publish context do not name a directory and a node: was it made and attached by the local vendor's controller, with volumeMode Filesystem? %w",
			records.ContextDirectory, records.ContextNode, provisioner.ErrInvalid)
	}
	return opened{VolumeID: spec.VolumeID, ID: id, Node: node}, nil
}

// fsdevs returns those over the target directory; a service without virtio-fs
// has none.
func (h *Host) fsdevs(ctx context.Context) ([]snaprpc.FSDev, error) {
	all, err := h.rpc.FsdevGetFsdevs(ctx)
	if snaprpc.IsMethodNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the fsdevs of the snap service: %w", kind(err))
	}
	var out []snaprpc.FSDev
	for _, d := range all {
		if filepath.Dir(d.Module.RootPath) == filepath.Clean(h.targetDir) {
			out = append(out, d)
		}
	}
	return out, nil
}

// findFS returns the fsdev of that name, nil if there is none.
func (h *Host) findFS(ctx context.Context, name string) (*snaprpc.FSDev, error) {
	all, err := h.fsdevs(ctx)
	for i := range all {
		if all[i].Name == name {
			return &all[i], err
		}
	}
	return nil, err
}

// closeDirectory removes the fsdev of a volume, and then the mark: from then on
// nothing of this DPU uses the directory.
func (h *Host) closeDirectory(ctx context.Context, volumeID string) error {
	device := snaprpc.FSDevName(volumeID)
	have, err := h.findFS(ctx, device)
	if err != nil {
		return err
	}
	if have != nil {
		if err := h.rpc.FsdevAioDelete(ctx, device); err != nil {
			if left, again := h.findFS(ctx, device); again != nil || left != nil {
				return kind(err)
			}
		}
	}
	o, found, err := h.recallOpened(device)
	if err != nil || !found {
		return err
	}
	return h.end(o, device)
}

// directories returns the fsdevs that are open or were to be opened: what was
// cut short left a mark to be taken away.
func (h *Host) directories(ctx context.Context) ([]provisioner.Device, error) {
	all, err := h.fsdevs(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, d := range all {
		names[d.Name] = true
	}
	remembered, err := filepath.Glob(h.openedPath("*"))
	if err != nil {
		return nil, err
	}
	for _, path := range remembered {
		names[strings.TrimSuffix(filepath.Base(path), ".json")] = true
	}
	var out []provisioner.Device
	for name := range names {
		o, _, err := h.recallOpened(name)
		if err != nil {
			return nil, err
		}
		out = append(out, fsDevice(o.VolumeID, name))
	}
	return out, nil
}

func fsDevice(volumeID, name string) provisioner.Device {
	return provisioner.Device{VolumeID: volumeID, Name: name, Mode: provisioner.Filesystem}
}
