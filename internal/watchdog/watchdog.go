// Package watchdog feeds the watchdog of a machine, which resets it when it is
// not fed for its timeout: Linux's watchdog device, by the interface of
// Documentation/watchdog/watchdog-api.rst, or the stand-in of the test bed.
package watchdog

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Dog is a watchdog that runs.
type Dog interface {
	// Timeout after which it resets the machine.
	Timeout() time.Duration
	// Feed begins the timeout anew.
	Feed() error
	// Close gives the watchdog back. Disarmed, it stops; else it goes on, with
	// its whole timeout once more, and so does one that cannot be stopped.
	Close(disarm bool) error
}

// Open starts the watchdog at path, or takes over one that runs, which feeds it.
// It is asked for a timeout, which it may round or refuse; Timeout says which one
// it has. A unix socket is a stand-in.
func Open(path string, timeout time.Duration) (Dog, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("find the watchdog: %w", err)
	}
	if fi.Mode()&os.ModeSocket != 0 {
		return dial(path, timeout)
	}
	return openDevice(path, timeout)
}

// device is Linux's /dev/watchdog.
type device struct {
	fd      int
	path    string
	timeout time.Duration
}

// magic is what stops a watchdog whose device is closed next.
const magic = "V"

func openDevice(path string, timeout time.Duration) (*device, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open watchdog %s: is another program feeding it? %w", path, err)
	}
	d := &device{fd: fd, path: path}
	if d.timeout, err = setTimeout(fd, timeout); err != nil {
		return nil, errors.Join(fmt.Errorf("find out the timeout of watchdog %s: %w", path, err), d.Close(true))
	}
	return d, nil
}

// setTimeout asks for a timeout, in whole seconds, and returns what there is: a
// device may round it, or have one that cannot be changed.
func setTimeout(fd int, timeout time.Duration) (time.Duration, error) {
	asked := int((timeout + time.Second - 1) / time.Second)
	refused := unix.IoctlSetPointerInt(fd, unix.WDIOC_SETTIMEOUT, asked)
	// An int of C, which the Go of this name is not.
	seconds, err := unix.IoctlGetUint32(fd, unix.WDIOC_GETTIMEOUT)
	if err != nil || seconds == 0 {
		return 0, errors.Join(fmt.Errorf("it has none (%d s)", seconds), err, refused)
	}
	return time.Duration(seconds) * time.Second, nil
}

func (d *device) Timeout() time.Duration { return d.timeout }

func (d *device) Feed() error {
	// Linux ignores the argument, but the number of the call says that it is
	// written to.
	if _, err := unix.IoctlGetUint32(d.fd, unix.WDIOC_KEEPALIVE); err != nil {
		return fmt.Errorf("feed watchdog %s: %w", d.path, err)
	}
	return nil
}

func (d *device) Close(disarm bool) error {
	var err error
	if disarm {
		_, err = unix.Write(d.fd, []byte(magic))
	}
	if err = errors.Join(err, unix.Close(d.fd)); err != nil {
		return fmt.Errorf("close watchdog %s: %w", d.path, err)
	}
	return nil
}
