package hostdev

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
)

// How a crash in the middle of mkfs is survived.
//
// A mkfs that is cut short leaves a device that is neither blank nor a file
// system. It could not be told apart from a user's data, and would have to be
// refused for ever. So the file system is made one MiB shorter than the device
// and, before mkfs starts, a mark is written durably at the start of that last
// MiB, where neither mke2fs nor mkfs.xfs writes (mkfs.xfs clears the last
// 128 KiB). It says "a format by Moor of this device began and has not been
// used". When mkfs is done the mark is wiped, durably, and only then is the
// device given out for mounting. Hence:
//
//	blank               -> write mark, mkfs, check, wipe mark, use
//	mark                -> it was never mounted: format again
//	no mark, wanted fs  -> use
//	anything else       -> refuse, and say why
//
// A mark counts only together with no signature or one that our mkfs leaves. The
// device is opened with O_EXCL for the checks and the marks, so none of it
// happens to a device that is mounted or that another mkfs still writes to.
const (
	tailBytes = 1 << 20
	// minBytes is the smallest device that gets a file system.
	minBytes  = 8 << 20
	markBytes = aligned
	markMagic = "moor: a format began here and did not end"
)

// maker says how a file system is made and what a cut-short mkfs may leave.
type maker struct {
	program string
	args    func(path string, bytes int64) []string
	remains []string
	// least is the smallest device in bytes that holds what mkfs takes, and the mark.
	least int64
}

// kib is a size for mke2fs, which reads the suffix k as KiB.
func kib(bytes int64) string { return strconv.FormatInt(bytes>>10, 10) + "k" }

// No discard: the device is blank already, and mkfs.xfs would discard the mark.
// A single -F or -f lets mkfs write to a whole disk, not to one in use.
var makers = map[string]maker{
	"ext4": {
		program: "mkfs.ext4",
		args: func(path string, bytes int64) []string {
			return []string{"-q", "-F", "-m", "0", "-E", "nodiscard", path, kib(bytes)}
		},
		remains: []string{"ext4", "ext3", "ext2", "ext4dev", "jbd"},
		least:   minBytes,
	},
	"xfs": {
		program: "mkfs.xfs",
		args: func(path string, bytes int64) []string {
			return []string{"-q", "-f", "-K", "-d", "size=" + strconv.FormatInt(bytes-bytes%aligned, 10), path}
		},
		remains: []string{"xfs", "xfs_external_log"},
		least:   300<<20 + tailBytes,
	},
}

// LeastBytes is the size in bytes of the smallest device on which Ensure can make
// a file system of the type; 0 for a type that it does not make.
func LeastBytes(fsType string) int64 { return makers[fsType].least }

// Formatter makes file systems on blank devices.
type Formatter struct {
	Runner Runner
}

// Ensure makes sure that the device at path holds a file system of type fsType
// (ext4 or xfs), and makes one if, and only if, the device is blank or holds
// the remains of a format that this package began. With readOnly nothing is
// written. It reports whether it made one. Repeating it is harmless, also after
// a crash at any point. ErrForeign if the device holds anything else, ErrBusy
// if another process has it open exclusively, ErrBlankReadOnly as its name says.
func (f *Formatter) Ensure(ctx context.Context, path, fsType string, readOnly bool) (made bool, err error) {
	m, ok := makers[fsType]
	if !ok {
		return false, fmt.Errorf("make file system %q on %s: only ext4 and xfs are known: %w", fsType, path, errors.ErrUnsupported)
	}
	found, err := Probe(ctx, f.Runner, path)
	if err != nil {
		return false, err
	}
	begun, err := hasMark(path, fsType)
	if err != nil {
		return false, err
	}
	switch {
	case begun && (found.None() || found.PartitionTable == "" && slices.Contains(m.remains, found.Type)):
		// Ours, and never used.
	case found.Type == fsType && !begun:
		return false, nil
	case !found.None():
		return false, foreign(path, found, fsType)
	}
	if readOnly {
		return false, fmt.Errorf("mount %s read-only: it holds no %s yet, use the volume once for writing: %w", path, fsType, ErrBlankReadOnly)
	}
	err = f.format(ctx, path, fsType, m)
	return err == nil, err
}

// foreign says what is on the device and what to do about it.
func foreign(path string, found Signature, want string) error {
	return fmt.Errorf("%s holds %s, wanted %s; it is not formatted, lest data be lost: use the volume with the type it holds, "+
		"or, if what is on it is not needed, run wipefs -a on it: %w", path, found, want, ErrForeign)
}

func (f *Formatter) format(ctx context.Context, path, fsType string, m maker) error {
	size, err := claimBlank(ctx, path, fsType)
	if err != nil {
		return err
	}
	if _, err := f.Runner.Run(ctx, m.program, m.args(path, size-tailBytes)...); err != nil {
		return fmt.Errorf("make %s on %s (%d bytes): %w", fsType, path, size, err)
	}
	found, err := Probe(ctx, f.Runner, path)
	if err != nil {
		return err
	}
	if found.Type != fsType {
		return fmt.Errorf("make %s on %s: %s reported success but the device shows %s", fsType, path, m.program, found)
	}
	return wipeMark(path)
}

// claimBlank checks, with the device open for us alone, that it is blank or
// marked, and marks it. It returns the size in bytes.
func claimBlank(ctx context.Context, path, fsType string) (size int64, err error) {
	d, size, err := openExclusive(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if size == 0 {
		return 0, fmt.Errorf("make %s on %s: it has 0 bytes, so its medium is not there: is the DPU well that shows it?: %w", fsType, path, ErrAbsent)
	}
	if size < minBytes {
		return 0, fmt.Errorf("make %s on %s: it has %d bytes, at least %d are needed: %w", fsType, path, size, int64(minBytes), errors.ErrUnsupported)
	}
	begun, err := readMark(d, size, fsType)
	if err != nil || begun {
		return size, err
	}
	at, err := firstData(ctx, d, size)
	if err != nil {
		return 0, err
	}
	if at >= 0 {
		return 0, fmt.Errorf("%s holds no known signature but is not blank (data at byte %d), wanted %s; it is not formatted, lest data be lost: "+
			"if what is on it is not needed, zero it with blkdiscard -z: %w", path, at, fsType, ErrForeign)
	}
	return size, writeTail(d, size, mark(size, fsType))
}

// markOffset is where the mark lies on a device of size bytes.
func markOffset(size int64) int64 { return (size - tailBytes) / aligned * aligned }

// mark is the block that says a format began: magic, size, type, checksum.
func mark(size int64, fsType string) []byte {
	words := fmt.Sprintf("%s\nsize %d\ntype %s\n", markMagic, size, fsType)
	b := make([]byte, markBytes)
	copy(b, fmt.Sprintf("%s%x\n", words, sha256.Sum256([]byte(words))))
	return b
}

func readMark(d io.ReaderAt, size int64, fsType string) (bool, error) {
	b := make([]byte, markBytes)
	if size < minBytes {
		return false, nil
	}
	if _, err := d.ReadAt(b, markOffset(size)); err != nil {
		return false, fmt.Errorf("read the mark of an earlier format: %w", err)
	}
	return slices.Equal(b, mark(size, fsType)), nil
}

// hasMark is readMark without a claim on the device.
func hasMark(path, fsType string) (bool, error) {
	d, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("open %s: %w", path, err)
	}
	defer d.Close()
	size, err := d.Seek(0, io.SeekEnd)
	if err != nil {
		return false, fmt.Errorf("size of %s: %w", path, err)
	}
	return readMark(d, size, fsType)
}

// wipeMark ends a format: from here on the device may hold data.
func wipeMark(path string) (err error) {
	d, size, err := openExclusive(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return writeTail(d, size, make([]byte, markBytes))
}

// writeTail writes b where the mark lies and returns once it is on the medium.
func writeTail(d *os.File, size int64, b []byte) error {
	if _, err := d.WriteAt(b, markOffset(size)); err != nil {
		return fmt.Errorf("write the mark of the format on %s: %w", d.Name(), err)
	}
	if err := d.Sync(); err != nil {
		return fmt.Errorf("write the mark of the format on %s: %w", d.Name(), err)
	}
	return nil
}

// Exit statuses of e2fsck(8), a bit mask.
const (
	fsckUncorrected = 4
	fsckNotRun      = 8 | 16 | 32 | 128
)

// Check replays and repairs what e2fsck can repair without questions, before a
// mount for writing. Errors that it cannot repair are ErrForeign. xfs
// replays its journal in the kernel and has nothing to check here.
func (f *Formatter) Check(ctx context.Context, path, fsType string) error {
	if fsType != "ext4" {
		return nil
	}
	_, err := f.Runner.Run(ctx, "e2fsck", "-p", path)
	var exit *ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if exit.Code&fsckUncorrected != 0 && exit.Code&fsckNotRun == 0 {
		return fmt.Errorf("the ext4 on %s is damaged beyond what e2fsck -p repairs; repair it by hand with e2fsck: %s: %w",
			path, exit.Stderr, ErrForeign)
	}
	return nil
}
