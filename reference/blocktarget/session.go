package blocktarget

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/moor-storage/moor/reference/blocktarget/admission"
)

// maxInFlight bounds the requests of one session that are worked on at once;
// more wait in the socket.
const maxInFlight = 64

// inputSize is the buffer in front of a connection, in bytes; larger reads
// pass by it.
const inputSize = 16 << 10

func newInput(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, inputSize) }

// counters count for all sessions of a server since its start.
type counters struct {
	reads, writes, bytesRead, bytesWritten atomic.Int64
	// sessions is how many there are now.
	sessions atomic.Int64
}

// session is one DPU that has one volume open.
type session struct {
	export   Export
	shape    shape
	conn     net.Conn
	file     *os.File
	recorder Recorder // may be nil
	gate     *admission.Gate
	// changes admits what changes the volume, inside the gate: shut once the epoch
	// is over.
	changes *admission.Gate
	barrier *admission.Barrier
	limiter *admission.Limiter
	stats   *counters
	// size is that of the file in bytes, when it was looked at last.
	size atomic.Int64

	send   sync.Mutex
	reason atomic.Pointer[string]
	over   chan struct{} // closed by end
}

// end turns further I/O away and hangs up; gate.Fence waits for the rest.
func (s *session) end(reason string) {
	if s.reason.CompareAndSwap(nil, &reason) {
		close(s.over)
	}
	s.gate.Shut()
	_ = s.conn.Close()
}

func (s *session) ended() string {
	if r := s.reason.Load(); r != nil {
		return *r
	}
	return ""
}

// serve works on the requests of r until it ends, and on nothing after that.
func (s *session) serve(r io.Reader) error {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	slots := make(chan struct{}, maxInFlight)
	for {
		q, err := readRequest(r)
		if err != nil {
			return err
		}
		if q.command == cmdDisconnect {
			_ = s.conn.SetWriteDeadline(time.Now().Add(partingTimeout))
			return nil
		}
		data, err := readPayload(r, q)
		if err != nil {
			return err
		}
		slots <- struct{}{}
		handlers.Go(func() {
			defer func() { <-slots }()
			s.answer(q, data)
		})
	}
}

// readPayload reads the data that follows a write.
func readPayload(r io.Reader, q request) ([]byte, error) {
	if q.command != cmdWrite {
		return nil, nil
	}
	if q.length > maxPayload {
		return nil, fmt.Errorf("a write of %d bytes, the most are %d: %w", q.length, maxPayload, errBroken)
	}
	data := make([]byte, q.length)
	_, err := io.ReadFull(r, data)
	return data, err
}

// answer works on one request and sends the reply. The gate is left before the
// reply is sent: a client that does not read must not hold up a revocation.
func (s *session) answer(q request, data []byte) {
	s.limiter.Wait(int64(q.length), s.over)
	reply, ok, err := s.admitted(q, data)
	if !ok {
		return
	}
	if reply == nil {
		reply = make([]byte, replyLength)
	}
	if err != nil {
		reply = reply[:replyLength]
	}
	appendReply(reply[:0], q.cookie, errnoOf(err))
	s.send.Lock()
	defer s.send.Unlock()
	if _, err := s.conn.Write(reply); err != nil {
		_ = s.conn.Close() // the reading half ends with it
	}
}

// admitted performs the request inside the barrier and the gate; ok is false if
// the session is over.
func (s *session) admitted(q request, data []byte) (reply []byte, ok bool, err error) {
	if q.changes() {
		s.barrier.Enter()
		defer s.barrier.Leave()
	}
	if !s.gate.Enter() {
		return nil, false, nil
	}
	defer s.gate.Leave()
	if q.changes() {
		if !s.changes.Enter() {
			return nil, true, syscall.EPERM
		}
		defer s.changes.Leave()
	}
	reply, err = s.perform(q, data)
	return reply, true, err
}

// perform does what the request asks. For a read, reply holds the data after
// room for the reply's head.
func (s *session) perform(q request, data []byte) (reply []byte, err error) {
	if err := s.check(q); err != nil {
		return nil, err
	}
	offset, length := int64(q.offset), int64(q.length)
	switch q.command {
	case cmdRead:
		reply = make([]byte, replyLength+length)
		_, err = s.file.ReadAt(reply[replyLength:], offset)
		s.stats.reads.Add(1)
		s.stats.bytesRead.Add(length)
		if s.recorder != nil {
			err = errors.Join(err, s.recorder.Read(s.export.Node))
		}
		return reply, err
	case cmdWrite:
		_, err = s.file.WriteAt(data, offset)
		s.stats.writes.Add(1)
		s.stats.bytesWritten.Add(length)
	case cmdTrim, cmdWriteZeroes:
		err = s.clear(q)
	case cmdFlush:
		return nil, s.sync()
	}
	// Of a write that failed, some may have been accepted.
	if q.changes() && s.recorder != nil {
		err = errors.Join(err, s.recorder.Append(s.export.Node, offset, length))
	}
	if err == nil && q.flags&cmdFlagFUA != 0 {
		err = s.sync()
	}
	return nil, err
}

// check refuses what the session cannot do, before anything is done.
func (s *session) check(q request) error {
	switch q.command {
	case cmdRead, cmdWrite, cmdTrim, cmdWriteZeroes:
	case cmdFlush:
		return nil
	default:
		return syscall.EINVAL
	}
	switch {
	case s.shape.readOnly && q.changes():
		return syscall.EPERM
	case !s.within(q):
		if q.command == cmdWrite || q.command == cmdWriteZeroes {
			return syscall.ENOSPC
		}
		return syscall.EINVAL
	case q.command == cmdRead && q.length > maxPayload:
		return syscall.EOVERFLOW
	}
	return nil
}

// within reports whether the request lies inside the volume, which may have
// grown since it was looked at.
func (s *session) within(q request) bool {
	fits := func(size uint64) bool { return q.offset <= size && uint64(q.length) <= size-q.offset }
	if fits(uint64(s.size.Load())) {
		return true
	}
	st, err := s.file.Stat()
	if err != nil {
		return false
	}
	s.size.Store(st.Size())
	return fits(uint64(st.Size()))
}

// sync makes every finished write durable. No write changes the size, so the
// file's other attributes need not be.
func (s *session) sync() error {
	for {
		if err := unix.Fdatasync(int(s.file.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// clear deallocates or zeroes a range; after both it reads as zeroes.
func (s *session) clear(q request) error {
	mode := uint32(unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE)
	if q.command == cmdWriteZeroes && q.flags&cmdFlagNoHole != 0 {
		mode = unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE
	}
	if q.length == 0 {
		return nil
	}
	err := unix.Fallocate(int(s.file.Fd()), mode, int64(q.offset), int64(q.length))
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	if q.command == cmdTrim {
		return nil // a hint
	}
	return s.writeZeroes(int64(q.offset), int64(q.length))
}

func (s *session) writeZeroes(offset, length int64) error {
	zeroes := make([]byte, min(length, 1<<20))
	for length > 0 {
		n, err := s.file.WriteAt(zeroes[:min(length, int64(len(zeroes)))], offset)
		if err != nil {
			return err
		}
		offset, length = offset+int64(n), length-int64(n)
	}
	return nil
}

// close gives back the files, after the session's I/O has ended.
func (s *session) close() error {
	err := s.file.Close()
	if s.recorder != nil {
		err = errors.Join(err, s.recorder.Close())
	}
	return err
}

// tune makes the kernel find out soon that the other end is out of reach.
func tune(nc net.Conn, unanswered time.Duration) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: unanswered / 2, Interval: unanswered / 6, Count: 3})
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unanswered.Milliseconds()))
	})
}
