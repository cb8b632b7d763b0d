package functions

import (
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"sync"
	"syscall"

	"github.com/moor-storage/moor/reference/snapemulator/datapath"
)

// device is one that the host sees. It is the backing of what the host reads and writes.
type device struct {
	key   Key
	inner datapath.Device

	mu      sync.Mutex
	changed *sync.Cond
	// by is the service that serves it; nil while none does.
	by *rpc.Client
	// lost counts how often it lost its service.
	lost int
	// gone: nothing serves it any more.
	gone bool
}

func newDevice(key Key, by *rpc.Client) *device {
	d := &device{key: key, by: by}
	d.changed = sync.NewCond(&d.mu)
	return d
}

// serve has the device served by a service; nil: by none, until another one adopts it.
func (d *device) serve(by *rpc.Client) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return fmt.Errorf("device %d of function %s is gone", d.key.NSID, d.key.Function)
	}
	d.by = by
	d.changed.Broadcast()
	return nil
}

// leave takes the device from a service, if it has it.
func (d *device) leave(by *rpc.Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.by == by && by != nil {
		d.by = nil
		d.lost++
	}
}

// waits reports whether no service has the device, and which loss of one it waits since.
func (d *device) waits() (since int, waits bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost, d.by == nil && !d.gone
}

// end has all I/O fail, that which waits too, and returns when none is under way.
func (d *device) end() {
	d.mu.Lock()
	d.gone = true
	d.changed.Broadcast()
	d.mu.Unlock()
	d.inner.Fence()
}

func (d *device) await() (*rpc.Client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.by == nil && !d.gone {
		d.changed.Wait()
	}
	if d.gone {
		return nil, syscall.EIO
	}
	return d.by, nil
}

// do has one operation done, by one service after the other until it is answered.
func (d *device) do(o IO) ([]byte, error) {
	o.Key = d.key
	for {
		by, err := d.await()
		if err != nil {
			return nil, err
		}
		var done Done
		if err := by.Call("Service.Do", &o, &done); err != nil {
			d.leave(by) // it has ended, or does not know the device
			continue
		}
		switch {
		case done.Errno != 0:
			return nil, syscall.Errno(done.Errno)
		case done.End:
			return done.Data, io.EOF
		}
		return done.Data, nil
	}
}

// ReadAt implements io.ReaderAt.
func (d *device) ReadAt(p []byte, off int64) (int, error) {
	got, err := d.do(IO{Op: opRead, Offset: off, Length: int64(len(p))})
	n := copy(p, got)
	if err == nil && n < len(p) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// WriteAt implements io.WriterAt.
func (d *device) WriteAt(p []byte, off int64) (int, error) {
	if _, err := d.do(IO{Op: opWrite, Offset: off, Data: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Sync implements datapath.Backing.
func (d *device) Sync() error {
	_, err := d.do(IO{Op: opSync})
	return err
}

// Punch implements datapath.Backing.
func (d *device) Punch(mode uint32, off, length int64) error {
	_, err := d.do(IO{Op: opPunch, Mode: mode, Offset: off, Length: length})
	return err
}

// remove ends the device and gives it back.
func (d *device) remove() error {
	d.end()
	return d.inner.Detach()
}

var errNoDevice = errors.New("the functions have no such device")
