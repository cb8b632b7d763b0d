package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// BlockBytes is the size of the blocks in which files are compared.
	BlockBytes = 4096
	// comparePiece is how much is compared between two looks at the context; it is a
	// multiple of BlockBytes.
	comparePiece = 256 * BlockBytes
)

// Part is a part of a file, in bytes: from one byte on, up to before another.
type Part struct{ From, Size int64 }

// first is where the block of the first byte begins; Size, if there is no such byte.
func (p Part) first() int64 {
	if p.From >= p.Size {
		return p.Size
	}
	return floor(p.From)
}

// Allocated calls found with the stretches of a part of f that hold data: whole blocks,
// those that touch as one. What it leaves out are holes.
func Allocated(ctx context.Context, f *os.File, part Part, found func(start, end int64) error) error {
	size := part.Size
	m := merger{size: size, found: found}
	for at := part.first(); at < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		start, end, err := nextData(f, at)
		if errors.Is(err, unix.ENXIO) {
			break // only a hole is left
		}
		if err != nil {
			return fmt.Errorf("find the data of %s: %w", f.Name(), err)
		}
		if err := m.add(max(floor(start), at), ceiling(end)); err != nil {
			return err
		}
		at = ceiling(end)
	}
	return m.flush()
}

// Changed calls found with the stretches of a part of target that differ from base:
// whole blocks, those that touch as one. Beyond its end, base is as if it held zeros.
// Where both have a hole nothing is read.
func Changed(ctx context.Context, base, target *os.File, part Part, found func(start, end int64) error) error {
	size := part.Size
	m := merger{size: size, found: found}
	a, b := make([]byte, comparePiece), make([]byte, comparePiece)
	for at := part.first(); at < size; at += comparePiece {
		if err := ctx.Err(); err != nil {
			return err
		}
		next, err := firstData(at, size, base, target)
		if err != nil {
			return err
		}
		at = max(at, floor(next))
		n := max(min(comparePiece, size-at), 0)
		for _, side := range []struct {
			f *os.File
			b []byte
		}{{base, a[:n]}, {target, b[:n]}} {
			if err := readZeros(side.f, side.b, at); err != nil {
				return err
			}
		}
		if err := differing(a[:n], b[:n], at, m.add); err != nil {
			return err
		}
	}
	return m.flush()
}

// firstData is where the first data of any of the files is, at or after a place; size
// if there is none.
func firstData(at, size int64, all ...*os.File) (int64, error) {
	least := size
	for _, f := range all {
		start, err := f.Seek(at, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO):
		case err != nil:
			return 0, fmt.Errorf("find the data of %s: %w", f.Name(), err)
		default:
			least = min(least, start)
		}
	}
	return least, nil
}

// readZeros fills b from f, and with zeros from its end on.
func readZeros(f *os.File, b []byte, at int64) error {
	n, err := f.ReadAt(b, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s at byte %d: %w", f.Name(), at, err)
	}
	clear(b[n:])
	return nil
}

// differing calls add with each block in which a and b, of one length, differ; they
// begin at an offset.
func differing(a, b []byte, at int64, add func(start, end int64) error) error {
	for i := 0; i < len(a); i += BlockBytes {
		j := min(i+BlockBytes, len(a))
		if bytes.Equal(a[i:j], b[i:j]) {
			continue
		}
		if err := add(at+int64(i), at+int64(j)); err != nil {
			return err
		}
	}
	return nil
}

func floor(n int64) int64   { return n / BlockBytes * BlockBytes }
func ceiling(n int64) int64 { return floor(n + BlockBytes - 1) }

// merger makes one stretch of those that touch, and ends it where the file does.
type merger struct {
	start, end, size int64
	found            func(start, end int64) error
}

// add takes the next stretch, which begins no earlier than the last one ended.
func (m *merger) add(start, end int64) error {
	end = min(end, m.size)
	if start == m.end && m.end > m.start {
		m.end = end
		return nil
	}
	err := m.flush()
	m.start, m.end = start, end
	return err
}

func (m *merger) flush() error {
	if m.end <= m.start {
		return nil
	}
	start, end := m.start, m.end
	m.start, m.end = end, end
	return m.found(start, end)
}
