package cleanup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/moor-storage/moor/test/devcluster/layout"
)

// madeFile lists the mount points that the bed had to make on this machine.
func madeFile() string { return filepath.Join(layout.DataDir, "mountpoints") }

// MakeMountpoint makes a directory on this machine that machines mount over,
// and remembers each directory it had to make, so that Clean removes it.
func MakeMountpoint(dir string) error {
	var made []string
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look at mount point %s: %w", d, err)
		}
		made = append(made, d)
	}
	if len(made) == 0 {
		return nil
	}
	f, err := os.OpenFile(madeFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("remember mount point %s: %w", dir, err)
	}
	_, err = f.WriteString(strings.Join(made, "\n") + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("remember mount point %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make mount point %s: %w", dir, err)
	}
	return nil
}

// removeMountpoints removes those that are empty; one with files of others stays.
func removeMountpoints() error {
	text, err := os.ReadFile(madeFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read which mount points were made: %w", err)
	}
	for _, dir := range strings.Fields(string(text)) {
		err := os.Remove(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTEMPTY) {
			return fmt.Errorf("remove mount point %s: %w", dir, err)
		}
	}
	return nil
}
