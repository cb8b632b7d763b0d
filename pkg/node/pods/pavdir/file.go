package pavdir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// rereads bounds how often a file is read again because it changed meanwhile.
const rereads = 3

// pin names a file of a pod that has to be a regular one, without opening it: to open a device, or a
// FIFO, has effects of its own.
func pin(dir *os.File, name string, since Since) (*os.File, unix.Stat_t, error) {
	var st unix.Stat_t
	f, err := openIn(dir, name, unix.O_PATH, inside)
	if p, wrong := errors.AsType[Problem](err); wrong {
		return nil, st, aboutFile(name, p.words)
	}
	if err != nil {
		return nil, st, err
	}
	if err = unix.Fstat(int(f.Fd()), &st); err != nil {
		err = fmt.Errorf("look at %s: %w", f.Name(), err)
	} else {
		err = regular(name, &st, since)
	}
	if err != nil {
		f.Close()
		return nil, st, err
	}
	return f, st, nil
}

// tick is how far the clock by which the kernel stamps files can be behind the one that tells the time:
// a tick of its timer, at CONFIG_HZ=100 (ktime_get_coarse_real_ts64 in Documentation/core-api/timekeeping.rst).
const tick = 10 * time.Millisecond

// regular returns what is wrong with a file. The time of its last change is the kernel's, which the pod
// cannot set.
func regular(name string, st *unix.Stat_t, since Since) error {
	changed := time.Unix(st.Ctim.Unix())
	old := changed.Add(tick).Before(since.Time)
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return aboutFile(name, "is "+kind(st.Mode)+", and has to be a regular file")
	case st.Nlink > 1:
		return aboutFile(name, "has other names as well (hard links): what it holds may be another's")
	case old && since.Shared:
		return fs.ErrNotExist
	case old:
		return aboutFile(name, fmt.Sprintf("was written at %s, and the pod began at %s: another has left it", changed.UTC().Format(time.RFC3339), since.Time.UTC().Format(time.RFC3339)))
	}
	return nil
}

// look returns nil if a file is there and is regular.
func look(dir *os.File, name string, since Since) error {
	f, _, err := pin(dir, name, since)
	if err != nil {
		return err
	}
	return f.Close()
}

// content is what a file holds, or the beginning of it that is longer than the most characters that
// count.
func content(dir *os.File, name string, most int, since Since) (string, error) {
	for range rereads {
		text, steady, err := once(dir, name, most, since)
		if err != nil || steady {
			return text, err
		}
	}
	return "", aboutFile(name, "changes while it is read")
}

// once reads a file; steady is false if it changed meanwhile.
func once(dir *os.File, name string, most int, since Since) (text string, steady bool, err error) {
	f, before, err := pin(dir, name, since)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	opened, err := reopen(f)
	if err != nil {
		return "", false, err
	}
	defer opened.Close()
	bound := (most + 2) * utf8.UTFMax // one too many, and a newline
	data, err := io.ReadAll(io.LimitReader(opened, int64(bound)))
	if err != nil {
		return "", false, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	var after unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &after); err != nil {
		return "", false, fmt.Errorf("look at %s: %w", f.Name(), err)
	}
	if len(data) == bound {
		data = whole(data)
	}
	return string(data), before.Size == after.Size && before.Mtim == after.Mtim, nil
}

// whole leaves out what is cut off of the last character.
func whole(data []byte) []byte {
	for n := 1; n < utf8.UTFMax && n <= len(data); n++ {
		if tail := data[len(data)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return data[:len(data)-n]
			}
			break
		}
	}
	return data
}
