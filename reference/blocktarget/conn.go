package blocktarget

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// clientUnanswered is how long sent data may stay unacknowledged before the
// client's kernel gives a connection up and a new one is tried.
const clientUnanswered = 5 * time.Second

// errLost: the connection ended before the answer came; what was asked may or
// may not have been done.
var errLost = errors.New("connection to the target lost")

// conn is one connection of a client with a volume open.
type conn struct {
	nc    net.Conn
	shape shape
	epoch int64 // under which the volume is open; 0: none

	send sync.Mutex

	mu      sync.Mutex
	cookie  uint64
	pending map[uint64]*call
	err     error
	// doubt is true if the connection ended with changes unanswered.
	doubt bool
	// gone is closed when err is set, stopped when the reading has ended.
	gone, stopped chan struct{}
}

// call is a request that waits for its answer.
type call struct {
	changes bool
	into    []byte
	done    chan error // holds one
}

// dialExport connects to the address and opens the export. ErrDenied if the
// target says so; every other error may pass.
func dialExport(ctx context.Context, address, export string) (*conn, error) {
	e, err := ParseExport(export)
	if err != nil {
		return nil, err
	}
	nc, s, err := dialFor(ctx, optGo, address, export)
	if err != nil {
		return nil, err
	}
	c := &conn{nc: nc, shape: s, epoch: e.Epoch, pending: map[uint64]*call{}, gone: make(chan struct{}), stopped: make(chan struct{})}
	go c.receive()
	return c, nil
}

// peek asks what the export is like, and opens nothing.
func peek(ctx context.Context, address, export string) (shape, error) {
	nc, s, err := dialFor(ctx, optInfo, address, export)
	if err != nil {
		return shape{}, err
	}
	return s, nc.Close()
}

// dialFor connects to the address and names the export in the option given.
func dialFor(ctx context.Context, code uint32, address, export string) (net.Conn, shape, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, shape{}, fmt.Errorf("reach the target: %w", err)
	}
	tune(nc, clientUnanswered)
	forget(nc, true)
	stop := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Now()) })
	s, err := greet(nc, code, export)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = nc.Close()
		return nil, shape{}, fmt.Errorf("open the volume at target %s: %w", address, err)
	}
	return nc, s, nil
}

// forget says whether the kernel is to throw away what was not sent yet when
// the connection or the process ends. What was given up must not be sent late.
func forget(nc net.Conn, yes bool) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	linger := -1 // send it in the background
	if yes {
		linger = 0
	}
	_ = tcp.SetLinger(linger)
}

// greet leads the client's half of the handshake. It reads no byte too many.
func greet(rw io.ReadWriter, code uint32, export string) (shape, error) {
	var hello [18]byte
	if _, err := io.ReadFull(rw, hello[:]); err != nil {
		return shape{}, err
	}
	if binary.BigEndian.Uint64(hello[:]) != magicHello || binary.BigEndian.Uint64(hello[8:]) != magicOption ||
		binary.BigEndian.Uint16(hello[16:])&flagFixedNewstyle == 0 {
		return shape{}, fmt.Errorf("no fixed newstyle greeting: %w", errBroken)
	}
	flags := binary.BigEndian.Uint16(hello[16:]) & (flagFixedNewstyle | flagNoZeroes)
	ask := binary.BigEndian.AppendUint32(nil, uint32(flags))
	ask = binary.BigEndian.AppendUint64(ask, magicOption)
	ask = binary.BigEndian.AppendUint32(ask, code)
	ask = binary.BigEndian.AppendUint32(ask, uint32(4+len(export)+2))
	ask = binary.BigEndian.AppendUint32(ask, uint32(len(export)))
	ask = append(ask, export...)
	ask = binary.BigEndian.AppendUint16(ask, 0)
	if _, err := rw.Write(ask); err != nil {
		return shape{}, err
	}
	var s shape
	for {
		kind, data, err := readAnswer(rw, code)
		switch {
		case err != nil:
			return shape{}, err
		case kind == repAck && s.size > 0:
			return s, nil
		case kind == repInfo:
			if len(data) == 12 && binary.BigEndian.Uint16(data) == infoExport {
				s.size = int64(binary.BigEndian.Uint64(data[2:]))
				s.readOnly = binary.BigEndian.Uint16(data[10:])&flagReadOnly != 0
			}
		case kind == repErrPolicy:
			return shape{}, fmt.Errorf("%w: %s", ErrDenied, bytes.ToValidUTF8(data, []byte("?")))
		case kind&repErr != 0:
			return shape{}, fmt.Errorf("the target refuses (%#x): %s", kind, bytes.ToValidUTF8(data, []byte("?")))
		default:
			return shape{}, fmt.Errorf("an answer of kind %d to an opening: %w", kind, errBroken)
		}
	}
}

func readAnswer(r io.Reader, code uint32) (kind uint32, data []byte, err error) {
	var head [20]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(head[16:])
	if binary.BigEndian.Uint64(head[:]) != magicAnswer || binary.BigEndian.Uint32(head[8:]) != code || length > maxOption {
		return 0, nil, fmt.Errorf("no answer to an option: %w", errBroken)
	}
	data = make([]byte, length)
	_, err = io.ReadFull(r, data)
	return binary.BigEndian.Uint32(head[12:]), data, err
}

// roundTrip sends one request and waits for its answer until limit from now;
// then the connection is given up, and with it everything on it. errLost if no
// answer came; every other error is the target's answer.
func (c *conn) roundTrip(q request, payload, into []byte, limit time.Duration) error {
	w := &call{changes: q.changes(), into: into, done: make(chan error, 1)}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return c.err
	}
	c.cookie++
	q.cookie = c.cookie
	c.pending[q.cookie] = w
	c.mu.Unlock()
	timer := time.AfterFunc(limit, func() { c.fail(fmt.Errorf("%w: no answer in time", errLost)) })
	defer timer.Stop()
	if err := c.transmit(q, payload); err != nil {
		c.fail(fmt.Errorf("%w: %w", errLost, err))
	}
	return <-w.done
}

func (c *conn) transmit(q request, payload []byte) error {
	buffers := net.Buffers{q.append(make([]byte, 0, requestLength))}
	if len(payload) > 0 {
		buffers = append(buffers, payload)
	}
	c.send.Lock()
	defer c.send.Unlock()
	_, err := buffers.WriteTo(c.nc)
	return err
}

// receive hands the answers to those who wait.
func (c *conn) receive() {
	defer close(c.stopped)
	r := newInput(c.nc)
	for {
		if err := c.receiveOne(r); err != nil {
			c.fail(fmt.Errorf("%w: %w", errLost, err))
			return
		}
	}
}

func (c *conn) receiveOne(r io.Reader) error {
	cookie, errno, err := readReply(r)
	if err != nil {
		return err
	}
	c.mu.Lock()
	w := c.pending[cookie]
	delete(c.pending, cookie)
	c.mu.Unlock()
	if w == nil {
		return fmt.Errorf("an answer to nothing that was asked: %w", errBroken)
	}
	if errno != 0 {
		w.done <- syscall.Errno(errno)
		return nil
	}
	if _, err := io.ReadFull(r, w.into); err != nil {
		w.done <- fmt.Errorf("%w: %w", errLost, err)
		return err
	}
	w.done <- nil
	return nil
}

// fail ends the connection and everything that waits on it; the first error
// counts.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	_ = c.nc.Close()
	for _, w := range c.pending {
		c.doubt = c.doubt || w.changes
		w.done <- err
	}
	c.pending = nil
	close(c.gone)
}

// inDoubt reports whether the connection ended with changes unanswered.
func (c *conn) inDoubt() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.doubt
}

// part says goodbye, so that the target does not wonder.
func (c *conn) part() {
	_ = c.nc.SetWriteDeadline(time.Now().Add(time.Second))
	err := c.transmit(request{command: cmdDisconnect}, nil)
	forget(c.nc, err != nil)
	c.fail(fmt.Errorf("%w: it was closed here", errLost))
	<-c.stopped
}

// State is how a Device stands to its target.
type State int

// The states of a Device.
const (
	// Connected: there is a connection, and nothing has shown that it is broken. A
	// network that swallows everything is noticed by what is sent, not before.
	Connected State = iota
	// Reconnecting: the connection was lost, and a new one is tried until there is one.
	Reconnecting
	// GivenUp: there will be no connection any more, unless Raise opens the volume
	// under a later epoch.
	GivenUp
)

// State returns how the device stands to its target now, and of one that was given
// up why. It asks no target.
func (d *Device) State() (State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.final != nil:
		return GivenUp, d.final
	case d.conn != nil && !isClosed(d.conn.gone):
		return Connected, nil
	}
	return Reconnecting, nil
}

// Remade is how often the connection was made anew, each time with another number at a target that
// gives numbers.
func (d *Device) Remade() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.made
}

// Probe returns nil if the target answers now, by a connection of its own, and lets the
// device have the volume; it opens nothing and changes nothing. ErrDenied if the target
// refuses, else the target is out of reach. ctx bounds it.
func (d *Device) Probe(ctx context.Context) error {
	_, err := peek(ctx, d.o.Address, d.opens().String())
	return err
}
