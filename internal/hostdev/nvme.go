package hostdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// sectorBytes is the unit of the sysfs attribute "size", whatever the device's
// own block size is (kernel Documentation/ABI/stable/sysfs-block).
const sectorBytes = 512

// Block is a block device that was found.
type Block struct {
	// Name is that of the disk, such as nvme0n1.
	Name string
	// Path is its file under Roots.Dev.
	Path string
	// SizeBytes is its size.
	SizeBytes int64
	// Address and NamespaceID are where it was found.
	Address     string
	NamespaceID int64
	// UUID of the namespace, lower case; empty if it has none. It stays when
	// the DPU shows the same volume elsewhere.
	UUID string
}

// Finder finds NVMe namespaces on this host. The zero Clock is the real one.
type Finder struct {
	Roots Roots
	Clock clock.Clock
	// Bind makes Wait bind the nvme driver to a function that has none, and
	// once more to one whose controller it has given up; BindShared makes
	// WaitShared bind that of virtio.
	Bind, BindShared bool
	// Load loads drivers that the kernel does not have yet, by modprobe; nil:
	// they are not loaded.
	Load Runner
}

func (f *Finder) clock() clock.Clock {
	if f.Clock == nil {
		return clock.RealClock{}
	}
	return f.Clock
}

// Find returns the block device of namespace nsid behind the PCI function at
// address. It never waits. ErrAbsent while something of it is missing, with
// words that say what; ErrAddress if address or nsid make no sense.
func (f *Finder) Find(address string, nsid int64) (Block, error) {
	addr, err := NormalizeAddress(address)
	if err != nil {
		return Block{}, err
	}
	dir := f.Roots.sys("bus/pci/drivers/nvme", addr, "nvme")
	controllers, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Block{}, f.whyNoController(addr)
	}
	if err != nil {
		return Block{}, fmt.Errorf("list the NVMe controllers of %s: %w", addr, err)
	}
	for _, c := range controllers {
		b, err := f.inController(filepath.Join(dir, c.Name()), addr, nsid)
		if err == nil || !errors.Is(err, errOther) {
			return b, err
		}
	}
	return Block{}, fmt.Errorf("PCI function %s has an NVMe controller but no namespace %d on it: %w", addr, nsid, ErrAbsent)
}

// errOther says that a sysfs directory is not the one looked for.
var errOther = errors.New("another namespace")

// whyNoController says how far the function at addr has come.
func (f *Finder) whyNoController(addr string) error {
	driver, err := f.Driver(addr)
	switch {
	case err != nil:
		return err
	case driver == "":
		return fmt.Errorf("PCI function %s is there but bound to no driver: %w", addr, ErrAbsent)
	case driver != nvmeDriver:
		return fmt.Errorf("PCI function %s is bound to driver %s, want %s: %w", addr, driver, nvmeDriver, ErrAbsent)
	}
	return fmt.Errorf("PCI function %s is bound to %s but has no controller yet: %w", addr, nvmeDriver, ErrAbsent)
}

// namespaceName matches a namespace's directory: nvme0n1, or nvme0c1n1 for one
// path of a multipath namespace (drivers/nvme/host/core.c, nvme_alloc_ns).
var namespaceName = regexp.MustCompile(`^(nvme\d+)(?:c\d+)?(n\d+)$`)

func (f *Finder) inController(dir, addr string, nsid int64) (Block, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Block{}, errOther
	}
	for _, e := range entries {
		m := namespaceName.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		ns := filepath.Join(dir, e.Name())
		if id, err := readInt(filepath.Join(ns, "nsid")); err != nil || id != nsid {
			continue
		}
		return f.describe(ns, m[1]+m[2], addr, nsid)
	}
	return Block{}, errOther
}

// describe reads size and device file of the namespace in sysfs directory ns,
// whose disk is called head.
func (f *Finder) describe(ns, head, addr string, nsid int64) (Block, error) {
	b := Block{Name: head, Path: filepath.Join(f.Roots.Dev, head), Address: addr, NamespaceID: nsid}
	sectors, err := readInt(filepath.Join(ns, "size"))
	if err != nil {
		return Block{}, fmt.Errorf("size of namespace %d of %s: %v: %w", nsid, addr, err, ErrAbsent)
	}
	if sectors <= 0 {
		return Block{}, fmt.Errorf("namespace %d of %s has size 0: the DPU has not attached its storage: %w", nsid, addr, ErrAbsent)
	}
	if sectors > math.MaxInt64/sectorBytes {
		return Block{}, fmt.Errorf("namespace %d of %s has size %d, which cannot be: %w", nsid, addr, sectors, ErrAbsent)
	}
	b.SizeBytes = sectors * sectorBytes
	b.UUID = f.uuid(ns, head)
	fi, err := os.Stat(b.Path)
	if err != nil {
		return Block{}, fmt.Errorf("namespace %d of %s is disk %s but has no device file: %v: %w", nsid, addr, head, err, ErrAbsent)
	}
	if err := f.sameNumber(ns, head, fi); err != nil {
		return Block{}, err
	}
	return b, nil
}

// noUUID is what the kernel shows of a namespace without one.
const noUUID = "00000000-0000-0000-0000-000000000000"

// uuid reads the namespace's UUID: of the path, or of the multipath disk.
func (f *Finder) uuid(ns, head string) string {
	for _, path := range []string{filepath.Join(ns, "uuid"), f.Roots.sys("class/block", head, "uuid")} {
		if id, err := readTrimmed(path); err == nil && id != "" && id != noUUID {
			return strings.ToLower(id)
		}
	}
	return ""
}

// sameNumber checks that the device file is the disk that sysfs means: a stale
// file of that name would lead to another volume. A tree without numbers, or a
// plain file as the device (both in tests only), passes.
func (f *Finder) sameNumber(ns, head string, fi fs.FileInfo) error {
	want, err := readTrimmed(f.Roots.sys("class/block", head, "dev"))
	if err != nil {
		want, err = readTrimmed(filepath.Join(ns, "dev"))
	}
	rdev, isBlock := deviceNumber(fi)
	if err != nil || !isBlock {
		return nil
	}
	return compareNumber(head, rdev, want)
}

func compareNumber(head string, rdev uint64, want string) error {
	if have := fmt.Sprintf("%d:%d", unix.Major(rdev), unix.Minor(rdev)); have != want {
		return fmt.Errorf("device file of %s is %s, sysfs says %s: a stale file: %w", head, have, want, ErrAbsent)
	}
	return nil
}

// Wait is Find repeated until the device is there or ctx ends; then the error
// wraps both ErrAbsent and the context's. With Bind set, a function without
// the nvme driver is bound to it on the way.
func (f *Finder) Wait(ctx context.Context, address string, nsid int64) (Block, error) {
	b, err := f.await(ctx, Identity{Address: address}, func() (Block, error) { return f.Find(address, nsid) })
	if err != nil {
		return Block{}, fmt.Errorf("wait for namespace %d of PCI function %s: %w", nsid, address, err)
	}
	return b, nil
}

// await repeats find until the device is there, and binds the driver to the
// function that id means on the way.
func (f *Finder) await(ctx context.Context, id Identity, find func() (Block, error)) (b Block, err error) {
	k := keeper{f: f}
	err = poll(ctx, f.clock(), func() error {
		var err error
		if b, err = find(); err == nil || !f.Bind || !errors.Is(err, ErrAbsent) {
			return err
		}
		if bindErr := k.bind(ctx, id); bindErr != nil {
			return fmt.Errorf("%w; %w", err, bindErr)
		}
		return err
	})
	return b, err
}

// List returns every NVMe namespace behind a PCI function that has size and
// device file, ordered by address and namespace.
func (f *Finder) List() ([]Block, error) {
	found, err := filepath.Glob(f.Roots.sys("bus/pci/drivers/nvme/*/nvme/*/*/nsid"))
	if err != nil {
		return nil, fmt.Errorf("list NVMe namespaces: %w", err)
	}
	slices.Sort(found)
	var out []Block
	for _, p := range found {
		ns := filepath.Dir(p)
		m := namespaceName.FindStringSubmatch(filepath.Base(ns))
		id, err := readInt(p)
		if m == nil || err != nil {
			continue
		}
		addr := filepath.Base(filepath.Dir(filepath.Dir(filepath.Dir(ns))))
		if b, err := f.describe(ns, m[1]+m[2], addr, id); err == nil {
			out = append(out, b)
		}
	}
	return out, nil
}
