package records

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moor-storage/moor/reference/localvendor/files"
)

// A volume of mode Filesystem is a directory, <id>.dir, which every node that
// has the volume uses at the same time, or the file system in <id>.img, which a
// node has mounted. No target stands before it, so a node
// cannot be turned away; in place of that, the plugin of a node leaves a mark in
// <id>.users as long as it has the directory open, and the volume is not taken
// from a node that has a mark: fail closed.
const (
	DirectorySuffix = ".dir"
	UsersSuffix     = ".users"
)

// MarkPath is the mark of a node that has the directory of a volume open.
func MarkPath(dir, id, node string) string {
	return filepath.Join(dir, id+UsersSuffix, Fit(node, 63))
}

// Mark says that the node has the directory open, durably, before it opens it.
func Mark(dir, id, node string) error {
	path := MarkPath(dir, id, node)
	if err := os.Mkdir(filepath.Dir(path), 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("mark its directory as open: %w", err)
	}
	if err := errors.Join(files.Replace(path, []byte(node+"\n")), files.SyncDir(dir)); err != nil {
		return fmt.Errorf("mark its directory as open: %w", err)
	}
	return nil
}

// Unmark takes the node's mark away, and what held the marks with the last one.
func Unmark(dir, id, node string) error {
	path := MarkPath(dir, id, node)
	if err := files.IgnoreMissing(os.Remove(path)); err != nil {
		return fmt.Errorf("take the mark from its directory: %w", err)
	}
	_ = os.Remove(filepath.Dir(path)) // fails while others have marks there
	return nil
}
