package writelog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// ReadsApart is how long a read is not recorded after one of the same Log and DPU that was:
// reads are many, and what counts is when there were any.
const ReadsApart = 10 * time.Millisecond

// Access is a read of a volume, one of perhaps many within ReadsApart.
type Access struct {
	// DPU is the name of the one that read, as Short gives it.
	DPU string
	// Monotonic is CLOCK_MONOTONIC of the machine.
	Monotonic time.Duration
}

// ReadsPath is the log of the reads of the volume in file, in the directory dir.
func ReadsPath(dir, file string) string { return Path(dir, file) + ".reads" }

// Read records that a DPU has read, unless one within ReadsApart before is on record.
func (l *Log) Read(dpu string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, err := Now()
	if err != nil {
		return err
	}
	if last, found := l.lastRead[dpu]; found && now-last < ReadsApart {
		return nil
	}
	// One call of write(2) to a file that is appended to: readers see the line or do not.
	if _, err := fmt.Fprintf(l.reads, "%019d %s\n", now, Short(dpu)); err != nil {
		return fmt.Errorf("record a read: %w", err)
	}
	l.lastRead[dpu] = now
	return nil
}

// Reads returns the reads recorded in the log at path, by no order of the DPUs. None if there is
// no log. A record that is not of the form is an error.
func Reads(path string) ([]Access, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, whole := strings.CutSuffix(string(raw), "\n")
	if len(raw) > 0 && !whole {
		return nil, fmt.Errorf("the log of reads %s ends with a torn record", path)
	}
	var out []Access
	for i, line := range strings.Split(text, "\n") {
		if len(raw) == 0 {
			break
		}
		at, dpu, _ := strings.Cut(line, " ")
		n, err := strconv.ParseInt(at, 10, 64)
		if err != nil || n < 0 || dpu == "" || Short(dpu) != dpu {
			return nil, fmt.Errorf("record %d of the log of reads %s is %q: a time and a DPU are wanted", i+1, path, line)
		}
		out = append(out, Access{DPU: dpu, Monotonic: time.Duration(n)})
	}
	return out, nil
}
