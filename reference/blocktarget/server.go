// Package blocktarget serves volumes to DPUs over TCP, so that the right to
// write can be taken back at the storage: when Revoke has answered, no write of
// that DPU reaches the volume any more, wherever the DPU is and whatever it does.
//
// The protocol is a subset of NBD (fixed newstyle handshake, NBD_OPT_GO, simple
// replies; https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md),
// so standard tools can talk to a target. Server and Device are its two ends,
// Admin reaches a server from the process that gives and takes rights.
//
// It never decides who may open a volume: Grants does.
package blocktarget

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/moor-storage/moor/internal/listen"
)

// DefaultMaxConnections bounds the connections of a server.
const DefaultMaxConnections = 8192

// Timeouts of the server.
const (
	handshakeTimeout = 10 * time.Second
	// partingTimeout is how long answers to a client that says goodbye may
	// take to be sent.
	partingTimeout = 10 * time.Second
	// unansweredTimeout is how long sent data may stay unacknowledged before
	// the kernel gives the connection up (TCP_USER_TIMEOUT).
	unansweredTimeout = 30 * time.Second
	// acceptPause is waited after a failed accept, out of descriptors as a rule.
	acceptPause = 100 * time.Millisecond
)

// Recorder takes note of accepted writes, in bytes, and of reads. It is for one volume.
type Recorder interface {
	Append(node string, offset, length int64) error
	Read(node string) error
	Close() error
}

// Options configure a Server.
type Options struct {
	Grants Grants
	// Record, if set, opens the recorder of a volume whose data is in file. A
	// write that cannot be recorded is not acknowledged, and a read not answered.
	Record func(file string) (Recorder, error)
	// MaxConnections is how many clients may be connected; more are sent
	// away. 0 means DefaultMaxConnections.
	MaxConnections int
	Log            logr.Logger
}

// Server serves volumes. Use NewServer; it is safe for concurrent use.
type Server struct {
	o Options

	mu      sync.Mutex
	volumes map[string]*volume
	conns   map[net.Conn]struct{}
	closed  bool
	stats   counters
}

// NewServer returns a server that serves no address yet.
func NewServer(o Options) *Server {
	if o.MaxConnections <= 0 {
		o.MaxConnections = DefaultMaxConnections
	}
	return &Server{o: o, volumes: map[string]*volume{}, conns: map[net.Conn]struct{}{}}
}

// Serve answers connections of l until ctx ends, then fences every session: when
// it returns, no write is in flight and none will be. It closes l, and can be
// called once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	defer s.shut()
	defer listen.CloseWith(ctx, l)()
	for {
		nc, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = nc.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept on %s: %w", l.Addr(), err)
		case err != nil:
			s.o.Log.Error(err, "accept a connection")
			pause(ctx, acceptPause)
			continue
		case !s.admit(nc):
			_ = nc.Close()
			continue
		}
		handlers.Go(func() {
			defer s.dismiss(nc)
			s.converse(nc)
		})
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// admit counts a connection in, if there is room.
func (s *Server) admit(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= s.o.MaxConnections {
		s.o.Log.Info("connection sent away", "connections", len(s.conns))
		return false
	}
	s.conns[nc] = struct{}{}
	return true
}

func (s *Server) dismiss(nc net.Conn) {
	_ = nc.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, nc)
}

// shut hangs up on everybody; their handlers end their I/O.
func (s *Server) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for nc := range s.conns {
		_ = nc.Close()
	}
}

// converse serves one connection from its handshake to its end.
func (s *Server) converse(nc net.Conn) {
	log := s.o.Log.WithValues("remote", nc.RemoteAddr().String())
	tune(nc, unansweredTimeout)
	_ = nc.SetDeadline(time.Now().Add(handshakeTimeout))
	opening := &opening{server: s, conn: nc}
	in := newInput(nc)
	err := shake(struct {
		io.Reader
		io.Writer
	}{in, nc}, opening)
	if opening.session == nil {
		log.V(1).Info("no volume was opened", "reason", fmt.Sprint(err))
		return
	}
	defer s.release(opening.session)
	if err != nil {
		log.V(1).Info("the client left in the handshake", "reason", err.Error())
		return
	}
	_ = nc.SetDeadline(time.Time{})
	log = log.WithValues("volume", opening.session.export.Volume, "dpu", opening.session.export.Node)
	log.Info("volume opened")
	err = opening.session.serve(in)
	log.Info("volume closed", "reason", reasonOf(opening.session, err))
}

// reasonOf says why a session ended.
func reasonOf(s *session, err error) string {
	switch {
	case s.ended() != "":
		return s.ended()
	case err == nil || errors.Is(err, io.EOF):
		return "the client left"
	}
	return err.Error()
}

// opening is the opener of one connection.
type opening struct {
	server  *Server
	conn    net.Conn
	session *session
}

func (o *opening) look(e Export) (shape, error) { return o.server.look(e) }

func (o *opening) open(e Export) (shape, error) {
	session, err := o.server.open(e, o.conn)
	if err != nil {
		o.server.o.Log.Info("opening refused", "volume", e.Volume, "dpu", e.Node, "reason", err.Error())
		return shape{}, err
	}
	o.session = session
	return session.shape, nil
}
