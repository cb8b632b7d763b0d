package writelog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// Read returns the writes recorded in the log at path, in the order in which
// the medium accepted them. A record that is not of the form, or out of
// sequence, is an error; the writes before it are returned with it.
func Read(path string) ([]Write, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out, err := parse(f)
	if err != nil {
		return out, fmt.Errorf("read the medium log %s: %w", path, err)
	}
	return out, nil
}

func parse(r io.Reader) ([]Write, error) {
	var out []Write
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("after record %d: %w", len(out), err)
		}
		w, err := parseLine(line)
		if err != nil {
			return out, fmt.Errorf("after record %d: %w", len(out), err)
		}
		if w.Seq != uint64(len(out)+1) {
			return out, fmt.Errorf("record %d carries sequence %d", len(out)+1, w.Seq)
		}
		out = append(out, w)
	}
}

func parseLine(line string) (Write, error) {
	var w Write
	if len(line) != lineLength {
		return w, fmt.Errorf("a record has %d bytes, not %d", lineLength, len(line))
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
