// Package showlog records which volumes a SNAP service shows to its host, and from when
// till when, so that a test can prove from outside that a host saw a volume only while it
// had the right to it.
//
// It never decides who may see a volume.
package showlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moor-storage/moor/reference/writelog"
)

// suffix is that of the logs' names.
const suffix = ".shown"

// The events. Each is recorded so that what it tells was not shorter than it says:
// Shown before the host can see the volume, Hidden after it has ended to.
const (
	// began: the service starts, and shows nothing of before.
	began  = "began"
	shown  = "shown"
	hidden = "hidden"
)

// event is one line of a log.
type event struct {
	// Monotonic is CLOCK_MONOTONIC of the machine.
	Monotonic time.Duration `json:"monotonic"`
	Event     string        `json:"event"`
	Volume    string        `json:"volume,omitempty"`
}

// Log is that of one DPU. It is safe for concurrent use; no two may be open of one DPU.
type Log struct {
	mu   sync.Mutex
	file *os.File
}

// Open opens the log of a DPU, whose SNAP service starts, in the directory dir, which is
// made if it is missing. The name has to be one element of a path.
func Open(dir, dpu string) (*Log, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the log of what is shown: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, dpu+suffix), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of what %s shows: %w", dpu, err)
	}
	l := &Log{file: f}
	if err := l.append(event{Event: began}); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return l, nil
}

// Shown records that the host will see a volume. It is not made durable: the log outlives
// the process, not the machine.
func (l *Log) Shown(volume string) error { return l.append(event{Event: shown, Volume: volume}) }

// Hidden records that the host does not see a volume any more.
func (l *Log) Hidden(volume string) error { return l.append(event{Event: hidden, Volume: volume}) }

func (l *Log) append(e event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if e.Monotonic, err = writelog.Now(); err != nil {
		return err
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("record what is shown: %w", err)
	}
	return nil
}

// Close gives the file back; the log stays.
func (l *Log) Close() error { return l.file.Close() }

// Exposure is a time in which a host saw a volume.
type Exposure struct {
	DPU string
	// Begin and End are CLOCK_MONOTONIC of the machine; the host did not see the volume
	// before the one, or after the other.
	Begin, End time.Duration
	// Ended is false if no end is on record: it may go on, or its service was killed and has
	// not started again.
	Ended bool
}

// Read returns when hosts saw a volume, by all logs of the directory, in the order in which
// it began. A record that is not of the form, or not in its order, is an error.
func Read(dir, volume string) ([]Exposure, error) {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for logs of what is shown: %w", err)
	}
	var out []Exposure
	for _, file := range files {
		dpu, is := strings.CutSuffix(file.Name(), suffix)
		if !is {
			continue
		}
		f, err := os.Open(filepath.Join(dir, file.Name()))
		if err != nil {
			return nil, fmt.Errorf("read what %s shows: %w", dpu, err)
		}
		of, err := parse(f, dpu, volume)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("read what %s shows: %w", dpu, err)
		}
		out = append(out, of...)
	}
	slices.SortStableFunc(out, func(a, b Exposure) int { return int(a.Begin - b.Begin) })
	return out, nil
}

// parse reads the log of a DPU.
func parse(r io.Reader, dpu, volume string) ([]Exposure, error) {
	of := reading{dpu: dpu, volume: volume}
	lines := json.NewDecoder(r)
	lines.DisallowUnknownFields()
	last := time.Duration(0)
	for at := 1; ; at++ {
		var e event
		err := lines.Decode(&e)
		switch {
		case errors.Is(err, io.EOF):
			return of.out, nil
		case err != nil:
		case e.Monotonic < last:
			err = fmt.Errorf("it is of %s, the one before it of %s", e.Monotonic, last)
		case at == 1 && e.Event != began:
			err = fmt.Errorf("the first record is %q, not %q", e.Event, began)
		default:
			err = of.take(e)
		}
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", at, err)
		}
		last = e.Monotonic
	}
}

// reading is what was read of a log so far.
type reading struct {
	dpu, volume string
	out         []Exposure
	// places are at how many the host sees the volume now.
	places int
}

func (r *reading) take(e event) error {
	switch {
	case e.Event == began:
		r.end(e.Monotonic)
		return nil
	case e.Event != shown && e.Event != hidden:
		return fmt.Errorf("the event %q is not known", e.Event)
	case e.Volume != r.volume:
		return nil
	case e.Event == hidden && r.places == 0:
		return fmt.Errorf("volume %s is hidden, and was not shown", r.volume)
	case e.Event == hidden && r.places == 1:
		r.end(e.Monotonic)
		return nil
	case e.Event == hidden:
		r.places--
		return nil
	}
	if r.places++; r.places == 1 {
		r.out = append(r.out, Exposure{DPU: r.dpu, Begin: e.Monotonic})
	}
	return nil
}

// end ends the time in which the host sees the volume, if it does.
func (r *reading) end(at time.Duration) {
	if r.places > 0 {
		r.out[len(r.out)-1].End, r.out[len(r.out)-1].Ended = at, true
	}
	r.places = 0
}
