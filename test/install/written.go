package install

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Written is a line that a writer says once the medium has acknowledged what it wrote.
type Written struct {
	// Number is what was written, At when since the machine's start.
	Number int
	At     time.Duration
}

// ReadWritten reads the lines of a writer, each a number and seconds. The number of each is one
// more than that of the one before.
func ReadWritten(log string) ([]Written, error) {
	var out []Written
	for line := range strings.Lines(log) {
		var w Written
		var up float64
		if _, err := fmt.Sscan(line, &w.Number, &up); err != nil {
			return nil, fmt.Errorf("read what a writer says, %q: %w", line, err)
		}
		if w.Number != len(out) {
			return nil, fmt.Errorf("read what a writer says: %q is line %d", line, len(out))
		}
		w.At = time.Duration(up * float64(time.Second))
		out = append(out, w)
	}
	return out, nil
}

// Longest is the longest time between two lines that follow each other, from the one with that
// number on.
func Longest(lines []Written, from int) time.Duration {
	var gap time.Duration
	for i := from + 1; i < len(lines); i++ {
		gap = max(gap, lines[i].At-lines[i-1].At)
	}
	return gap
}

// Complete holds a journal to what its writer said: it begins with each number in its order. The
// last write may have come to the journal and not to the writer.
func Complete(journal string, lines []Written) error {
	var want strings.Builder
	for _, w := range lines {
		want.WriteString(strconv.Itoa(w.Number) + "\n")
	}
	if len(lines) == 0 || !strings.HasPrefix(journal, want.String()) {
		return fmt.Errorf("the journal of %d bytes does not begin with the %d lines that were acknowledged", len(journal), len(lines))
	}
	return nil
}
