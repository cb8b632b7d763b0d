package zerotrust

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// Entry is a device and where it is mounted.
type Entry struct {
	Device Ref
	// Dir is absolute and clean.
	Dir string
	// FSType is ext4 or xfs, or virtiofs for what is a file system already.
	FSType string
	// Options of the mount, such as noatime; with ro nothing is written.
	Options []string
}

// sharedType is the type of what the DPU shows as a file system.
const sharedType = "virtiofs"

// fsTypes can be mounted; those of namespaces are made on blank ones.
var fsTypes = []string{"ext4", "xfs", sharedType}

// maxTable bounds a table in bytes.
const maxTable = 1 << 20

// ParseTable reads a table like fstab(5): device, directory, type and options a
// line; type and options may be left out. # begins a comment.
func ParseTable(r io.Reader) ([]Entry, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxTable+1))
	if err != nil {
		return nil, fmt.Errorf("read the table: %w", err)
	}
	if len(raw) > maxTable {
		return nil, fmt.Errorf("the table has more than %d bytes: %w", maxTable, ErrSyntax)
	}
	var out []Entry
	for i, line := range strings.Split(string(raw), "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		e, err := parseLine(fields)
		if err == nil {
			err = e.clashes(out)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of the table: %w", i+1, err)
		}
		out = append(out, e)
	}
	return out, nil
}

func parseLine(fields []string) (Entry, error) {
	if len(fields) < 2 || len(fields) > 4 {
		return Entry{}, fmt.Errorf("want device, directory, and perhaps type and options, there are %d fields: %w", len(fields), ErrSyntax)
	}
	for len(fields) < 4 {
		fields = append(fields, "")
	}
	return NewEntry(fields[0], fields[1], fields[2], fields[3])
}

// NewEntry checks the fields of an entry. An empty type is ext4, for a tag
// virtiofs, the only one that a tag can have; options are separated by commas,
// "defaults" adds none.
func NewEntry(device, dir, fsType, options string) (Entry, error) {
	ref, err := ParseRef(device)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Device: ref, Dir: filepath.Clean(dir), FSType: fsType}
	if !filepath.IsAbs(dir) || e.Dir == "/" {
		return Entry{}, fmt.Errorf("directory %q: want an absolute path, and not /: %w", dir, ErrSyntax)
	}
	if e.FSType == "" {
		e.FSType = fsTypes[0]
		if ref.Tag != "" {
			e.FSType = sharedType
		}
	}
	if !slices.Contains(fsTypes, e.FSType) {
		return Entry{}, fmt.Errorf("file system %q: want one of %s: %w", fsType, strings.Join(fsTypes, ", "), ErrSyntax)
	}
	if ref.Tag != "" && e.FSType != sharedType {
		return Entry{}, fmt.Errorf("file system %q: a device with a tag is one already, of type %s: %w", fsType, sharedType, ErrSyntax)
	}
	for _, o := range strings.Split(options, ",") {
		if o != "" && o != "defaults" {
			e.Options = append(e.Options, o)
		}
	}
	return e, nil
}

// fits returns an error if the device is not of the entry's type.
func (e Entry) fits(s Shown) error {
	if (s.Tag != "") != (e.FSType == sharedType) {
		return fmt.Errorf("device %s (%s): type %s is for what has a tag, ext4 and xfs are for namespaces, and %s was asked for: %w",
			e.Device, s.Name, sharedType, e.FSType, ErrSyntax)
	}
	return nil
}

// clashes returns an error if another line has the same directory or device: the
// two would go on unmounting each other's mounts.
func (e Entry) clashes(others []Entry) error {
	for _, o := range others {
		if o.Dir == e.Dir {
			return fmt.Errorf("directory %s is in the table twice: %w", e.Dir, ErrSyntax)
		}
		if o.Device == e.Device {
			return fmt.Errorf("device %s is in the table twice: %w", e.Device, ErrSyntax)
		}
	}
	return nil
}
