package fusepath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/reference/loopdev"
	"github.com/moor-storage/moor/reference/snapemulator/datapath"
)

// Path is the data path of one emulator. Use Open.
type Path struct {
	dir    string
	prefix string
	log    logr.Logger
	lock   *os.File
	server *fuse.Server
	root   *fs.Inode

	mu      sync.Mutex
	devices map[string]*device
}

// maxWrite is the largest single write that FUSE hands on, in bytes.
const maxWrite = 1 << 20

// detachWait is how long Detach waits for the kernel to flush what it holds of
// an unmounted device; every block of it is refused, so it is short.
const detachWait = 100 * time.Millisecond

// closeWait is how long Close waits for the kernel to let go of the mount.
const closeWait = 2 * time.Second

// Open mounts the file system of the emulator called name on dir, which is made
// if needed. Loop devices and mounts that a dead emulator of this name left
// are removed first. A second one of the same dir while it lives is refused.
func Open(name, dir string, log logr.Logger) (*Path, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find the directory of the data path: %w", err)
	}
	p := &Path{dir: dir, prefix: "moor-snapemu." + name + ".", log: log, devices: map[string]*device{}}
	if err := p.takeLock(); err != nil {
		return nil, err
	}
	if err := p.clean(); err != nil {
		p.lock.Close()
		return nil, fmt.Errorf("remove what a dead emulator %s left: %w", name, err)
	}
	if err := p.mount(); err != nil {
		p.lock.Close()
		return nil, fmt.Errorf("mount the data path on %s (root and /dev/fuse are needed): %w", dir, err)
	}
	return p, nil
}

func (p *Path) takeLock() error {
	if err := os.MkdirAll(filepath.Dir(p.dir), 0o755); err != nil {
		return fmt.Errorf("make the parent of %s: %w", p.dir, err)
	}
	f, err := os.OpenFile(p.dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open the lock of %s: %w", p.dir, err)
	}
	if err := lockSoon(f); err != nil {
		f.Close()
		return fmt.Errorf("data path %s is used by a living emulator: %w", p.dir, err)
	}
	p.lock = f
	return nil
}

// dyingTime is how long an emulator that was killed may hold its lock still:
// its threads end one by one, and one that waits for the kernel ends late.
const dyingTime = 20 * time.Second

// lockSoon locks f, and waits for a holder that is about to end.
func lockSoon(f *os.File) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	late := time.After(dyingTime)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-again.C:
		case <-late:
			return err
		}
	}
}

// clean removes what an emulator that was killed left: its loop devices first,
// since they hold the file system.
func (p *Path) clean() error {
	errs := loopdev.DetachAll(p.prefix)
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return errors.Join(errs, fmt.Errorf("list the mounts: %w", err))
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != p.prefix {
			continue
		}
		// The mount is dead: its requests are not answered, so it cannot be waited for.
		if err := unix.Unmount(unescape(fields[1]), unix.MNT_DETACH); err != nil {
			errs = errors.Join(errs, fmt.Errorf("unmount %s: %w", fields[1], err))
		}
	}
	return errs
}

// unescape undoes the octal escapes of proc_mounts(5).
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func (p *Path) mount() error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	// No entry outlives a lookup: a name can mean another file tomorrow.
	var never time.Duration
	root := &fs.Inode{}
	server, err := fs.Mount(p.dir, root, &fs.Options{
		EntryTimeout: &never,
		AttrTimeout:  &never,
		MountOptions: fuse.MountOptions{
			DirectMountStrict: true, FsName: p.prefix, Name: "moor-snapemu",
			MaxWrite: maxWrite, MaxBackground: 64, DisableXAttrs: true,
		},
	})
	if err != nil {
		return err
	}
	p.server, p.root = server, root
	return nil
}

// Attach makes a file and a loop device of the target.
func (p *Path) Attach(ctx context.Context, t datapath.Target) (datapath.Device, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := p.prefix + strings.ReplaceAll(t.Name, "/", "-")
	if p.devices[name] != nil {
		return nil, fmt.Errorf("attach %s: it is attached", t.Name)
	}
	f := &file{target: t, gate: newGate()}
	f.size.Store(t.Size)
	p.root.AddChild(name, p.root.NewPersistentInode(ctx, f, fs.StableAttr{Mode: fuse.S_IFREG}), true)
	l, err := loopdev.Attach(filepath.Join(p.dir, name), name, loopdev.Options{ReadOnly: t.ReadOnly, Bypass: true, BlockSize: 512})
	if err != nil {
		f.gate.fence()
		p.remove(name, f)
		return nil, err
	}
	d := &device{path: p, name: name, file: f, loop: l}
	p.devices[name] = d
	return d, nil
}

// remove takes the file's name away; the kernel keeps the file as long as a
// loop device has it.
func (p *Path) remove(name string, f *file) {
	p.root.RmChild(name)
	f.ForgetPersistent()
}

// Close fences and detaches every device and unmounts. Where a host still has
// a device open, the mount goes when the process does.
func (p *Path) Close() error {
	p.mu.Lock()
	left := make([]*device, 0, len(p.devices))
	for _, d := range p.devices {
		left = append(left, d)
	}
	p.mu.Unlock()
	var errs error
	for _, d := range left {
		d.Fence()
		errs = errors.Join(errs, d.Detach())
	}
	if err := unix.Unmount(p.dir, 0); err != nil {
		p.log.Info("data path is still in use; detaching its mount", "path", p.dir, "reason", err.Error())
		errs = errors.Join(errs, unix.Unmount(p.dir, unix.MNT_DETACH))
	} else {
		p.awaitServer()
	}
	return errors.Join(errs, p.lock.Close())
}

// awaitServer waits until the kernel lets go of the file system. Another mount
// namespace that was made while it was mounted holds a copy for as long as it
// lives, so the wait has an end.
func (p *Path) awaitServer() {
	done := make(chan struct{})
	go func() { defer close(done); p.server.Wait() }()
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		p.log.Info("another mount namespace still holds the data path", "path", p.dir)
	}
}

// device is an attached namespace.
type device struct {
	path *Path
	name string
	file *file
	loop *loopdev.Device
}

// Node implements snapemulator.Device.
func (d *device) Node(path string) error { return d.loop.Node(path) }

// Number implements snapemulator.Device.
func (d *device) Number() string { return d.loop.Number() }

// Pause implements snapemulator.Device.
func (d *device) Pause(paused bool) { d.file.gate.pause(paused) }

// Resize implements snapemulator.Device: the file first, then the loop device over
// it, which looks at the file's size then.
func (d *device) Resize(bytes int64) error {
	if have := d.file.size.Load(); bytes < have {
		return fmt.Errorf("resize %s from %d to %d bytes: it cannot shrink", d.name, have, bytes)
	}
	d.file.size.Store(bytes)
	return d.loop.Refresh()
}

// Fence implements snapemulator.Device.
func (d *device) Fence() { d.file.gate.fence() }

// Detach implements snapemulator.Device. Closing a loop device flushes what the
// kernel holds of it; should that take long, it goes on in the background.
func (d *device) Detach() error {
	d.path.mu.Lock()
	if d.path.devices[d.name] != d {
		d.path.mu.Unlock()
		return nil
	}
	delete(d.path.devices, d.name)
	d.path.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- d.loop.Detach() }()
	d.path.remove(d.name, d.file)
	timer := time.NewTimer(detachWait)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		d.path.log.Info("loop device is still being flushed", "device", d.loop.Path)
		return nil
	}
}
