package snapemu

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// mediumLine is the form of one record: sequence, DPU, offset, length,
// monotonic nanoseconds. Every record has the same length, so that the number
// of the next one follows from the size of the file.
const (
	mediumLine   = "%016d %-32s %016d %016d %019d\n"
	mediumLength = 16 + 1 + 32 + 1 + 16 + 1 + 16 + 1 + 19 + 1
)

// MaxName is the longest name of an emulator, in bytes.
const MaxName = 32

// MediumWrite is one accepted write, as the medium saw it.
type MediumWrite struct {
	// Seq counts the writes of the volume from 1, over all emulators.
	Seq uint64
	// DPU is the name of the emulator that wrote.
	DPU string
	// Offset and Length are in bytes.
	Offset, Length int64
	// Monotonic is CLOCK_MONOTONIC of the machine.
	Monotonic time.Duration
}

// MediumLogPath is the log of the volume in file, in the directory dir.
func MediumLogPath(dir, file string) string {
	return filepath.Join(dir, filepath.Base(file)+".log")
}

// mediumLog appends accepted writes to the log of one volume. The lock of the
// file orders emulators, the mutex the writers of this one (flock(2) does not
// stop a second holder of the same open file).
type mediumLog struct {
	mu   sync.Mutex
	file *os.File
	dpu  string
}

func openMediumLog(dir, file, dpu string) (*mediumLog, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the medium log: %w", err)
	}
	f, err := os.OpenFile(MediumLogPath(dir, file), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the medium log: %w", err)
	}
	return &mediumLog{file: f, dpu: dpu}, nil
}

// append records one accepted write. It is not made durable: the log outlives
// the emulator, not the machine.
func (l *mediumLog) append(offset, length int64) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fd := int(l.file.Fd())
	if err := flock(fd); err != nil {
		return fmt.Errorf("lock the medium log: %w", err)
	}
	defer unix.Flock(fd, unix.LOCK_UN)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("read the size of the medium log: %w", err)
	}
	if torn := st.Size % mediumLength; torn != 0 {
		return fmt.Errorf("medium log ends with a torn record of %d bytes: a writer died in it; remove it", torn)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the monotonic clock: %w", err)
	}
	_, err = fmt.Fprintf(l.file, mediumLine, st.Size/mediumLength+1, l.dpu, offset, length, now.Nano())
	return err
}

// flock waits for the lock of fd. The runtime's signals interrupt it.
func flock(fd int) error {
	for {
		if err := unix.Flock(fd, unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (l *mediumLog) close() error { return l.file.Close() }

// ReadMediumLog returns the writes recorded in the log at path, in the order in
// which the medium accepted them. A record that is not of the form, or out of
// sequence, is an error; the writes before it are returned with it.
func ReadMediumLog(path string) ([]MediumWrite, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out, err := parseMediumLog(f)
	if err != nil {
		return out, fmt.Errorf("read the medium log %s: %w", path, err)
	}
	return out, nil
}

func parseMediumLog(r io.Reader) ([]MediumWrite, error) {
	var out []MediumWrite
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("after record %d: %w", len(out), err)
		}
		w, err := parseMediumLine(line)
		if err != nil {
			return out, fmt.Errorf("after record %d: %w", len(out), err)
		}
		if w.Seq != uint64(len(out)+1) {
			return out, fmt.Errorf("record %d carries sequence %d", len(out)+1, w.Seq)
		}
		out = append(out, w)
	}
}

func parseMediumLine(line string) (MediumWrite, error) {
	var w MediumWrite
	if len(line) != mediumLength {
		return w, fmt.Errorf("a record has %d bytes, not %d", mediumLength, len(line))
	}
	fields := strings.Fields(line)
	if len(fields) != 5 {
		return w, fmt.Errorf("a record has 5 fields, not %d", len(fields))
	}
	var n [5]int64
	for i, text := range fields {
		if i == 1 {
			w.DPU = text
			continue
		}
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil || v < 0 {
			return w, fmt.Errorf("field %d of record %q is no count", i+1, line)
		}
		n[i] = v
	}
	w.Seq, w.Offset, w.Length, w.Monotonic = uint64(n[0]), n[2], n[3], time.Duration(n[4])
	return w, nil
}
