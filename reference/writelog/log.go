// Package writelog records which writes a storage medium accepted: one log for
// each volume, one sequence in it over all who write, so that a test can prove
// from outside of hosts and DPUs who wrote after whom; and, in a second one, when
// there were reads. Who logs is the one who accepts, and may be under test itself:
// see test/devcluster/recordfs for a log from beneath.
//
// It never decides who may write.
package writelog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// lineForm is the form of one record: sequence, DPU, offset, length,
// monotonic nanoseconds. Every record has the same length, so that the number
// of the next one follows from the size of the file.
const (
	lineForm   = "%016d %-32s %016d %016d %019d\n"
	lineLength = 16 + 1 + 32 + 1 + 16 + 1 + 16 + 1 + 19 + 1
)

// MaxName is the longest name of a DPU in a record, in bytes.
const MaxName = 32

// Write is one accepted write, as the medium saw it.
type Write struct {
	// Seq counts the writes of the volume from 1, over all who write.
	Seq uint64
	// DPU is the name of the one that wrote, as Short gives it.
	DPU string
	// Offset and Length are in bytes.
	Offset, Length int64
	// Monotonic is CLOCK_MONOTONIC of the machine.
	Monotonic time.Duration
}

// Path is the log of the volume in file, in the directory dir.
func Path(dir, file string) string {
	return filepath.Join(dir, filepath.Base(file)+".log")
}

// Short is how a record names a DPU: by its name if that is at most MaxName
// bytes of visible ASCII, else by the beginning of it and a hash.
func Short(name string) string {
	strange := func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) || unicode.IsSpace(r) }
	if name != "" && len(name) <= MaxName && strings.IndexFunc(name, strange) < 0 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := hex.EncodeToString(sum[:4])
	head := strings.Map(func(r rune) rune {
		if strange(r) {
			return '_'
		}
		return r
	}, name)
	return head[:min(len(head), MaxName-1-len(hash))] + "~" + hash
}

// Log appends accepted writes, and reads, to the logs of one volume. It is safe for
// concurrent use: the lock of the file orders processes, the mutex the writers
// of this one (flock(2) does not stop a second holder of the same open file).
type Log struct {
	mu          sync.Mutex
	file, reads *os.File
	// lastRead is when the last read of a DPU was recorded.
	lastRead map[string]time.Duration
}

// Open opens the logs of the volume in file below dir; all are made if they are
// missing. Several logs of one volume may be open at once, in one process or
// in many.
func Open(dir, file string) (*Log, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the medium log: %w", err)
	}
	f, err := os.OpenFile(Path(dir, file), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the medium log: %w", err)
	}
	reads, err := os.OpenFile(ReadsPath(dir, file), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log of reads: %w", err), f.Close())
	}
	return &Log{file: f, reads: reads, lastRead: map[string]time.Duration{}}, nil
}

// Append records one accepted write, in bytes. It is not made durable: the log
// outlives the process, not the machine.
func (l *Log) Append(dpu string, offset, length int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	fd := int(l.file.Fd())
	if err := flock(fd); err != nil {
		return fmt.Errorf("lock the medium log: %w", err)
	}
	defer func() { _ = unix.Flock(fd, unix.LOCK_UN) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("read the size of the medium log: %w", err)
	}
	if torn := st.Size % lineLength; torn != 0 {
		return fmt.Errorf("medium log ends with a torn record of %d bytes: a writer died in it; remove it", torn)
	}
	now, err := Now()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(l.file, lineForm, st.Size/lineLength+1, Short(dpu), offset, length, now)
	return err
}

// Now is CLOCK_MONOTONIC of the machine: the clock of all records of a test bed.
func Now() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read the monotonic clock: %w", err)
	}
	return time.Duration(now.Nano()), nil
}

// flock waits for the lock of fd. The runtime's signals interrupt it.
func flock(fd int) error {
	for {
		if err := unix.Flock(fd, unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Close gives the files back; the logs stay.
func (l *Log) Close() error { return errors.Join(l.file.Close(), l.reads.Close()) }
