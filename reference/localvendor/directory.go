package localvendor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// A volume of mode Filesystem is a directory, <id>.dir, which every node that
// has the volume uses at the same time. No target stands before it, so a node
// cannot be turned away; in place of that, the plugin of a node leaves a mark in
// <id>.users as long as it has the directory open, and the volume is not taken
// from a node that has a mark: fail closed.
const (
	directorySuffix = ".dir"
	usersSuffix     = ".users"
)

// directoryMode is that of a new directory: pods run as any user, and who may
// see the volume at all is decided elsewhere.
const directoryMode = 0o777

// shared reports whether the volume is a directory.
func (r record) shared() bool { return r.Mode == provisioner.Filesystem }

func (s *Storage) directoryPath(id string) string { return filepath.Join(s.dir, id+directorySuffix) }

// dataPath is where the data of a volume is.
func (s *Storage) dataPath(id string, r record) string {
	if r.shared() {
		return s.directoryPath(id)
	}
	return s.imagePath(id)
}

// checkDirectory refuses what a directory cannot have.
func checkDirectory(r record) error {
	switch {
	case !r.shared():
		return nil
	case r.Provisioning == Thick:
		return fmt.Errorf("a directory reserves no room, use %s=%s: %w", ParameterProvisioning, Thin, provisioner.ErrInvalid)
	case r.Limits != limits{}:
		return fmt.Errorf("limits do not apply to a directory: %w", provisioner.ErrInvalid)
	}
	return nil
}

// onlyImage refuses what can be done with images alone.
func onlyImage(r record, what string) error {
	if r.shared() {
		return fmt.Errorf("a volume of mode Filesystem is a directory here, which cannot be %s: %w", what, provisioner.ErrUnsupported)
	}
	return nil
}

// makeDirectory makes the directory anew: without a record nobody was ever given
// one that an interrupted call may have left.
func (s *Storage) makeDirectory(id string) error {
	path := s.directoryPath(id)
	if err := removeTree(path); err != nil {
		return err
	}
	if err := os.Mkdir(path, directoryMode); err != nil {
		return fmt.Errorf("make its directory: %w", err)
	}
	// Mkdir's mode is less the umask.
	if err := errors.Join(os.Chmod(path, directoryMode), syncDir(path), syncDir(s.dir)); err != nil {
		return fmt.Errorf("make its directory: %w", err)
	}
	return nil
}

// removeTree removes a directory with all that is in it; it follows no link.
func removeTree(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove directory %s: %w", path, err)
	}
	return nil
}

// markPath is the mark of a node that has the directory of a volume open.
func markPath(dir, id, node string) string {
	return filepath.Join(dir, id+usersSuffix, fit(node, 63))
}

// mark says that the node has the directory open, durably, before it opens it.
func mark(dir, id, node string) error {
	path := markPath(dir, id, node)
	if err := os.Mkdir(filepath.Dir(path), 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("mark its directory as open: %w", err)
	}
	if err := errors.Join(replaceFile(path, []byte(node+"\n")), syncDir(dir)); err != nil {
		return fmt.Errorf("mark its directory as open: %w", err)
	}
	return nil
}

// unmark takes the node's mark away, and what held the marks with the last one.
func unmark(dir, id, node string) error {
	path := markPath(dir, id, node)
	if err := ignoreMissing(os.Remove(path)); err != nil {
		return fmt.Errorf("take the mark from its directory: %w", err)
	}
	_ = os.Remove(filepath.Dir(path)) // fails while others have marks there
	return nil
}

// unopened returns nil if none of the nodes has the directory open. The record
// has to say before that they may not open it any more: a plugin looks there
// after it has made its mark.
func (s *Storage) unopened(id string, nodes []string) error {
	var open []string
	for _, node := range nodes {
		_, err := os.Lstat(markPath(s.dir, id, node))
		if err == nil {
			open = append(open, node)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look who has its directory open: %w", err)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return fmt.Errorf("node %s has its directory open and cannot be turned away: its plugin has to close it first (if that node is gone for good, remove its mark in %s): %w",
		strings.Join(open, ", "), filepath.Dir(markPath(s.dir, id, open[0])), provisioner.ErrUnavailable)
}
