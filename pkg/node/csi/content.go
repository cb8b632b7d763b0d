package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// DefaultSharedType is the kernel's name of virtio-fs.
const DefaultSharedType = "virtiofs"

// content is what an open volume is on this machine. There are three sorts: a block
// device, which is used raw or with a file system of ours; a file system that the
// platform shares, by its tag; and a directory of the platform's. All that differs
// between them is here.
type content interface {
	// String names it for people.
	String() string
	// refuses says what it cannot serve of a capability; nil if it serves it.
	refuses(c csiserver.Capability) error
	// isOn says whether it is what the mount on path shows, which is not known to be broken.
	isOn(path string, mp Mount) (bool, error)
	// stages says whether a line of the mount table is such as its staging on a path of that sort makes.
	stages(path string, mp Mount, all []Mount) bool
	// mount mounts it on path, where nothing is mounted.
	mount(ctx context.Context, path string, c csiserver.Capability) error
	// problems says what is wrong with it, its mounts aside.
	problems() []provisioner.Problem
}

// contentOf is the content of an open device, which is used in that mode.
func (s *Server) contentOf(dev provisioner.Device, mode provisioner.VolumeMode) (content, error) {
	switch {
	case dev.Directory != "":
		return directory{s, dev.Directory}, nil
	case dev.Tag != "":
		return shared{s, dev.Tag}, nil
	case dev.Path == "":
		return nil, fmt.Errorf("the platform opened device %q, which has no file in /dev", dev.Name)
	case mode == provisioner.Block:
		return rawDevice{device{s, dev.Path}}, nil
	}
	return formattedDevice{device{s, dev.Path}}, nil
}

// device is a block device, by its file.
type device struct {
	*Server
	path string
}

func (d device) String() string { return d.path }

func (d device) refuses(csiserver.Capability) error { return nil }

func (d device) problems() []provisioner.Problem {
	if err := d.o.Devices.Readable(d.path); err != nil {
		return inaccessible(reasonDeviceDead, "the device does not answer: "+err.Error())
	}
	return nil
}

// rawDevice is a block device that is shown as it is.
type rawDevice struct{ device }

func (d rawDevice) isOn(file string, _ Mount) (bool, error) {
	want, err := d.o.Devices.Number(d.path)
	if err != nil {
		return false, err
	}
	have, err := d.o.Devices.Number(file)
	return err == nil && have == want, err
}

// stages goes by the name of the file, which is that of the volume.
func (d rawDevice) stages(file string, mp Mount, _ []Mount) bool {
	return filepath.Base(mp.Path) == filepath.Base(file)
}

func (d rawDevice) mount(_ context.Context, file string, _ csiserver.Capability) error {
	return d.mounts.bind(d.path, file, nil)
}

// formattedDevice is a block device with a file system that this service makes.
type formattedDevice struct{ device }

func (d formattedDevice) isOn(path string, mp Mount) (bool, error) {
	return d.mounts.sameDevice(path, mp, d.path)
}

func (d formattedDevice) stages(_ string, mp Mount, _ []Mount) bool {
	return mp.Device == d.path && mp.whole()
}

// mount formats the device if it is blank, and mounts it.
func (d formattedDevice) mount(ctx context.Context, path string, c csiserver.Capability) error {
	ro := readers(c)
	made, err := d.o.Formatter.Ensure(ctx, d.path, c.FSType, ro)
	if err != nil {
		return deviceError(err)
	}
	if made {
		logr.FromContextOrDiscard(ctx).Info("made a file system", "device", d.path, "type", c.FSType)
	}
	if !ro && !made {
		if err := d.o.Formatter.Check(ctx, d.path, c.FSType); err != nil {
			return deviceError(err)
		}
		if err := d.grow(ctx, c.FSType, ""); err != nil {
			return err
		}
	}
	if err := d.o.Mounter.Mount(d.path, path, c.FSType, mountOptions(flags(c), ro)); err != nil {
		return fmt.Errorf("mount %s as %s: %w", d.path, c.FSType, err)
	}
	if !ro && !made {
		return d.grow(ctx, c.FSType, path)
	}
	return nil
}

// grow lets a file system have a device that is larger than it: a copy into a
// larger volume, or one that grew while it was not in use. Some grow while they
// are mounted, some while they are not, so it is tried both ways; one that
// cannot grow is used as it is.
func (d formattedDevice) grow(ctx context.Context, fsType, mounted string) error {
	grown, err := d.o.Formatter.Grow(ctx, d.path, fsType, mounted)
	if errors.Is(err, hostdev.ErrPrivilege) {
		logr.FromContextOrDiscard(ctx).Info("the file system stays smaller than its device", "device", d.path, "reason", err.Error())
		return nil
	}
	if err != nil {
		return deviceError(err)
	}
	if grown {
		logr.FromContextOrDiscard(ctx).Info("the file system grew", "device", d.path, "type", fsType)
	}
	return nil
}

// flags are those of the volume, with what its file system needs. A copy has the
// UUID of its source, and xfs mounts no second one with the same unless it is told
// not to compare (xfs(5), nouuid); ext4 never compares.
func flags(c csiserver.Capability) []string {
	if c.FSType == "xfs" {
		return append(slices.Clone(c.MountFlags), "nouuid")
	}
	return c.MountFlags
}

// shared is a file system that the platform shares, by its tag. It is mounted once
// a node and bound to each pod, where DPF mounts it for each.
type shared struct {
	*Server
	tag string
}

func (f shared) String() string { return f.tag }

func (f shared) refuses(csiserver.Capability) error { return nil }

func (f shared) isOn(path string, mp Mount) (bool, error) {
	return mp.Device == f.tag && f.mounts.dead(path, mp) == nil, nil
}

func (f shared) stages(_ string, mp Mount, _ []Mount) bool {
	return mp.Device == f.tag && mp.whole()
}

func (f shared) mount(_ context.Context, path string, c csiserver.Capability) error {
	if err := f.o.Mounter.Mount(f.tag, path, f.o.SharedType, mountOptions(c.MountFlags, readers(c))); err != nil {
		return fmt.Errorf("mount %s as %s: %w", f.tag, f.o.SharedType, err)
	}
	return nil
}

// problems are none: a file system that is shared answers by its mounts.
func (f shared) problems() []provisioner.Problem { return nil }

// directory is a directory of the platform's on this machine, which is bound.
type directory struct {
	*Server
	path string
}

func (d directory) String() string { return "directory " + d.path }

// refuses says what takes a device, or a file system that is not there yet.
func (d directory) refuses(c csiserver.Capability) error {
	switch {
	case c.Mode == provisioner.Block:
		return csiserver.Invalid("the volume is a directory of its platform and has no device: volumeMode Filesystem is wanted, or a StorageClass that makes block devices")
	case c.NamedFSType != "":
		return csiserver.Invalid("fsType %q is asked for, and the volume is a directory of its platform, on which no file system is made: leave the fsType out", c.NamedFSType)
	}
	if other := slices.DeleteFunc(slices.Clone(c.MountFlags), func(f string) bool { return f == "" || ofMount[f] }); len(other) > 0 {
		return csiserver.Invalid("mount option %s is one of a file system, and the volume is a directory, which takes those of a mount alone, such as nosuid or noatime",
			strings.Join(other, ","))
	}
	return nil
}

func (d directory) isOn(path string, _ Mount) (bool, error) {
	return d.o.Devices.Same(d.path, path)
}

// stages goes by what is shown of which file system. The platform's own mount of the directory is none.
func (d directory) stages(_ string, mp Mount, all []Mount) bool {
	below := holding(all, d.path)
	within, err := filepath.Rel(below.Path, d.path)
	return err == nil && mp.Path != d.path && mp.Filesystem == below.Filesystem && mp.Root == filepath.Join(below.Root, within)
}

func (d directory) mount(_ context.Context, path string, c csiserver.Capability) error {
	if err := d.gone(); err != nil {
		return fmt.Errorf("%w: %w", err, provisioner.ErrPrecondition)
	}
	return d.mounts.bind(d.path, path, mountOptions(c.MountFlags, readers(c)))
}

func (d directory) problems() []provisioner.Problem {
	if err := d.gone(); err != nil {
		return inaccessible(reasonDirectoryGone, err.Error())
	}
	return nil
}

// gone says why there is no such directory; nil if there is.
func (d directory) gone() error {
	fi, err := os.Stat(d.path)
	switch {
	case err != nil:
		return fmt.Errorf("the directory of the volume is gone, restore it: %w", err)
	case !fi.IsDir() || !filepath.IsAbs(d.path):
		return fmt.Errorf("the platform handed over %q as the directory of the volume, which is no directory or no absolute path", d.path)
	}
	return nil
}

// ofMount are the mount options that belong to a mount and not to its file system,
// so that each bind has its own (mount(8), "FILESYSTEM-INDEPENDENT").
var ofMount = map[string]bool{
	"ro": true, "rw": true, "suid": true, "nosuid": true, "dev": true, "nodev": true, "exec": true, "noexec": true,
	"atime": true, "noatime": true, "diratime": true, "nodiratime": true, "relatime": true, "strictatime": true, "nosymfollow": true,
}

// ofMounts are those of the flags that belong to a mount.
func ofMounts(flags []string) []string {
	return slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return !ofMount[f] })
}
