package pavdir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/moor-storage/moor/pkg/node/pods/mountinfo"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// Volume is what a staging pod has left at /pav/volume. It is the thing itself, not its name: what is
// put in its place is another. It has to be closed.
type Volume struct {
	// Mode is Filesystem if it is a directory, Block if it is a block device.
	Mode corev1.PersistentVolumeMode
	// SizeBytes of the block device; 0 of a directory.
	SizeBytes int64
	// Device is the number of the block device; 0 of a directory.
	Device uint64

	file *os.File
	// mount is the number of the mount that it is on.
	mount uint64
}

// Volume opens /pav/volume of a directory; fs.ErrNotExist if there is none.
//
// It may be a mount, of a file system that does not answer: nothing is asked of that.
func (r *Root) Volume(directory string) (*Volume, error) {
	dir, err := r.open(directory)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, err := openIn(dir, pods.FileVolume, unix.O_PATH, within)
	if p, wrong := errors.AsType[Problem](err); wrong {
		return nil, aboutFile(pods.FileVolume, p.words)
	}
	if err != nil {
		return nil, err
	}
	v := &Volume{file: f}
	if err := v.look(); err != nil {
		f.Close()
		return nil, err
	}
	return v, nil
}

// Close lets it go.
func (v *Volume) Close() { v.file.Close() }

// FD names it, for mount calls.
func (v *Volume) FD() int { return int(v.file.Fd()) }

func (v *Volume) look() error {
	var st unix.Statx_t
	const local = unix.AT_EMPTY_PATH | unix.AT_NO_AUTOMOUNT | unix.AT_STATX_DONT_SYNC // a dead server does not answer
	if err := unix.Statx(v.FD(), "", local, unix.STATX_TYPE|unix.STATX_MNT_ID, &st); err != nil {
		return fmt.Errorf("look at %s: %w", v.file.Name(), err)
	}
	v.mount = st.Mnt_id
	switch uint32(st.Mode) & unix.S_IFMT {
	case unix.S_IFDIR:
		v.Mode = corev1.PersistentVolumeFilesystem
		return nil
	case unix.S_IFBLK:
		v.Mode, v.Device = corev1.PersistentVolumeBlock, unix.Mkdev(st.Rdev_major, st.Rdev_minor)
		return v.measure()
	}
	return aboutFile(pods.FileVolume, "is "+kind(uint32(st.Mode))+", and has to be a directory or a block device")
}

func (v *Volume) measure() error {
	f, err := reopen(v.file)
	if err != nil {
		return aboutFile(pods.FileVolume, fmt.Sprintf("is block device %d:%d, which cannot be opened: %v", unix.Major(v.Device), unix.Minor(v.Device), errors.Unwrap(err)))
	}
	defer f.Close()
	if v.SizeBytes, err = f.Seek(0, io.SeekEnd); err != nil {
		return aboutFile(pods.FileVolume, "is a block device whose size cannot be read: "+err.Error())
	}
	return nil
}

// ShownBy reports whether a mount of a table shows this volume and no other that has been at its place
// before.
func (v *Volume) ShownBy(m mountinfo.Mount, all []mountinfo.Mount) (bool, error) {
	if v.Mode == corev1.PersistentVolumeBlock {
		var st unix.Stat_t
		if err := unix.Lstat(m.Path, &st); err != nil {
			return false, fmt.Errorf("look at %s: %w", m.Path, err)
		}
		return st.Mode&unix.S_IFMT == unix.S_IFBLK && st.Rdev == v.Device, nil
	}
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", v.FD()))
	if err != nil {
		return false, fmt.Errorf("find out where %s is: %w", v.file.Name(), err)
	}
	for _, own := range all {
		if own.ID != v.mount {
			continue
		}
		rest, err := filepath.Rel(own.Path, at)
		if err != nil || strings.HasPrefix(rest, "..") {
			return false, nil
		}
		return own.Device == m.Device && path.Join(own.Root, rest) == m.Root, nil
	}
	return false, nil
}
