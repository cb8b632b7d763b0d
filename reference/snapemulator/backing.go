package snapemulator

import (
	"fmt"
	"io"
	"sync/atomic"
	"syscall"

	"github.com/moor-storage/moor/reference/snapemulator/model"
	"github.com/moor-storage/moor/reference/writelog"
)

// store is a bdev's storage with what the emulator counts and records of it.
type store struct {
	Backing
	closer io.Closer
	// log is nil where writes are not recorded; dpu is who it says wrote.
	log *writelog.Log
	dpu string

	reads, writes, bytesRead, bytesWritten atomic.Int64
}

// ReadAt implements io.ReaderAt.
func (s *store) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.Backing.ReadAt(p, off)
	s.reads.Add(1)
	s.bytesRead.Add(int64(n))
	return n, err
}

// WriteAt writes and records the write. A write that cannot be recorded is
// not acknowledged: the log would lie by leaving it out.
func (s *store) WriteAt(p []byte, off int64) (int, error) {
	n, err := s.Backing.WriteAt(p, off)
	if n > 0 {
		s.writes.Add(1)
		s.bytesWritten.Add(int64(n))
		if lerr := s.record(off, int64(n)); lerr != nil {
			return 0, lerr
		}
	}
	return n, err
}

// Punch deallocates a range; to the medium that is a write.
func (s *store) Punch(mode uint32, off, length int64) error {
	if err := s.Backing.Punch(mode, off, length); err != nil {
		return err
	}
	return s.record(off, length)
}

func (s *store) record(off, length int64) error {
	if s.log == nil {
		return nil
	}
	if err := s.log.Append(s.dpu, off, length); err != nil {
		return fmt.Errorf("record a write of %d bytes at %d: %w", length, off, err)
	}
	return nil
}

// interrupt ends I/O that waits for a medium out of reach.
func (s *store) interrupt() {
	if remote, ok := s.Backing.(interface{ Interrupt() }); ok {
		remote.Interrupt()
	}
}

// settled returns nil unless a write of the host may arrive at the medium yet,
// though nobody waits for it any more.
func (s *store) settled() error {
	remote, ok := s.Backing.(interface{ Settled() error })
	if !ok {
		return nil
	}
	if err := remote.Settled(); err != nil {
		return model.Refuse(syscall.EHOSTUNREACH, "%v", err)
	}
	return nil
}

// close gives back the files.
func (s *store) close() {
	if s.closer != nil {
		s.closer.Close()
	}
	if s.log != nil {
		_ = s.log.Close() // each record was written, or refused, when it was appended
	}
}
