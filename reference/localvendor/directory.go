package localvendor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/files"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// directoryMode is that of a new directory: pods run as any user, and who may
// see the volume at all is decided elsewhere.
const directoryMode = 0o777

func (s *Storage) directoryPath(id string) string {
	return filepath.Join(s.dir, id+records.DirectorySuffix)
}

// dataPath is where the data of a volume is.
func (s *Storage) dataPath(id string, r records.Volume) string {
	if r.Shared() {
		return s.directoryPath(id)
	}
	return s.imagePath(id)
}

// checkDirectory refuses what a directory cannot have.
func checkDirectory(r records.Volume) error {
	switch {
	case r.ByTarget():
		return nil
	case r.Shared() && r.Provisioning == records.Thick:
		return fmt.Errorf("a directory reserves no room, use %s=%s: %w", records.ParameterProvisioning, records.Thin, provisioner.ErrInvalid)
	case r.Limits != records.Limits{}:
		return fmt.Errorf("limits do not apply to a directory, to which no target leads: %w", provisioner.ErrInvalid)
	}
	return nil
}

// onlyImage refuses what can be done with images alone.
func onlyImage(r records.Volume, what string) error {
	if r.Shared() {
		return fmt.Errorf("a volume of mode Filesystem is a directory here, which cannot be %s: %w", what, provisioner.ErrUnsupported)
	}
	return nil
}

// makeDirectory makes the directory anew: without a record, one that an
// interrupted call may have left was never given to a user.
func (s *Storage) makeDirectory(id string) error {
	path := s.directoryPath(id)
	if err := removeTree(path); err != nil {
		return err
	}
	if err := os.Mkdir(path, directoryMode); err != nil {
		return fmt.Errorf("make its directory: %w", err)
	}
	// Mkdir's mode is less the umask.
	if err := errors.Join(os.Chmod(path, directoryMode), files.SyncDir(path), files.SyncDir(s.dir)); err != nil {
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

// unopened returns nil if none of the nodes has the directory open. The record
// has to say before that they may not open it any more: a plugin looks there
// after it has made its mark.
func (s *Storage) unopened(id string, nodes []string) error {
	var open []string
	for _, node := range nodes {
		_, err := os.Lstat(records.MarkPath(s.dir, id, node))
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
		strings.Join(open, ", "), filepath.Dir(records.MarkPath(s.dir, id, open[0])), provisioner.ErrUnavailable)
}
