package datapath

import (
	"fmt"
	"io"
	"sync/atomic"
	"syscall"

	"github.com/moor-storage/moor/reference/snapemulator/model"
	"github.com/moor-storage/moor/reference/writelog"
)

// Store is a bdev's storage with what the emulator counts and records of it.
type Store struct {
	Backing
	Closer io.Closer
	// log is nil where writes are not recorded; dpu is who it says wrote.
	Log *writelog.Log
	Dpu string

	Reads, Writes, BytesRead, BytesWritten atomic.Int64
}

// ReadAt implements io.ReaderAt.
func (s *Store) ReadAt(p []byte, off int64) (int, error) {
	n, err := s.Backing.ReadAt(p, off)
	s.Reads.Add(1)
	s.BytesRead.Add(int64(n))
	return n, err
}

// WriteAt writes and records the write. A write that cannot be recorded is
// not acknowledged: the log would lie by leaving it out.
func (s *Store) WriteAt(p []byte, off int64) (int, error) {
	n, err := s.Backing.WriteAt(p, off)
	if n > 0 {
		s.Writes.Add(1)
		s.BytesWritten.Add(int64(n))
		if lerr := s.record(off, int64(n)); lerr != nil {
			return 0, lerr
		}
	}
	return n, err
}

// Punch deallocates a range; in the log that is a write.
func (s *Store) Punch(mode uint32, off, length int64) error {
	if err := s.Backing.Punch(mode, off, length); err != nil {
		return err
	}
	return s.record(off, length)
}

func (s *Store) record(off, length int64) error {
	if s.Log == nil {
		return nil
	}
	if err := s.Log.Append(s.Dpu, off, length); err != nil {
		return fmt.Errorf("record a write of %d bytes at %d: %w", length, off, err)
	}
	return nil
}

// Interrupt ends I/O that waits for a target out of reach.
func (s *Store) Interrupt() {
	if remote, ok := s.Backing.(interface{ Interrupt() }); ok {
		remote.Interrupt()
	}
}

// Settled returns nil unless a write of the host may arrive yet,
// though it is no longer waited for.
func (s *Store) Settled() error {
	remote, ok := s.Backing.(interface{ Settled() error })
	if !ok {
		return nil
	}
	if err := remote.Settled(); err != nil {
		return model.Refuse(syscall.EHOSTUNREACH, "%v", err)
	}
	return nil
}

// Close gives back the files.
func (s *Store) Close() {
	if s.Closer != nil {
		s.Closer.Close()
	}
	if s.Log != nil {
		_ = s.Log.Close() // each record was written, or refused, when it was appended
	}
}
