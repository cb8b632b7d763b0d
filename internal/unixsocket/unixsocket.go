// Package unixsocket owns one idea: how a server takes a unix socket's path,
// also from a server that died, and never from one that lives.
package unixsocket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

const (
	// maxPath is the longest path in bytes: sun_path of unix(7) has 108, one of
	// them the final NUL.
	maxPath = 107
	// probe bounds the question whether an old socket is still served.
	probe = time.Second
)

var (
	// ErrServed means that another process serves on the socket.
	ErrServed = errors.New("another process serves on it, stop that one first")
	// ErrForeign means that what is at the path is no socket.
	ErrForeign = errors.New("there is a file of another kind in its place, remove it or choose another path")
)

// CheckPath returns an error that says that a path is too long for a socket.
func CheckPath(path string) error {
	if n := len(path); n > maxPath {
		return fmt.Errorf("the socket path has %d bytes, the kernel allows %d: choose a shorter directory, or a symlink", n, maxPath)
	}
	return nil
}

// Listen makes the socket, in place of one that an earlier process left behind.
// What is still answered, or is no socket, is left alone: ErrServed, ErrForeign.
func Listen(path string) (*net.UnixListener, error) {
	if err := CheckPath(path); err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	return l, nil
}

func removeStale(path string) error {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look what is there: %w", err)
	case fi.Mode()&os.ModeSocket == 0:
		return ErrForeign
	}
	if c, err := net.DialTimeout("unix", path, probe); err == nil {
		_ = c.Close()
		return ErrServed
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove what a dead process left: %w", err)
	}
	return nil
}
