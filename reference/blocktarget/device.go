package blocktarget

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
)

// DefaultIOTimeout is how long I/O waits for a target that is out of reach.
const DefaultIOTimeout = 15 * time.Second

const (
	// dialTimeout bounds one attempt to reach the target and open the volume.
	dialTimeout = 3 * time.Second
	// dialPause is between two attempts.
	dialPause = 100 * time.Millisecond
	// maxTransfer is the most data that one request of a Device carries.
	maxTransfer = 4 << 20
	// maxClear is the most bytes that one request of a Device clears.
	maxClear = 1 << 30
)

// DeviceOptions say what a Device is a device of.
type DeviceOptions struct {
	// Address of the target, "host:port".
	Address string
	// Export is the name of what to open: a secret, as Export.String gives it.
	Export string
	// IOTimeout bounds each read and write; 0 means DefaultIOTimeout.
	IOTimeout time.Duration
	Log       logr.Logger
}

// Device is a volume of a target as something to read and write. A connection
// that is lost is made anew, and what was not answered is sent again; while
// there is none, I/O waits up to the timeout and then fails with EIO. Once the
// target says that there is no right to the volume (any more), all I/O fails
// with EIO until Raise opens it under a later epoch. It is safe for concurrent use.
type Device struct {
	o       DeviceOptions
	shape   shape
	log     logr.Logger
	keeping context.Context // ends with the device
	cancel  context.CancelFunc

	mu      sync.Mutex
	export  Export        // what is opened, under the epoch that it has by now
	conn    *conn         // nil while there is none
	kept    chan struct{} // closed when keep has ended
	final   error         // why there will be none any more
	doubt   bool          // a change that was not answered may be done yet
	made    int           // how many connections there were before the one that there is
	changed chan struct{} // closed at every change of the above
	stopped chan struct{} // closed by Interrupt, for the I/O that is there
}

// OpenDevice opens a volume, or says why not: ErrDenied if the target refuses
// it, else the target is out of reach. ctx bounds the opening only.
func OpenDevice(ctx context.Context, o DeviceOptions) (*Device, error) {
	if o.IOTimeout <= 0 {
		o.IOTimeout = DefaultIOTimeout
	}
	e, err := ParseExport(o.Export)
	if err != nil {
		return nil, err
	}
	first, err := dialExport(ctx, o.Address, o.Export)
	if err != nil {
		return nil, err
	}
	keeping, cancel := context.WithCancel(context.WithoutCancel(ctx))
	d := &Device{
		o: o, shape: first.shape, export: e, keeping: keeping, cancel: cancel, kept: make(chan struct{}), conn: first, changed: make(chan struct{}), stopped: make(chan struct{}),
		log: o.Log.WithValues("volume", e.Volume, "target", o.Address),
	}
	go d.keep(keeping, first, d.kept)
	return d, nil
}

// Size is the size of the volume in bytes, as it was when it was opened, or at
// the last Refresh.
func (d *Device) Size() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shape.size
}

// Refresh asks the target for the size of the volume again, and returns it in
// bytes.
func (d *Device) Refresh(ctx context.Context) (int64, error) {
	now, err := peek(ctx, d.o.Address, d.opens().String())
	if err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.size > d.shape.size {
		d.shape.size = now.size
	}
	return d.shape.size, nil
}

// opens is what a connection that is made now opens.
func (d *Device) opens() Export {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.export
}

// Raise opens the volume anew under a later epoch: when it returns nil, all that is
// sent is under this epoch, and nothing that was sent before reaches the volume any
// more; I/O that was not answered is sent again. ErrDenied if the device is at a later
// epoch, or the target says that this one is over: then nothing has changed. Any other
// error leaves open whether it was done, and the call may be repeated. The target is asked
// also if the device is at the epoch: that it is over may not have been noticed yet. ctx
// bounds it.
func (d *Device) Raise(ctx context.Context, epoch int64) error {
	to := d.opens()
	if epoch < max(to.Epoch, 1) {
		return fmt.Errorf("open volume %s at epoch %d: the device is at epoch %d: %w", to.Volume, epoch, to.Epoch, ErrDenied)
	}
	if _, err := peek(ctx, d.o.Address, to.At(epoch).String()); err != nil {
		return fmt.Errorf("open volume %s at epoch %d: %w", to.Volume, epoch, err)
	}
	if d.isAt(epoch) {
		return nil
	}
	d.reopen(epoch)
	for {
		c, err := d.await(time.Now().Add(d.o.IOTimeout), ctx.Done())
		if err != nil {
			return fmt.Errorf("open volume %s at epoch %d: %w", to.Volume, epoch, err)
		}
		if c.epoch >= epoch {
			return nil
		}
		c.fail(fmt.Errorf("%w: the device is opened at epoch %d", errLost, epoch))
	}
}

// isAt reports whether there is a connection under the epoch.
func (d *Device) isAt(epoch int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.final == nil && d.conn != nil && d.conn.epoch == epoch && !isClosed(d.conn.gone)
}

// reopen has connections that are made from now on open the volume under the epoch,
// also where the target had said no for good: that was of an earlier epoch.
func (d *Device) reopen(epoch int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.export.Epoch = max(d.export.Epoch, epoch)
	if d.final != nil && !errors.Is(d.final, errClosed) {
		d.final, d.kept = nil, make(chan struct{})
		go d.keep(d.keeping, nil, d.kept)
	}
}

// ReadOnly reports whether the target takes no changes.
func (d *Device) ReadOnly() bool { return d.shape.readOnly }

// keep makes the connection anew whenever it is lost, or if there is none, until ctx
// ends or the target says no.
func (d *Device) keep(ctx context.Context, c *conn, kept chan struct{}) {
	defer close(kept)
	for {
		if c != nil {
			select {
			case <-c.gone:
			case <-ctx.Done():
				c.part()
				d.settle(nil, errClosed)
				return
			}
			<-c.stopped
			d.lose(c)
		}
		next, err := d.redial(ctx)
		d.settle(next, err)
		if err != nil {
			return
		}
		c = next
	}
}

// lose takes note that the connection is gone.
func (d *Device) lose(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn = nil
	d.doubt = d.doubt || c.inDoubt()
	d.notify()
	d.log.Info("target lost", "reason", c.err.Error())
}

// errClosed: there is no device any more.
var errClosed = errors.New("the device was closed")

// settle takes note of a new connection, or that there will be none. Whatever
// the target answers to an opening, it has ended before what came by an older
// connection, so no change is in doubt any more.
func (d *Device) settle(c *conn, final error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn, d.final = c, final
	if !errors.Is(final, errClosed) {
		d.doubt = false
	}
	d.notify()
	if c != nil {
		d.made++
		d.log.Info("target found again")
	} else {
		d.log.Info("target given up", "reason", final.Error())
	}
}

func (d *Device) notify() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// redial tries until it has a connection; an error is final.
func (d *Device) redial(ctx context.Context) (*conn, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, dialTimeout)
		c, err := dialExport(attempt, d.o.Address, d.opens().String())
		cancel()
		switch {
		case err == nil && (c.shape.readOnly != d.shape.readOnly || c.shape.size < d.Size()):
			c.part()
			return nil, fmt.Errorf("the volume has %d bytes now and had %d: open it anew", c.shape.size, d.Size())
		case err == nil, errors.Is(err, ErrDenied):
			return c, err
		case ctx.Err() != nil:
			return nil, errClosed
		}
		d.log.V(1).Info("target is out of reach", "reason", err.Error())
		pause(ctx, dialPause)
	}
}

// await returns a living connection, waiting for one until the deadline or until
// stop is closed.
func (d *Device) await(deadline time.Time, stop <-chan struct{}) (*conn, error) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for {
		d.mu.Lock()
		c, final, changed := d.conn, d.final, d.changed
		d.mu.Unlock()
		switch {
		case final != nil:
			return nil, final
		case isClosed(stop):
			return nil, errInterrupted
		case c != nil && !isClosed(c.gone):
			return c, nil
		}
		select {
		case <-changed:
		case <-stop:
		case <-timer.C:
			return nil, errLost
		}
	}
}

// isClosed reports whether ch is closed.
func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// do has one request answered, sending it again when a connection is lost.
func (d *Device) do(q request, payload, into []byte) error {
	deadline := time.Now().Add(d.o.IOTimeout)
	d.mu.Lock()
	stop := d.stopped
	d.mu.Unlock()
	for {
		c, err := d.await(deadline, stop)
		if err == nil {
			err = c.roundTrip(q, payload, into, time.Until(deadline))
		}
		var answer syscall.Errno
		switch {
		case err == nil:
			return nil
		case errors.As(err, &answer) && !errors.Is(err, errLost):
			return answer
		case !errors.Is(err, errLost) || !time.Now().Before(deadline):
			return fmt.Errorf("%w: %w", syscall.EIO, err)
		}
	}
}

// ReadAt implements io.ReaderAt.
func (d *Device) ReadAt(p []byte, off int64) (int, error) {
	return transfer(len(p), maxTransfer, func(at, n int) error {
		return d.do(request{command: cmdRead, offset: uint64(off) + uint64(at), length: uint32(n)}, nil, p[at:at+n])
	})
}

// WriteAt implements io.WriterAt. After an error some of p may have been
// written, or may be yet: see Settled.
func (d *Device) WriteAt(p []byte, off int64) (int, error) {
	return transfer(len(p), maxTransfer, func(at, n int) error {
		return d.do(request{command: cmdWrite, offset: uint64(off) + uint64(at), length: uint32(n)}, p[at:at+n], nil)
	})
}

// transfer does total bytes in pieces and returns how many were done.
func transfer(total, most int, piece func(at, n int) error) (int, error) {
	for at := 0; at < total; {
		n := min(most, total-at)
		if err := piece(at, n); err != nil {
			return at, err
		}
		at += n
	}
	return total, nil
}

// Sync makes every finished write durable.
func (d *Device) Sync() error { return d.do(request{command: cmdFlush}, nil, nil) }

// Punch deallocates or zeroes a range of bytes, by fallocate(2)'s mode; it reads
// as zeroes after either.
func (d *Device) Punch(mode uint32, off, length int64) error {
	var flags uint16
	if mode&unix.FALLOC_FL_PUNCH_HOLE == 0 {
		if mode&unix.FALLOC_FL_ZERO_RANGE == 0 {
			return syscall.EOPNOTSUPP
		}
		flags = cmdFlagNoHole
	}
	_, err := transfer(int(length), maxClear, func(at, n int) error {
		return d.do(request{flags: flags, command: cmdWriteZeroes, offset: uint64(off) + uint64(at), length: uint32(n)}, nil, nil)
	})
	return err
}

// errInterrupted: the I/O is not wanted any longer.
var errInterrupted = errors.New("the I/O was interrupted")

// Interrupt ends the I/O that is there, with EIO; later I/O is not touched. See
// Settled for what became of it.
func (d *Device) Interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.stopped)
	d.stopped = make(chan struct{})
	if d.conn != nil {
		d.conn.fail(fmt.Errorf("%w: %w", errLost, errInterrupted))
	}
}

// Settled returns nil if every change that was ever asked for, and that is
// no longer waited for, has been done or will never be. Otherwise the target is
// out of reach, and may be about to work on a change whose answer was lost.
func (d *Device) Settled() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.doubt || (d.conn != nil && d.conn.inDoubt()) {
		return fmt.Errorf("the target %s was lost in the middle of a write and does not say whether it ended it", d.o.Address)
	}
	return nil
}

// Close ends the device: I/O that waits fails. It does not fail itself.
func (d *Device) Close() error {
	d.cancel()
	d.mu.Lock()
	kept := d.kept
	d.mu.Unlock()
	<-kept
	return nil
}
