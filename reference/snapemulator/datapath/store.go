package datapath

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"syscall"

	"github.com/moor-storage/moor/reference/snapemulator/model"
	"github.com/moor-storage/moor/reference/writelog"
)

// Store is a bdev's storage with what the emulator counts and records of it.
type Store struct {
	backing Backing
	// log is nil where writes are not recorded; dpu is who it says wrote.
	log *writelog.Log
	dpu string

	reads, writes, unmaps, errors          atomic.Int64
	bytesRead, bytesWritten, bytesUnmapped atomic.Int64
	inFlight                               atomic.Int64
}

// NewStore returns the store of a backing whose I/O is not recorded.
func NewStore(backing Backing) *Store { return &Store{backing: backing} }

// NewRecordedStore returns the store of a backing of which the log records each
// write, and when there were reads, as the DPU's.
func NewRecordedStore(backing Backing, log *writelog.Log, dpu string) *Store {
	return &Store{backing: backing, log: log, dpu: dpu}
}

// Backing returns the storage itself, whose I/O is neither counted nor recorded.
func (s *Store) Backing() Backing { return s.backing }

// Counts of I/O that ended, as SPDK counts it: operations that succeeded, their bytes,
// and operations of any kind that failed. What makes writes durable counts if it fails.
type Counts struct {
	Reads, Writes, Unmaps, Errors          int64
	BytesRead, BytesWritten, BytesUnmapped int64
}

// Counts returns the I/O so far.
func (s *Store) Counts() Counts {
	return Counts{
		Reads: s.reads.Load(), Writes: s.writes.Load(), Unmaps: s.unmaps.Load(), Errors: s.errors.Load(),
		BytesRead: s.bytesRead.Load(), BytesWritten: s.bytesWritten.Load(), BytesUnmapped: s.bytesUnmapped.Load(),
	}
}

// InFlight is how many operations have begun and not ended.
func (s *Store) InFlight() int64 { return s.inFlight.Load() }

// begin counts an operation as in flight until the function that it returns is deferred
// to its end: then it counts by how it ended. ops is nil for one that SPDK counts only
// if it fails. The end of the storage is no failure.
func (s *Store) begin(ops *atomic.Int64, err *error) func() {
	s.inFlight.Add(1)
	return func() {
		switch {
		case *err != nil && !errors.Is(*err, io.EOF):
			s.errors.Add(1)
		case ops != nil:
			ops.Add(1)
		}
		s.inFlight.Add(-1) // last, so that what is not in flight any more is counted
	}
}

// ReadAt reads and records the read. One that cannot be recorded is not answered.
func (s *Store) ReadAt(p []byte, off int64) (n int, err error) {
	defer s.begin(&s.reads, &err)()
	n, err = s.backing.ReadAt(p, off)
	s.bytesRead.Add(int64(n))
	if s.log != nil {
		if lerr := s.log.Read(s.dpu); lerr != nil {
			return 0, lerr
		}
	}
	return n, err
}

// WriteAt writes and records the write. A write that cannot be recorded is
// not acknowledged: the log would lie by leaving it out.
func (s *Store) WriteAt(p []byte, off int64) (n int, err error) {
	defer s.begin(&s.writes, &err)()
	n, err = s.backing.WriteAt(p, off)
	if n > 0 {
		s.bytesWritten.Add(int64(n))
		if lerr := s.record(off, int64(n)); lerr != nil {
			return 0, lerr
		}
	}
	return n, err
}

// Sync makes every finished write durable.
func (s *Store) Sync() (err error) {
	defer s.begin(nil, &err)()
	return s.backing.Sync()
}

// Punch deallocates a range; in the log that is a write.
func (s *Store) Punch(mode uint32, off, length int64) (err error) {
	defer s.begin(&s.unmaps, &err)()
	if err := s.backing.Punch(mode, off, length); err != nil {
		return err
	}
	s.bytesUnmapped.Add(length)
	return s.record(off, length)
}

func (s *Store) record(off, length int64) error {
	if s.log == nil {
		return nil
	}
	if err := s.log.Append(s.dpu, off, length); err != nil {
		return fmt.Errorf("record a write of %d bytes at %d: %w", length, off, err)
	}
	return nil
}

// Interrupt ends I/O that waits for a target out of reach.
func (s *Store) Interrupt() {
	if remote, ok := s.backing.(interface{ Interrupt() }); ok {
		remote.Interrupt()
	}
}

// Settled returns nil unless a write of the host may arrive yet,
// though it is no longer waited for.
func (s *Store) Settled() error {
	remote, ok := s.backing.(interface{ Settled() error })
	if !ok {
		return nil
	}
	if err := remote.Settled(); err != nil {
		return model.Refuse(syscall.EHOSTUNREACH, "%v", err)
	}
	return nil
}

// Close gives back the files, the backing's too.
func (s *Store) Close() {
	if closer, ok := s.backing.(io.Closer); ok {
		closer.Close()
	}
	if s.log != nil {
		_ = s.log.Close() // each record was written, or refused, when it was appended
	}
}
