package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/mount-utils"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// disk is what the directories of this machine are on.
const disk = "/dev/vda1"

// machine is a Mounter, Devices and Formatter without a kernel.
type machine struct {
	mu    sync.Mutex
	table []Mount
	// devices maps a device file to its number; dead ones do not answer.
	devices map[string]uint64
	dead    map[string]bool
	// below overrides the number under a mount: its device was replaced.
	below map[string]uint64
	// super are options of the file system on a device, which the kernel keeps while it
	// is mounted anywhere, or held.
	super map[string][]string
	held  bool
	// unmountErr fails Unmount; mountErr fails Mount after it has mounted.
	unmountErr, mountErr error
	ensureErr, checkErr  error
	growErr              error
	smaller              map[string]bool
	formatted            map[string]string
	log                  []string
}

func newMachine(devices ...string) *machine {
	m := &machine{devices: map[string]uint64{}, dead: map[string]bool{}, super: map[string][]string{}, below: map[string]uint64{}, formatted: map[string]string{}, smaller: map[string]bool{}}
	for i, d := range devices {
		m.devices[d] = uint64(i + 1)
	}
	return m
}

func (m *machine) Mount(source, target, fstype string, options []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	root, shown := "/", source
	if slices.Contains(options, "bind") {
		if i := m.index(source); i >= 0 {
			source, fstype, root = m.table[i].Device, m.table[i].Type, m.table[i].Root
			shown = source
		} else if _, isDevice := m.devices[source]; !isDevice {
			source, fstype, root = disk, "ext4", source
		}
	}
	m.table = append(m.table, Mount{Root: root, MountPoint: mount.MountPoint{Device: source, Path: target, Type: fstype, Opts: options}})
	source = shown
	m.log = append(m.log, fmt.Sprintf("mount %s %s %v", filepath.Base(source), fstype, options))
	return m.mountErr
}

func (m *machine) index(path string) int {
	for i, mp := range slices.Backward(m.table) {
		if mp.Path == path {
			return i
		}
	}
	return -1
}

func (m *machine) Unmount(target string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unmountErr != nil {
		return m.unmountErr
	}
	i := m.index(target)
	if i < 0 {
		return errors.New("not mounted")
	}
	device := m.table[i].Device
	m.table = slices.Delete(slices.Clone(m.table), i, i+1)
	if !m.held && !slices.ContainsFunc(m.table, func(mp Mount) bool { return mp.Device == device }) {
		delete(m.super, device)
	}
	m.log = append(m.log, "unmount")
	return nil
}

func (m *machine) Detach(target string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.index(target)
	if i < 0 {
		return errors.New("not mounted")
	}
	m.table = slices.Delete(slices.Clone(m.table), i, i+1)
	m.log = append(m.log, "detach")
	return nil
}

func (m *machine) List() ([]Mount, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Clone(m.table)
	for i := range out {
		out[i].Filesystem, out[i].Super = out[i].Device, m.super[out[i].Device]
	}
	return out, nil
}

// Number is that of a device file, which a bound one is, too; what a file system
// is mounted on is none.
func (m *machine) Number(path string) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.index(path); i >= 0 && m.table[i].Type == "" {
		path = m.table[i].Device
	}
	return m.number(path)
}

func (m *machine) number(device string) (uint64, error) {
	if n, ok := m.devices[device]; ok {
		return n, nil
	}
	return 0, fmt.Errorf("%s: no such device", device)
}

func (m *machine) Below(path string) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, ok := m.below[path]; ok {
		return n, nil
	}
	if i := m.index(path); i >= 0 {
		path = m.table[i].Device
	}
	return m.number(path)
}

// Same compares what is shown of which device.
func (m *machine) Same(a, b string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	shown := func(path string) string {
		if i := m.index(path); i >= 0 {
			return m.table[i].Device + " " + m.table[i].Root
		}
		return disk + " " + path
	}
	return shown(a) == shown(b), nil
}

func (m *machine) Readable(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.index(path); i >= 0 {
		path = m.table[i].Device
	}
	if _, ok := m.devices[path]; !ok || m.dead[path] {
		return fmt.Errorf("read %s: input/output error", path)
	}
	return nil
}

func (m *machine) Ensure(_ context.Context, path, fsType string, readOnly bool) (bool, error) {
	if m.ensureErr != nil || m.formatted[path] != "" {
		return false, m.ensureErr
	}
	m.formatted[path] = fsType
	m.log = append(m.log, fmt.Sprintf("format %s %s %t", filepath.Base(path), fsType, readOnly))
	return true, nil
}

// Grow grows a file system to the size of its device; smaller are the devices
// that are larger than their file systems.
func (m *machine) Grow(_ context.Context, path, fsType, mounted string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	online := fsType == "xfs"
	if m.growErr != nil {
		return false, m.growErr
	}
	if !online && fsType != "ext4" {
		return false, fmt.Errorf("the device shows no %s: %w", fsType, hostdev.ErrForeign)
	}
	if !m.smaller[path] || online != (mounted != "") {
		return false, nil
	}
	delete(m.smaller, path)
	m.log = append(m.log, fmt.Sprintf("grow %s %s", filepath.Base(path), fsType))
	return true, nil
}

func (m *machine) Size(path string) (int64, error) { return 1 << 20, m.Readable(path) }

func (m *machine) Usage(path string) (Usage, error) {
	return Usage{TotalBytes: 100, FreeBytes: 60, UsedBytes: 30, TotalInodes: 10, FreeInodes: 9, UsedInodes: 1}, m.Readable(path)
}

func (m *machine) Check(context.Context, string, string) error { return m.checkErr }

// host opens volume "vN" as the device given for it.
type host struct {
	paths map[string]string
	// tags are those of volumes that are file systems.
	tags map[string]string
	// dirs are those of volumes that are directories.
	dirs map[string]string
	open map[string]bool
	// lookup is what Lookup fails with.
	lookup error
	err    error
	last   provisioner.OpenSpec
	log    []string
}

func (h *host) Open(_ context.Context, s provisioner.OpenSpec) (provisioner.Device, error) {
	h.last = s
	if h.err != nil {
		return provisioner.Device{}, h.err
	}
	if _, ok := h.paths[s.VolumeID]; !ok {
		return provisioner.Device{}, fmt.Errorf("volume %s: %w", s.VolumeID, provisioner.ErrNotFound)
	}
	h.open[s.VolumeID] = true
	d := h.device(s.VolumeID)
	d.Mode = s.Mode
	return d, nil
}

func (h *host) device(id string) provisioner.Device {
	if tag := h.tags[id]; tag != "" {
		return provisioner.Device{VolumeID: id, Name: tag, Tag: tag}
	}
	if dir := h.dirs[id]; dir != "" {
		return provisioner.Device{VolumeID: id, Name: id, Directory: dir}
	}
	return provisioner.Device{VolumeID: id, Name: filepath.Base(h.paths[id]), Path: h.paths[id]}
}

func (h *host) Close(_ context.Context, id, name string) error {
	h.log = append(h.log, "close "+id+" "+name)
	delete(h.open, id)
	return nil
}

func (h *host) Lookup(_ context.Context, id string) (provisioner.Device, error) {
	if h.lookup != nil {
		return provisioner.Device{}, h.lookup
	}
	if !h.open[id] {
		return provisioner.Device{}, provisioner.ErrNotFound
	}
	return h.device(id), nil
}

func (h *host) List(context.Context) ([]provisioner.Device, error) {
	var out []provisioner.Device
	for _, id := range slices.Sorted(maps.Keys(h.open)) {
		out = append(out, provisioner.Device{VolumeID: id})
	}
	return out, nil
}

// bed is a node service over fakes, with volumes v1 and v2.
type bed struct {
	*Server
	m               *machine
	h               *host
	dir             string
	staging, target string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	dir := t.TempDir()
	b := &bed{dir: dir, staging: filepath.Join(dir, "staging"), target: filepath.Join(dir, "pods", "p1", "mount")}
	b.m = newMachine("/dev/nvme0n1", "/dev/nvme0n2")
	b.h = &host{paths: map[string]string{"v1": "/dev/nvme0n1", "v2": "/dev/nvme0n2"}, open: map[string]bool{}}
	b.Server = New(Options{NodeID: "n1", Host: b.h, Mounter: b.m, Devices: b.m, Formatter: b.m})
	return b
}

const (
	snw  = csispec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	snsw = csispec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	mnro = csispec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
)

func fsCap(m csispec.VolumeCapability_AccessMode_Mode, fsType string, flags ...string) *csispec.VolumeCapability {
	return &csispec.VolumeCapability{
		AccessMode: &csispec.VolumeCapability_AccessMode{Mode: m},
		AccessType: &csispec.VolumeCapability_Mount{Mount: &csispec.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}},
	}
}

func blockCap(m csispec.VolumeCapability_AccessMode_Mode) *csispec.VolumeCapability {
	return &csispec.VolumeCapability{
		AccessMode: &csispec.VolumeCapability_AccessMode{Mode: m},
		AccessType: &csispec.VolumeCapability_Block{Block: &csispec.VolumeCapability_BlockVolume{}},
	}
}

func (b *bed) stageV(t *testing.T, id string, c *csispec.VolumeCapability) error {
	t.Helper()
	_, err := b.NodeStageVolume(t.Context(), &csispec.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: b.staging, VolumeCapability: c})
	return err
}

func (b *bed) publishV(t *testing.T, target string, c *csispec.VolumeCapability, ro bool) error {
	t.Helper()
	_, err := b.NodePublishVolume(t.Context(), &csispec.NodePublishVolumeRequest{
		VolumeId: "v1", StagingTargetPath: b.staging, TargetPath: target, VolumeCapability: c, Readonly: ro,
	})
	return err
}

func (b *bed) unpublishV(t *testing.T, target string) error {
	t.Helper()
	_, err := b.NodeUnpublishVolume(t.Context(), &csispec.NodeUnpublishVolumeRequest{VolumeId: "v1", TargetPath: target})
	return err
}

func (b *bed) unstageV(t *testing.T) error {
	t.Helper()
	_, err := b.NodeUnstageVolume(t.Context(), &csispec.NodeUnstageVolumeRequest{VolumeId: "v1", StagingTargetPath: b.staging})
	return err
}
