package zerotrust

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"k8s.io/mount-utils"
	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/internal/hostdev"
)

// Node formats and mounts; the CSI node service over a Host does.
type Node interface {
	NodeStageVolume(context.Context, *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error)
	NodeUnstageVolume(context.Context, *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error)
}

// Signs tells that the devices may have changed.
type Signs interface {
	// C has a value after a change; changes that follow closely are one.
	C() <-chan struct{}
}

// Options of a Guest.
type Options struct {
	Finder *hostdev.Finder
	Node   Node
	Signs  Signs
	// Mounts lists what is mounted.
	Mounts func() ([]mount.MountPoint, error)
	// SharedType is what file systems that the DPU shows are mounted as;
	// virtiofs if empty.
	SharedType string
	// Period is how often to look without a sign: signs may be lost, and a
	// mount that failed is tried again.
	Period time.Duration
	// Clock is the machine's if nil.
	Clock clock.WithTicker
}

// Guest works with the devices of this host.
type Guest struct{ o Options }

// New returns a Guest.
func New(o Options) *Guest {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.SharedType = cmp.Or(o.SharedType, sharedType)
	return &Guest{o: o}
}

func isAbsent(err error) bool { return errors.Is(err, hostdev.ErrAbsent) }

// Mount mounts a device, and makes a file system on it if it is blank. It waits
// for the device until ctx ends. Repeated it changes nothing.
func (g *Guest) Mount(ctx context.Context, e Entry) error {
	ticker := g.o.Clock.NewTicker(g.o.Period)
	defer ticker.Stop()
	for {
		shown, err := Devices(g.o.Finder)
		if err != nil {
			return fmt.Errorf("look for device %s: %w", e.Device, err)
		}
		device, err := e.Device.Pick(shown)
		if err == nil {
			return g.mount(ctx, e, device)
		}
		if !isAbsent(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the device to mount on %s: %w: %w", e.Dir, context.Cause(ctx), err)
		case <-g.o.Signs.C():
		case <-ticker.C():
		}
	}
}

func (g *Guest) mount(ctx context.Context, e Entry, s Shown) error {
	if err := e.fits(s); err != nil {
		return fmt.Errorf("mount on %s: %w", e.Dir, err)
	}
	fsType := e.FSType
	if s.Tag != "" {
		fsType = "" // the node service has its own word for it
	}
	mode := csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	if slices.Contains(e.Options, "ro") {
		mode = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	}
	_, err := g.o.Node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: s.Name, PublishContext: placeOf(s), StagingTargetPath: e.Dir,
		VolumeCapability: &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: e.Options}},
		},
	})
	if err != nil {
		return fmt.Errorf("mount device %s on %s: %w", e.Device, e.Dir, err)
	}
	return nil
}

// volumeID stands in where the node service wants to know a volume: what is
// mounted on a directory is unmounted whatever it is.
const volumeID = "device"

// Unmount unmounts what is on dir; nothing there is success. A device that is
// gone or dead does not hold it up.
func (g *Guest) Unmount(ctx context.Context, dir string) error {
	_, err := g.o.Node.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: volumeID, StagingTargetPath: dir})
	if err != nil {
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	return nil
}

// Watch keeps mounted what the table says and the DPU shows, and unmounts what
// the DPU has taken away, until ctx ends. What fails is logged and tried again.
func (g *Guest) Watch(ctx context.Context, table []Entry) {
	log := logr.FromContextOrDiscard(ctx)
	ticker := g.o.Clock.NewTicker(g.o.Period)
	defer ticker.Stop()
	told := map[string]string{}
	for ctx.Err() == nil {
		for dir, words := range g.pass(ctx, table) {
			if told[dir] != words {
				log.Info("device", "directory", dir, "state", words)
			}
			told[dir] = words
		}
		select {
		case <-ctx.Done():
		case <-g.o.Signs.C():
		case <-ticker.C():
		}
	}
}

// pass goes over the table once and says, by directory, how each entry stands.
func (g *Guest) pass(ctx context.Context, table []Entry) map[string]string {
	said := map[string]string{}
	shown, err := Devices(g.o.Finder)
	mounts, mountErr := g.o.Mounts()
	if err = errors.Join(err, mountErr); err != nil {
		for _, e := range table {
			said[e.Dir] = err.Error()
		}
		return said
	}
	for _, e := range table {
		said[e.Dir] = "not shown"
	}
	for _, s := range plan(table, shown, mounts, own{g.o.Finder.Roots.Dev, g.o.SharedType}) {
		err, done := s.why, "mounted"
		switch {
		case err != nil:
		case s.mount:
			err = g.mount(ctx, s.entry, s.device)
		default:
			done, err = "taken away, unmounted", g.Unmount(ctx, s.entry.Dir)
		}
		if err != nil {
			done = err.Error()
		}
		said[s.entry.Dir] = done
	}
	return said
}
