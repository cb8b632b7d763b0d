package hostprobe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// beatSize is a beat on the wire: a counter, big endian, which comes back.
const beatSize = 8

// patience is how many silent probes in a row a connection is kept for. After
// that every probe dials anew: an old connection would only try again at longer
// and longer intervals.
const patience = 2

// TCP probes the host over a connection to its node plugin, see Serve. It is
// for one goroutine.
type TCP struct {
	address string
	conn    net.Conn
	sent    uint64
	silent  int
}

var _ Prober = (*TCP)(nil)

// NewTCP returns a probe of the node plugin that listens on address. Nothing
// is sent before the first probe.
func NewTCP(address string) *TCP { return &TCP{address: address} }

// Probe sends a beat and waits for it to come back. If it does not, the kernel
// tells whether the host's kernel has at least taken it.
func (t *TCP) Probe(ctx context.Context) (Answer, string) {
	if t.conn == nil {
		conn, err := dial(ctx, t.address)
		if err != nil {
			return refusalOf(err)
		}
		t.conn, t.silent = conn, 0
	}
	deadline, _ := ctx.Deadline()
	err := t.beat(deadline)
	if err == nil {
		t.silent = 0
		return Echoed, ""
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return t.lost(err)
	}
	if taken(t.conn) {
		t.silent = 0
		return Acknowledged, ""
	}
	if t.silent++; t.silent >= patience {
		t.drop()
	}
	return Silence, ""
}

func dial(ctx context.Context, address string) (net.Conn, error) {
	now, err := numbered(address)
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", now)
}

// beat sends the next beat, and waits for it to come back; those before it are
// skipped.
func (t *TCP) beat(deadline time.Time) error {
	if err := t.conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("bound a beat: %w", err)
	}
	t.sent++
	var b [beatSize]byte
	binary.BigEndian.PutUint64(b[:], t.sent)
	if _, err := t.conn.Write(b[:]); err != nil {
		return fmt.Errorf("send a beat: %w", err)
	}
	for {
		if _, err := io.ReadFull(t.conn, b[:]); err != nil {
			return fmt.Errorf("wait for a beat to come back: %w", err)
		}
		switch back := binary.BigEndian.Uint64(b[:]); {
		case back == t.sent:
			return nil
		case back > t.sent:
			return fmt.Errorf("beat %d came back, %d was the last one sent: %w", back, t.sent, errWrongBeat)
		}
	}
}

var errWrongBeat = errors.New("what answers is not a node plugin")

// lost drops a connection that has ended. Its end was told by the host's
// kernel, or by this end of the link.
func (t *TCP) lost(err error) (Answer, string) {
	t.drop()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return Refused, "it has closed the connection"
	}
	if errors.Is(err, errWrongBeat) {
		return Acknowledged, err.Error()
	}
	return refusalOf(err)
}

// drop ends the connection without waiting for the other end.
func (t *TCP) drop() {
	if tcp, ok := t.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = t.conn.Close()
	t.conn = nil
}

// refusalOf tells what an error of the network means.
func refusalOf(err error) (Answer, string) {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Refused, ""
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return Silence, ""
	}
	var number syscall.Errno
	if errors.As(err, &number) {
		return Unreachable, number.Error()
	}
	return Unreachable, err.Error()
}

// taken reports whether the other kernel has acknowledged all that was sent.
func taken(conn net.Conn) bool {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return false
	}
	var info *unix.TCPInfo
	var failed error
	err = raw.Control(func(fd uintptr) { info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
	return err == nil && failed == nil && info.State == 1 && info.Unacked == 0 && info.Notsent_bytes == 0 // 1: TCP_ESTABLISHED
}
