// Package pavdir reads and clears the directories that helper pods have as /pav.
//
// What is in them was written by pods that are not trusted, some of which are privileged: nothing
// there is opened before it is known to be a regular file, no link is followed, no mount is entered,
// and what is read is bounded. What is wrong with it is told in words.
//
// It knows no object of the API server, and decides nothing: when a directory may be read or cleared is
// up to the caller.
package pavdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// Root is the directory beneath which each helper pod has its own.
type Root struct {
	path string
}

// NewRoot is the root at an absolute path.
func NewRoot(path string) *Root { return &Root{path: filepath.Clean(path)} }

// Path of a directory beneath the root.
func (r *Root) Path(directory string) string { return filepath.Join(r.path, directory) }

// Problem is what is wrong with what a pod has left. It is no failure of the one who reads: to read
// again gives the same.
type Problem struct{ words string }

// Error makes Problem an error.
func (p Problem) Error() string { return p.words }

func problem(format string, args ...any) error { return Problem{fmt.Sprintf(format, args...)} }

// ErrName means that a name is not that of a directory of a helper pod.
var ErrName = errors.New("it has to be a name of lower case letters, digits, '-' and '.', 200 at most, that begins and ends with a letter or digit")

// names are those that a directory can have: those of pods. No other name leads out of the root, and
// none is that of a directory that is about to be removed.
var names = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,198}[a-z0-9])?$`)

// CheckName returns an error for a name that is not that of a directory of a helper pod.
func CheckName(directory string) error {
	if !names.MatchString(directory) {
		return fmt.Errorf("directory %q: %w", directory, ErrName)
	}
	return nil
}

// How a name is resolved: nothing leads out of where it begins. A name that may be a mount is resolved
// by within, all others by inside.
const (
	within = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS
	inside = within | unix.RESOLVE_NO_XDEV
)

// hidden is the Problem of what is not entered because it is a mount.
const hidden = "is hidden by a mount that lies on it"

// races bounds how often a name is resolved again because something was renamed meanwhile.
const races = 16

// openIn opens a name in a directory. What the pod has put there is told as a Problem; what is not there,
// as fs.ErrNotExist.
func openIn(dir *os.File, name string, flags int, resolve uint64) (*os.File, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW), Resolve: resolve}
	fd, err := -1, error(unix.EAGAIN)
	for n := 0; n < races && (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)); n++ {
		fd, err = unix.Openat2(int(dir.Fd()), name, &how)
	}
	path := filepath.Join(dir.Name(), name)
	switch {
	case err == nil:
		return os.NewFile(uintptr(fd), path), nil
	case errors.Is(err, unix.ELOOP):
		return nil, problem("is a symbolic link, which is not followed")
	case errors.Is(err, unix.EXDEV):
		return nil, Problem{hidden}
	case errors.Is(err, unix.ENOTDIR):
		return nil, problem("is not a directory")
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: err}
}

// open opens a directory of a helper pod.
func (r *Root) open(directory string) (*os.File, error) {
	if err := CheckName(directory); err != nil {
		return nil, err
	}
	f, err := r.openAny(directory)
	if p, wrong := errors.AsType[Problem](err); wrong {
		return nil, problem("%s %s", pods.MountPath, p.words)
	}
	return f, err
}

func (r *Root) openAny(name string) (*os.File, error) {
	root, err := os.OpenFile(r.path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the root of the directories of helper pods: %w", err)
	}
	defer root.Close()
	return openIn(root, name, unix.O_RDONLY|unix.O_DIRECTORY, inside)
}

// reopen opens for reading what an O_PATH file names.
func reopen(f *os.File) (*os.File, error) {
	out, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", f.Name(), errors.Unwrap(err))
	}
	return out, nil
}

// kinds are the types of files in words.
var kinds = map[uint32]string{
	unix.S_IFLNK: "a symbolic link", unix.S_IFDIR: "a directory", unix.S_IFIFO: "a FIFO", unix.S_IFSOCK: "a socket",
	unix.S_IFCHR: "a character device", unix.S_IFBLK: "a block device", unix.S_IFREG: "a regular file",
}

func kind(mode uint32) string {
	if words, ok := kinds[mode&unix.S_IFMT]; ok {
		return words
	}
	return "a file of an unknown kind"
}
