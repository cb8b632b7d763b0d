package pavdir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// batch is how many names of a directory are read at a time: a pod can have made millions.
const batch = 1024

// empty removes all in a directory, which no process uses, without following links or entering mounts.
//
// A pod can have made directories deeper than there are file descriptors. So none is walked into:
// what is in a directory of the top is removed, or moved up beside it.
func (c *clearing) empty(top *os.File) error {
	aside := 0
	for {
		names, err := next(top)
		if err != nil || len(names) == 0 {
			return err
		}
		for _, name := range names {
			if err := c.ctx.Err(); err != nil {
				return err
			}
			if err := flatten(top, name, &aside); err != nil {
				return err
			}
		}
	}
}

// next are some names of a directory, from its begin; none if it is empty.
func next(dir *os.File) ([]string, error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read %s: %w", dir.Name(), err)
	}
	names, err := dir.Readdirnames(batch)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", dir.Name(), err)
	}
	return names, nil
}

// flatten removes a name of the top. The directories beneath it, if it is one, become names of the top.
func flatten(top *os.File, name string, aside *int) error {
	if gone, err := unlink(top, name); gone || err != nil {
		return err
	}
	dir, err := openIn(top, name, unix.O_RDONLY|unix.O_DIRECTORY, inside)
	if err != nil {
		return ignoreAbsent(fmt.Errorf("remove directory %s of %s: %w", name, top.Name(), err))
	}
	defer dir.Close()
	for {
		children, err := next(dir)
		if err != nil {
			return err
		}
		if len(children) == 0 {
			break
		}
		for _, child := range children {
			if gone, err := unlink(dir, child); gone || err != nil {
				if err != nil {
					return err
				}
				continue
			}
			if err := moveUp(dir, child, top, aside); err != nil {
				return err
			}
		}
	}
	_, err = unlink(top, name)
	return err
}

// unlink removes a file or an empty directory; gone is false if it is a directory that is not empty.
func unlink(dir *os.File, name string) (gone bool, err error) {
	err = unix.Unlinkat(int(dir.Fd()), name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(int(dir.Fd()), name, unix.AT_REMOVEDIR)
	}
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return true, nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return false, nil
	}
	return false, fmt.Errorf("remove %s of %s: %w", name, dir.Name(), err)
}

// moveUp gives a directory a name in the top that is free.
func moveUp(dir *os.File, name string, top *os.File, aside *int) error {
	for {
		*aside++
		err := unix.Renameat2(int(dir.Fd()), name, int(top.Fd()), strconv.Itoa(*aside), unix.RENAME_NOREPLACE)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("move %s of %s out: %w", name, dir.Name(), err)
		}
	}
}
