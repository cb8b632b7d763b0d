package functions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/internal/listen"
	"github.com/moor-storage/moor/internal/unixsocket"
	"github.com/moor-storage/moor/reference/snapemulator/datapath"
)

// Options of a Server.
type Options struct {
	// Socket is its unix socket.
	Socket string
	// DataPath makes the host's devices; the server closes it.
	DataPath datapath.DataPath
	// RecoveryTime is how long I/O waits for a service.
	RecoveryTime time.Duration
	Log          logr.Logger
	// Clock may be nil: the machine's.
	Clock clock.WithDelayedExecution
}

// Server holds the host's devices. Use New.
type Server struct {
	o        Options
	listener *net.UnixListener

	mu      sync.Mutex
	devices map[Key]*device
	// by is the service that came last; nil while there is none.
	by *rpc.Client
}

// New makes a server without devices. Services can connect when it returns, and are answered
// while Run runs.
func New(o Options) (*Server, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	l, err := unixsocket.Listen(o.Socket)
	if err != nil {
		return nil, err
	}
	return &Server{o: o, listener: l, devices: map[Key]*device{}}, nil
}

// Run answers services until ctx ends; then all devices go.
func (s *Server) Run(ctx context.Context) error {
	var sessions sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer listen.CloseWith(ctx, s.listener)()
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			cancel()
			err = errors.Join(err, s.close())
			sessions.Wait()
			return err
		}
		sessions.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			s.converse(ctx, conn)
		})
	}
}

// converse speaks with one service, by one of its connections.
func (s *Server) converse(ctx context.Context, conn net.Conn) {
	kind := make([]byte, 1)
	if _, err := io.ReadFull(conn, kind); err != nil {
		return
	}
	if kind[0] == control {
		r := rpc.NewServer()
		if err := r.RegisterName("Functions", &calls{Server: s, open: func(t datapath.Target) (datapath.Device, error) { return s.o.DataPath.Attach(ctx, t) }}); err != nil {
			s.o.Log.Error(err, "serve")
			return
		}
		r.ServeConn(conn)
		return
	}
	ended := make(chan struct{})
	by := rpc.NewClient(&watched{Conn: conn, ended: ended})
	s.began(by)
	if _, err := conn.Write([]byte{data}); err == nil { // from now on it may adopt
		<-ended
	}
	_ = by.Close() // it has ended
	s.ended(by)
}

// watched tells when its connection is closed.
type watched struct {
	net.Conn
	once  sync.Once
	ended chan struct{}
}

// Read implements net.Conn.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err != nil {
		w.once.Do(func() { close(w.ended) })
	}
	return n, err
}

// began takes a service in place of the one before, which has lost all its devices.
func (s *Server) began(by *rpc.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.devices {
		d.leave(s.by)
	}
	s.by = by
}

// ended has the devices of a service wait for another, for the recovery time.
func (s *Server) ended(by *rpc.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == by {
		s.by = nil
	}
	left := map[*device]int{}
	for _, d := range s.devices {
		d.leave(by)
		if since, waits := d.waits(); waits {
			left[d] = since
		}
	}
	s.o.Log.Info("SNAP has ended", "devices", len(left))
	s.o.Clock.AfterFunc(s.o.RecoveryTime, func() { s.giveUp(left) })
}

// giveUp ends the devices that wait still.
func (s *Server) giveUp(left map[*device]int) {
	for d, then := range left {
		if since, waits := d.waits(); !waits || since != then || !s.forget(d) {
			continue
		}
		s.o.Log.Info("device given up: SNAP did not recover it in time", "function", d.key.Function, "nsid", d.key.NSID)
		if err := d.remove(); err != nil {
			s.o.Log.Error(err, "give back a device", "function", d.key.Function)
		}
	}
}

// forget takes a device out, and reports whether it was there.
func (s *Server) forget(d *device) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.devices[d.key] != d {
		return false
	}
	delete(s.devices, d.key)
	return true
}

func (s *Server) close() error {
	s.mu.Lock()
	var left []*device
	for _, d := range s.devices {
		left = append(left, d)
	}
	clear(s.devices)
	s.mu.Unlock()
	var err error
	for _, d := range left {
		err = errors.Join(err, d.remove())
	}
	return errors.Join(err, s.o.DataPath.Close())
}

func (s *Server) find(key Key) (*device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[key]
	if d == nil {
		return nil, fmt.Errorf("device %d of function %s: %w", key.NSID, key.Function, errNoDevice)
	}
	return d, nil
}

// calls are what a service calls.
type calls struct {
	*Server
	// open makes a device of the host, unless the server ends: a call has no context of its own.
	open func(datapath.Target) (datapath.Device, error)
}

// Kept lists the devices that no service has.
func (s *calls) Kept(_ *None, out *[]Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, d := range s.devices {
		if _, waits := d.waits(); waits {
			*out = append(*out, key)
		}
	}
	slices.SortFunc(*out, func(a, b Key) int {
		if a.Function != b.Function && a.Function < b.Function || a.Function == b.Function && a.NSID < b.NSID {
			return -1
		}
		return 1
	})
	return nil
}

// Attach makes a device, and returns its number.
func (s *calls) Attach(a *Attach, number *string) error {
	s.mu.Lock()
	by, taken := s.by, s.devices[a.Key] != nil
	s.mu.Unlock()
	if by == nil || taken {
		return fmt.Errorf("attach device %d of function %s: there is one, or no service to serve it", a.NSID, a.Function)
	}
	d := newDevice(a.Key, by)
	inner, err := s.open(datapath.Target{
		Name: fmt.Sprintf("%s.%d", a.Function, a.NSID), Size: a.Size, ReadOnly: a.ReadOnly, Backing: d, File: a.File, Function: a.Function, NSID: a.NSID,
	})
	if err != nil {
		return err
	}
	d.inner = inner
	*number = inner.Number()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.devices[a.Key] = d
	return nil
}

// Adopt has a device served by the service that came last, and returns its number.
func (s *calls) Adopt(key *Key, number *string) error {
	d, err := s.find(*key)
	if err != nil {
		return err
	}
	s.mu.Lock()
	by := s.by
	s.mu.Unlock()
	*number = d.inner.Number()
	return d.serve(by)
}

// Node makes the file of a device.
func (s *calls) Node(c *Change, _ *None) error {
	return s.with(c.Key, func(d *device) error { return d.inner.Node(c.Path) })
}

// Pause has the I/O of a device wait, or go on.
func (s *calls) Pause(c *Change, _ *None) error {
	return s.with(c.Key, func(d *device) error { d.inner.Pause(c.Paused); return nil })
}

// Resize gives a device another size.
func (s *calls) Resize(c *Change, _ *None) error {
	return s.with(c.Key, func(d *device) error { return d.inner.Resize(c.Bytes) })
}

// Fence ends the I/O of a device.
func (s *calls) Fence(c *Change, _ *None) error {
	return s.with(c.Key, func(d *device) error { d.end(); return nil })
}

// Detach gives a device back.
func (s *calls) Detach(c *Change, _ *None) error {
	return s.with(c.Key, func(d *device) error {
		s.forget(d)
		return d.remove()
	})
}

func (s *Server) with(key Key, act func(*device) error) error {
	d, err := s.find(key)
	if err != nil {
		return err
	}
	return act(d)
}
