package zerotrust

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"k8s.io/mount-utils"
	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/internal/hostdev"
)

// Node formats and mounts; the CSI node service over a Host does.
type Node interface {
	NodeStageVolume(context.Context, *csispec.NodeStageVolumeRequest) (*csispec.NodeStageVolumeResponse, error)
	NodeUnstageVolume(context.Context, *csispec.NodeUnstageVolumeRequest) (*csispec.NodeUnstageVolumeResponse, error)
}

// DeviceWatcher tells when the devices may have changed.
type DeviceWatcher interface {
	// Changed has a value after a change; changes that follow closely are one.
	Changed() <-chan struct{}
}

// Options of an Agent.
type Options struct {
	Finder  *hostdev.Finder
	Node    Node
	Watcher DeviceWatcher
	// Mounts lists what is mounted.
	Mounts func() ([]mount.MountPoint, error)
	// SharedType is what file systems that the DPU shows are mounted as;
	// virtiofs if empty.
	SharedType string
	// Period is how often to list the devices without a change: the news of one
	// may be lost, and a mount that failed is tried again.
	Period time.Duration
	// Clock is the machine's if nil.
	Clock clock.WithTicker
}

// Agent mounts and unmounts the devices of this host.
type Agent struct{ o Options }

// New returns an Agent.
func New(o Options) *Agent {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.SharedType = cmp.Or(o.SharedType, sharedType)
	return &Agent{o: o}
}

func isAbsent(err error) bool { return errors.Is(err, hostdev.ErrAbsent) }

// Mount mounts a device, and makes a file system on it if it is blank. It waits
// for the device until ctx ends. Repeated it changes nothing.
func (a *Agent) Mount(ctx context.Context, e Entry) error {
	ticker := a.o.Clock.NewTicker(a.o.Period)
	defer ticker.Stop()
	for {
		shown, err := Devices(a.o.Finder)
		if err != nil {
			return fmt.Errorf("find device %s: %w", e.Device, err)
		}
		device, err := e.Device.Pick(shown)
		if err == nil {
			return a.mount(ctx, e, device)
		}
		if !isAbsent(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the device to mount on %s: %w: %w", e.Dir, context.Cause(ctx), err)
		case <-a.o.Watcher.Changed():
		case <-ticker.C():
		}
	}
}

func (a *Agent) mount(ctx context.Context, e Entry, s Shown) error {
	if err := e.fits(s); err != nil {
		return fmt.Errorf("mount on %s: %w", e.Dir, err)
	}
	fsType := e.FSType
	if s.Tag != "" {
		fsType = "" // the node service knows how it is mounted
	}
	mode := csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	if slices.Contains(e.Options, "ro") {
		mode = csispec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	}
	_, err := a.o.Node.NodeStageVolume(ctx, &csispec.NodeStageVolumeRequest{
		VolumeId: s.Name, PublishContext: placeOf(s), StagingTargetPath: e.Dir,
		VolumeCapability: &csispec.VolumeCapability{
			AccessMode: &csispec.VolumeCapability_AccessMode{Mode: mode},
			AccessType: &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{FsType: fsType, MountFlags: e.Options}},
		},
	})
	if err != nil {
		return fmt.Errorf("mount device %s on %s: %w", e.Device, e.Dir, err)
	}
	return nil
}

// volumeID stands in where the node service wants to know a volume: what is
// mounted on a directory is unmounted, no matter what it is.
const volumeID = "device"

// Unmount unmounts what is on dir; nothing there is success. A device that is
// gone or dead does not hold it up.
func (a *Agent) Unmount(ctx context.Context, dir string) error {
	_, err := a.o.Node.NodeUnstageVolume(ctx, &csispec.NodeUnstageVolumeRequest{VolumeId: volumeID, StagingTargetPath: dir})
	if err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}

// Watch keeps mounted what the table says and the DPU shows, and unmounts what
// the DPU has taken away, until ctx ends. What fails is logged and tried again.
func (a *Agent) Watch(ctx context.Context, table []Entry) {
	log := logr.FromContextOrDiscard(ctx)
	ticker := a.o.Clock.NewTicker(a.o.Period)
	defer ticker.Stop()
	told := map[string]string{}
	for ctx.Err() == nil {
		for dir, state := range a.pass(ctx, table) {
			if told[dir] != state {
				log.Info("device", "directory", dir, "state", state)
			}
			told[dir] = state
		}
		select {
		case <-ctx.Done():
		case <-a.o.Watcher.Changed():
		case <-ticker.C():
		}
	}
}

// pass goes over the table once and returns, by directory, the state of each entry.
func (a *Agent) pass(ctx context.Context, table []Entry) map[string]string {
	states := map[string]string{}
	shown, err := Devices(a.o.Finder)
	mounts, mountErr := a.o.Mounts()
	if err = errors.Join(err, mountErr); err != nil {
		for _, e := range table {
			states[e.Dir] = err.Error()
		}
		return states
	}
	for _, e := range table {
		states[e.Dir] = "not shown"
	}
	for _, s := range plan(table, shown, mounts, own{a.o.Finder.Roots.Dev, a.o.SharedType}) {
		err, done := s.why, "mounted"
		switch {
		case err != nil:
		case s.mount:
			err = a.mount(ctx, s.entry, s.device)
		default:
			done, err = "taken away, unmounted", a.Unmount(ctx, s.entry.Dir)
		}
		if err != nil {
			done = err.Error()
		}
		states[s.entry.Dir] = done
	}
	return states
}
