package hostdev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

const (
	// edgeBytes are read in full at either end of a device: every signature
	// that blkid, LVM, md or a partition table knows lies within them.
	edgeBytes = 1 << 20
	// sampleBytes are read at each of samples places between the ends.
	sampleBytes = 64 << 10
	samples     = 64
)

// Signature is what lies on a device, as blkid(8) names it.
type Signature struct {
	// Type is a file system, RAID or encryption type; empty if none.
	Type string
	// PartitionTable is its type, such as gpt or dos; empty if none.
	PartitionTable string
	// Ambivalent is true if several signatures contradict each other.
	Ambivalent bool
}

// None reports whether nothing known was found, which is not yet blank.
func (s Signature) None() bool { return s == Signature{} }

// String names the signature for people.
func (s Signature) String() string {
	switch {
	case s.Ambivalent:
		return "several signatures that contradict each other"
	case s.Type != "":
		return s.Type
	case s.PartitionTable != "":
		return "a " + s.PartitionTable + " partition table"
	}
	return "no known signature"
}

// Exit statuses of blkid(8).
const (
	blkidNothing    = 2
	blkidAmbivalent = 8
)

// Probe asks blkid what lies on the device, past its cache (-p).
func Probe(ctx context.Context, r Runner, path string) (Signature, error) {
	out, err := r.Run(ctx, "blkid", "-p", "-o", "export", path)
	var exit *ExitError
	if errors.As(err, &exit) {
		switch {
		case exit.Code == blkidAmbivalent:
			return Signature{Ambivalent: true}, nil
		case exit.Code == blkidNothing && Readable(path) == nil:
			// Status 2 also means "cannot be read", hence the question.
			return Signature{}, nil
		}
	}
	if err != nil {
		return Signature{}, fmt.Errorf("look for signatures on %s: %w", path, err)
	}
	var s Signature
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "TYPE":
			s.Type = value
		case "PTTYPE":
			s.PartitionTable = value
		}
	}
	if s.None() && strings.TrimSpace(out) != "" {
		// A signature without a type, such as a partition entry: not ours.
		s.Ambivalent = true
	}
	return s, nil
}

// firstData is the offset of the first byte that is not zero, in the first and
// last MiB and in 64 samples of 64 KiB evenly between them; -1 if there is
// none. A device of up to 6 MiB is read in full. Samples cannot prove a large
// device blank, but they find data that was written to it as a raw device with
// a likelihood that grows with its amount.
func firstData(ctx context.Context, f *os.File, size int64) (int64, error) {
	buf, zeros := make([]byte, edgeBytes), make([]byte, edgeBytes)
	for _, w := range windows(size) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		b := buf[:w.length]
		if _, err := f.ReadAt(b, w.offset); err != nil && !errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("read %s at byte %d: %w", f.Name(), w.offset, err)
		}
		if bytes.Equal(b, zeros[:w.length]) {
			continue
		}
		return w.offset + int64(slices.IndexFunc(b, func(c byte) bool { return c != 0 })), nil
	}
	return -1, nil
}

type window struct{ offset, length int64 }

// windows are the places that firstData reads on a device of size bytes.
func windows(size int64) []window {
	var out []window
	add := func(from, to int64) {
		for ; from < to; from += edgeBytes {
			out = append(out, window{from, min(edgeBytes, to-from)})
		}
	}
	if size <= 2*edgeBytes+samples*sampleBytes {
		add(0, size)
		return out
	}
	add(0, edgeBytes)
	step := (size - 2*edgeBytes) / samples
	for i := range int64(samples) {
		at := edgeBytes + i*step + (step-sampleBytes)/2
		out = append(out, window{at - at%aligned, sampleBytes})
	}
	add(size-edgeBytes, size)
	return out
}
