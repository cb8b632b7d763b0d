// Package mountinfo reads the mount table of this process, proc_pid_mountinfo(5).
//
// Pods that are not trusted can mount, in directories with any name: a line is split as the
// kernel writes it, at single spaces, and never at other white space.
//
// No library is used for that. mount-utils splits at all white space, and leaves the kernel's escapes in
// paths. moby/sys/mountinfo reads the fields that a file system writes of itself as well, and gives the whole
// table up for one that it does not understand: a pod could keep a node from clearing up.
package mountinfo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// table is the mount table of this process.
const table = "/proc/self/mountinfo"

// Mount is a line of the mount table.
type Mount struct {
	// ID is the number of the mount, by which an open file names its own.
	ID uint64
	// Parent is the number of the mount that it lies on.
	Parent uint64
	// Device is the number of the file system, "major:minor".
	Device string
	// Root is the directory of the file system that is shown.
	Root string
	// Path is where it is shown.
	Path string
	// ReadOnly is whether this mount forbids writing; the file system may do so as well.
	ReadOnly bool
}

// attempts bounds how often the table is read again because it changed: it is read in pieces, so a
// change between two of them can hide a line.
const attempts = 5

// List is the mount table. Its order says nothing: a mount that was moved can lie on one that is
// listed after it.
func List() ([]Mount, error) {
	var last []byte
	for range attempts {
		text, err := os.ReadFile(table)
		if err != nil {
			return nil, fmt.Errorf("read the mount table: %w", err)
		}
		if bytes.Equal(text, last) {
			break
		}
		last = text
	}
	return Parse(string(last))
}

// Parse reads a mount table.
func Parse(text string) ([]Mount, error) {
	var out []Mount
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" {
			continue
		}
		m, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("read line %q of the mount table: %w", line, err)
		}
		out = append(out, m)
	}
	return out, nil
}

// The places of the fields of a line.
const (
	fieldID = iota
	fieldParent
	fieldDevice
	fieldRoot
	fieldPath
	fieldOptions
	fieldCount
)

func parseLine(line string) (Mount, error) {
	fields := strings.Split(line, " ")
	if len(fields) < fieldCount {
		return Mount{}, errors.New("it has too few fields")
	}
	id, err := strconv.ParseUint(fields[fieldID], 10, 64)
	if err != nil {
		return Mount{}, fmt.Errorf("the number of the mount: %w", err)
	}
	parent, err := strconv.ParseUint(fields[fieldParent], 10, 64)
	if err != nil {
		return Mount{}, fmt.Errorf("the number of the mount that it lies on: %w", err)
	}
	return Mount{
		ID: id, Parent: parent, Device: fields[fieldDevice], Root: unescape(fields[fieldRoot]), Path: unescape(fields[fieldPath]),
		ReadOnly: slices.Contains(strings.Split(fields[fieldOptions], ","), "ro"),
	}, nil
}

// escape is what stands for a character that would end a field: a backslash and three octal digits.
const escape = 4

func unescape(field string) string {
	if !strings.Contains(field, `\`) {
		return field
	}
	var b strings.Builder
	for i := 0; i < len(field); i++ {
		if field[i] == '\\' && i+escape <= len(field) {
			if n, err := strconv.ParseUint(field[i+1:i+escape], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += escape - 1
				continue
			}
		}
		b.WriteByte(field[i])
	}
	return b.String()
}

// At is the mount that is seen on a path, the topmost; ok is false if there is none.
func At(all []Mount, at string) (m Mount, ok bool) {
	at = path.Clean(at)
	var there []Mount
	covered := map[uint64]bool{}
	for _, m := range all {
		if m.Path == at {
			there = append(there, m)
			covered[m.Parent] = m.ID != m.Parent
		}
	}
	for _, m := range there {
		if !covered[m.ID] {
			return m, true
		}
	}
	return Mount{}, false
}

// Beneath are the mounts on a path and beneath it, those that lie on others first.
func Beneath(all []Mount, at string) []Mount {
	at = strings.TrimSuffix(path.Clean(at), "/")
	parents := make(map[uint64]uint64, len(all))
	for _, m := range all {
		parents[m.ID] = m.Parent
	}
	depth := func(m Mount) (n int) {
		for id := m.ID; n < len(all); n++ { // the topmost of all is not listed, or its own parent
			parent, listed := parents[id]
			if !listed {
				break
			}
			id = parent
		}
		return n
	}
	type deep struct {
		Mount
		depth int
	}
	var found []deep
	for _, m := range all {
		if m.Path == at || strings.HasPrefix(m.Path, at+"/") {
			found = append(found, deep{m, depth(m)})
		}
	}
	slices.SortStableFunc(found, func(a, b deep) int { return b.depth - a.depth })
	out := make([]Mount, len(found))
	for i, f := range found {
		out[i] = f.Mount
	}
	return out
}
