package fusepath

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/reference/snapemulator"
)

// export is a directory that a host can mount by its tag. Each mount is a FUSE
// connection of its own, whose descriptor the host hands over on the socket:
// so no mount has to propagate from the DPU to the host.
type export struct {
	path   *Path
	tag    string
	root   string
	gate   *gate
	open   *descriptors
	listen *net.UnixListener
}

var _ snapemulator.FileSystems = (*Path)(nil)

// Export implements snapemulator.FileSystems.
func (p *Path) Export(tag, root, path string) (snapemulator.FileSystem, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("replace the socket of file system %s: %w", tag, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for mounts of file system %s: %w", tag, err)
	}
	e := &export{path: p, tag: tag, root: root, gate: newGate(), open: newDescriptors(), listen: l}
	go e.accept()
	return e, nil
}

// Fence implements snapemulator.FileSystem. A host may have it mounted still; what the
// DPU has mounted for it can be unmounted.
func (e *export) Fence() {
	e.gate.fence()
	e.open.end()
}

// Close implements snapemulator.FileSystem. Mounts that the host still has answer EIO
// until it unmounts them, or the emulator ends.
func (e *export) Close() error { return e.listen.Close() }

func (e *export) accept() {
	for {
		c, err := e.listen.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			err = e.serve(c)
		}
		if err != nil {
			e.path.log.Error(err, "mount a file system", "tag", e.tag)
		}
	}
}

// handOver is how long a host may take to hand over its descriptor.
const handOver = 5 * time.Second

// serve takes a mount over, tells the host so, and answers it until it is
// unmounted.
func (e *export) serve(c *net.UnixConn) error {
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(handOver)); err != nil {
		return err
	}
	fd, err := receive(c)
	if err != nil {
		return fmt.Errorf("take over a mount: %w", err)
	}
	root, attr, err := openRoot(e.root, e.open)
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("share a directory: %w", err)
	}
	// No name and no attribute is kept: another host changes them too.
	var never time.Duration
	raw := fs.NewNodeFS(root, &fs.Options{EntryTimeout: &never, AttrTimeout: &never, NegativeTimeout: &never, NullPermissions: true, RootStableAttr: &attr})
	server, err := fuse.NewServer(&gated{raw, e.gate}, fmt.Sprintf("/dev/fd/%d", fd), &fuse.MountOptions{FsName: e.tag, Name: "virtiofs", MaxWrite: 128 << 10})
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("serve a mount: %w", err)
	}
	go server.Serve()
	_, err = c.Write([]byte{1})
	return err
}

// receive reads one descriptor.
func receive(c *net.UnixConn) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := c.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return -1, fmt.Errorf("%d control messages: %w", len(messages), errors.Join(err, unix.EBADMSG))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, fmt.Errorf("%d descriptors: %w", len(fds), errors.Join(err, unix.EBADMSG))
	}
	return fds[0], nil
}

// Mount mounts on target the file system that listens at socket, as a kernel
// with virtio-fs does for "mount -t virtiofs tag target". flags are mount(2)'s. The
// files on it must not be used by the process that serves them, which could wait
// for itself.
func Mount(socket, tag, target string, flags uintptr) error {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("mount %s: there is no virtio-fs device with this tag: %w", tag, err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(handOver)); err != nil {
		return err
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("mount %s: open /dev/fuse: %w", tag, err)
	}
	defer unix.Close(fd)
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions", fd)
	if err := unix.Mount(tag, target, "fuse.virtiofs", flags|unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", tag, target, err)
	}
	_, _, err = c.WriteMsgUnix([]byte{1}, unix.UnixRights(fd), nil)
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if err != nil {
		return fmt.Errorf("mount %s on %s: %w", tag, target, errors.Join(err, unix.Unmount(target, unix.MNT_DETACH)))
	}
	return nil
}
