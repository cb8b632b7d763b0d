package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

const (
	// programs is where an image has Moor's program.
	programs = "/usr/local/bin"
	docs     = "/usr/share/doc"
	// licenses are those of what the program links, and bill is the SBOM of the image.
	licenses = docs + "/moor/licenses"
	bill     = docs + "/moor/sbom.cdx.json"
)

// Maker makes the root directories of images from what hack/images.sh has put into a directory:
// programs/, sbom/, licenses/ of all programs and of moor-scheduler, and system/.
type Maker struct {
	Dir    string
	System *System
}

// Tree is where the root directory of an image is.
func (m Maker) Tree(name string) string { return filepath.Join(m.Dir, "images", name) }

// Make makes the root directory of one image.
func (m Maker) Make(i Image) error {
	root := m.Tree(i.Name)
	owners, paths, err := m.debian(i)
	if err == nil {
		err = os.RemoveAll(root)
	}
	if err == nil {
		err = errors.Join(m.own(i, root), m.called(root, owners, paths))
	}
	if err == nil {
		err = m.bill(i, root, owners)
	}
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	return nil
}

// own puts what is of Moor's build into an image.
func (m Maker) own(i Image, root string) error {
	if err := put(filepath.Join(m.Dir, "programs", i.Program), filepath.Join(root, programs, i.Program), 0o755); err != nil {
		return err
	}
	for _, path := range i.Paths {
		if err := os.Symlink(filepath.Join(programs[1:], i.Program), filepath.Join(root, path)); err != nil {
			return fmt.Errorf("link to the program: %w", err)
		}
	}
	texts := filepath.Join(m.Dir, "licenses", "all")
	if own := filepath.Join(m.Dir, "licenses", i.Program); exists(own) {
		texts = own
	}
	return filepath.WalkDir(texts, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rest, err := filepath.Rel(texts, path)
		if err != nil {
			return err
		}
		return put(path, filepath.Join(root, licenses, rest), 0o644)
	})
}

// called puts what the program calls into an image, with the description and the license of each
// package that it is of.
func (m Maker) called(root string, owners, paths []string) error {
	for _, path := range paths {
		target, err := m.System.Real(path)
		if err != nil {
			return err
		}
		info, err := os.Stat(filepath.Join(m.System.Root, target))
		if err != nil {
			return fmt.Errorf("look at %s of Debian: %w", path, err)
		}
		// Without the bits that make any user root.
		if err := put(filepath.Join(m.System.Root, target), filepath.Join(root, path), info.Mode().Perm()); err != nil {
			return err
		}
	}
	for _, name := range owners {
		for _, path := range []string{filepath.Join(docs, name, "copyright"), filepath.Join(controls, name)} {
			if err := put(filepath.Join(m.System.Root, path), filepath.Join(root, path), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// debian are the paths that an image has of Debian, and the packages that these are of.
func (m Maker) debian(i Image) (owners, paths []string, err error) {
	if len(i.Packages) == 0 {
		return nil, nil, nil
	}
	paths, err = m.System.Closure(slices.Concat(i.Calls, i.Files))
	if err != nil {
		return nil, nil, err
	}
	owners, err = m.System.Owners(paths)
	return owners, paths, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// put copies a file, and makes the directories above it.
func put(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy a file: %w", err)
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("make the directory of %s: %w", to, err)
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	_, err = io.Copy(out, in)
	// The mode again: that of a new file is cut by the umask.
	if err := errors.Join(err, out.Chmod(mode), out.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}
