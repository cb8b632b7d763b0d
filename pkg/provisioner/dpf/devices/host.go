// Package devices finds the device of an attached volume on its host: an NVMe
// namespace or a virtio-fs function, by what the publish context says of it. It
// makes none and removes none: the DPU shows it, and takes it away.
package devices

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// DefaultHostWait is how long Open waits for the device when the caller gave
// no nearer deadline. The DPU showed the device before the host is asked for
// it, so that it is there at once, or was taken away since. While a call waits,
// the kubelet can do nothing else about the volume, not even for a pod that was
// deleted: one long wait holds up a whole failover, and a short one is repeated.
const DefaultHostWait = 10 * time.Second

// Host is provisioner.Host on a host: the device is the NVMe
// namespace that the DPU shows, found in sysfs by PCI address, VUID, namespace id and
// UUID; or the file system on a virtio-fs function, known by its tag. Open and Close change nothing on the DPU: Attach and Detach do that.
//
// Which volume is behind which function is known from Open alone: after a restart
// Lookup and List know it from Remember, or once it has been opened again.
type Host struct {
	finder  *hostdev.Finder
	wait    time.Duration
	records records

	mu   sync.Mutex
	open map[string]opened
}

// opened is where a volume was seen.
type opened struct {
	hostdev.Identity
	// tag is that of a file system; "" for a namespace.
	tag  string
	mode provisioner.VolumeMode
}

// New makes it over finder; wait bounds Open, 0 means
// DefaultHostWait.
func New(finder *hostdev.Finder, wait time.Duration) *Host {
	if wait <= 0 {
		wait = DefaultHostWait
	}
	return &Host{finder: finder, wait: wait, open: make(map[string]opened)}
}

var _ provisioner.Host = (*Host)(nil)

// Open waits until the device of the volume is there and returns it. ErrInvalid
// if the publish context names no function; ErrUnavailable if the device does
// not appear in time; ErrPrecondition if several functions could be meant.
func (h *Host) Open(ctx context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	p, err := parseOpen(spec)
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("open volume %q: %w", spec.VolumeID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, h.wait)
	defer cancel()
	if p.tag != "" {
		d, err := h.openFilesystem(ctx, spec, p)
		if err != nil {
			return provisioner.Device{}, fmt.Errorf("open volume %q: %w", spec.VolumeID, err)
		}
		return d, nil
	}
	b, err := h.finder.WaitFor(ctx, p.Identity)
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("open volume %q: %w", spec.VolumeID, hostError(err))
	}
	h.took(spec.VolumeID, p)
	return hostDevice(spec.VolumeID, p, b), nil
}

// took notes where a volume was seen.
func (h *Host) took(volume string, p opened) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open[volume] = p
	h.records.keep(volume, p)
}

func parseOpen(spec provisioner.OpenSpec) (opened, error) {
	if spec.VolumeID == "" {
		return opened{}, fmt.Errorf("no volume is named: %w", provisioner.ErrInvalid)
	}
	address, ok := spec.PublishContext[storagev1alpha1.PublishContextPCIAddress]
	if !ok {
		return opened{}, fmt.Errorf("the publish context has no %s: is the volume attached to this node?: %w", storagev1alpha1.PublishContextPCIAddress, provisioner.ErrInvalid)
	}
	address, err := hostdev.NormalizeAddress(address)
	if err != nil {
		return opened{}, hostError(err)
	}
	vuid := spec.PublishContext[storagev1alpha1.PublishContextVUID]
	if tag := spec.PublishContext[storagev1alpha1.PublishContextTag]; tag != "" {
		return opened{Identity: hostdev.Identity{Address: address, VUID: vuid}, tag: tag, mode: spec.Mode}, nil
	}
	nsid, err := hostdev.ParseNamespaceID(spec.PublishContext[storagev1alpha1.PublishContextNamespaceID])
	if err != nil {
		return opened{}, fmt.Errorf("publish context %s: %w", storagev1alpha1.PublishContextNamespaceID, hostError(err))
	}
	id := hostdev.Identity{Address: address, NamespaceID: nsid, UUID: spec.PublishContext[storagev1alpha1.PublishContextUUID], VUID: vuid}
	return opened{Identity: id, mode: spec.Mode}, nil
}

// hostError adds the platform's kind to an error of package hostdev.
func hostError(err error) error {
	switch {
	case errors.Is(err, hostdev.ErrAddress):
		return fmt.Errorf("%w: %w", err, provisioner.ErrInvalid)
	case errors.Is(err, hostdev.ErrAbsent):
		return fmt.Errorf("%w: %w", err, provisioner.ErrUnavailable)
	case errors.Is(err, hostdev.ErrAmbiguous):
		return fmt.Errorf("%w: %w", err, provisioner.ErrPrecondition)
	}
	return err
}

func hostDevice(volume string, p opened, b hostdev.Block) provisioner.Device {
	return provisioner.Device{VolumeID: volume, Name: b.Name, Path: b.Path, Mode: p.mode}
}

// Close forgets the volume: the function stays bound to its driver until the
// DPU takes the namespace away. Always success.
func (h *Host) Close(_ context.Context, volumeID, _ string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.open, volumeID)
	h.records.drop(volumeID)
	return nil
}

// Lookup returns the device of a volume that was opened and is still there, or
// ErrNotFound; hostdev.ErrAbsent too if it was opened, and is there no more.
func (h *Host) Lookup(_ context.Context, volumeID string) (provisioner.Device, error) {
	h.mu.Lock()
	p, ok := h.open[volumeID]
	h.mu.Unlock()
	if !ok {
		return provisioner.Device{}, fmt.Errorf("volume %q is not open on this host: %w", volumeID, provisioner.ErrNotFound)
	}
	if p.tag != "" {
		return h.lookupFilesystem(volumeID, p)
	}
	b, err := h.finder.Seek(p.Identity)
	if errors.Is(err, hostdev.ErrAbsent) {
		return provisioner.Device{}, fmt.Errorf("device of volume %q is gone: %w: %w", volumeID, err, provisioner.ErrNotFound)
	}
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("look up volume %q: %w", volumeID, err)
	}
	return hostDevice(volumeID, p, b), nil
}

// List returns the devices of the volumes that were opened and are still
// there, ordered by volume.
func (h *Host) List(ctx context.Context) ([]provisioner.Device, error) {
	h.mu.Lock()
	volumes := make([]string, 0, len(h.open))
	for v := range h.open {
		volumes = append(volumes, v)
	}
	h.mu.Unlock()
	var out []provisioner.Device
	for _, v := range volumes {
		d, err := h.Lookup(ctx, v)
		if errors.Is(err, provisioner.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b provisioner.Device) int { return strings.Compare(a.VolumeID, b.VolumeID) })
	return out, nil
}
