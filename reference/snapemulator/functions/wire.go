package functions

import (
	"errors"
	"io"
	"syscall"

	"github.com/moor-storage/moor/reference/snapemulator/datapath"
)

// Both halves speak net/rpc over two connections of one unix socket. The first byte says which
// one it is: by control the service calls the functions, by data these call the service.
const (
	control = 'c'
	data    = 'd'
)

// Key names a device: the VUID of its function, and its namespace there.
type Key struct {
	Function string
	NSID     uint64
}

// Attach is what is asked for of a new device.
type Attach struct {
	Key
	Name, File string
	Size       int64
	ReadOnly   bool
}

// Change is a change of a device; which field counts is said by the call.
type Change struct {
	Key
	Path   string
	Paused bool
	Bytes  int64
}

// None is an answer that says nothing.
type None struct{}

// The operations of the host.
const (
	opRead = iota
	opWrite
	opSync
	opPunch
)

// IO is one of them.
type IO struct {
	Key
	Op             int
	Offset, Length int64
	Mode           uint32
	Data           []byte
}

// Done is how it ended: with an errno, or 0.
type Done struct {
	Data  []byte
	Errno uint32
	End   bool
}

// service answers the host's I/O; it is what net/rpc calls.
type service struct{ path *Path }

// Do does one operation.
func (s *service) Do(o *IO, done *Done) error {
	s.path.doing.RLock()
	defer s.path.doing.RUnlock()
	backing := s.path.backing(o.Key)
	if backing == nil {
		return errNotServed
	}
	err := o.on(backing, done)
	if err == nil {
		return nil
	}
	errno := syscall.EIO
	if done.End = errors.Is(err, io.EOF); done.End {
		return nil
	}
	errors.As(err, &errno)
	done.Errno = uint32(errno)
	return nil
}

// errNotServed: the service has no such device. It is told as an answer, so the device is not
// handed to this service again before it is adopted.
var errNotServed = errors.New("the device is not served")

func (o *IO) on(b datapath.Backing, done *Done) error {
	switch o.Op {
	case opRead:
		done.Data = make([]byte, o.Length)
		n, err := b.ReadAt(done.Data, o.Offset)
		done.Data = done.Data[:n]
		return err
	case opWrite:
		_, err := b.WriteAt(o.Data, o.Offset)
		return err
	case opSync:
		return b.Sync()
	default:
		return b.Punch(o.Mode, o.Offset, o.Length)
	}
}
