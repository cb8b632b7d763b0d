package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// System is a directory into which hack/debian.sh has unpacked Debian packages, of any
// processor: nothing of it is started to find out what it needs.
type System struct {
	Root string
	// Triplet is the directory of its libraries.
	Triplet string
	// owners has the package of each path.
	owners map[string]string
}

// triplets are Debian's names of processors in paths, by Go's.
var triplets = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}

// controls is where hack/debian.sh puts the description of each package, and lists what it has.
// Scanners of images look for descriptions there.
const (
	controls = "/var/lib/dpkg/status.d"
	lists    = "/var/lib/dpkg/info"
)

// OpenSystem reads which package each file is of.
func OpenSystem(root, arch string) (*System, error) {
	s := &System{Root: root, Triplet: triplets[arch], owners: map[string]string{}}
	if s.Triplet == "" {
		return nil, fmt.Errorf("there are images for amd64 and arm64, not for %q", arch)
	}
	found, err := filepath.Glob(filepath.Join(root, lists, "*.list"))
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("%s has no unpacked packages: %v", root, err)
	}
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read what a package has: %w", err)
		}
		for _, path := range strings.Fields(string(text)) {
			s.owners[filepath.Join("/", path)] = strings.TrimSuffix(filepath.Base(file), ".list")
		}
	}
	return s, nil
}

// Real follows the symbolic links that a path of the system ends in.
func (s *System) Real(path string) (string, error) {
	for range 10 {
		info, err := os.Lstat(filepath.Join(s.Root, path))
		if err != nil {
			return "", fmt.Errorf("look for %s of Debian: %w", path, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			return path, nil
		}
		to, err := os.Readlink(filepath.Join(s.Root, path))
		if err != nil {
			return "", fmt.Errorf("read the link %s of Debian: %w", path, err)
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	return "", fmt.Errorf("follow links of Debian to %s: there are too many", path)
}

// Closure are the paths given, and those of the loader and the libraries without which they do
// not start, sorted.
func (s *System) Closure(paths []string) ([]string, error) {
	in := map[string]bool{}
	queue := slices.Clone(paths)
	for len(queue) > 0 {
		path := queue[0]
		queue = queue[1:]
		if in[path] {
			continue
		}
		in[path] = true
		needs, err := s.needs(path)
		if err != nil {
			return nil, err
		}
		queue = append(queue, needs...)
	}
	return slices.Sorted(maps.Keys(in)), nil
}

// needs are the loader of a program and the libraries that it names itself.
func (s *System) needs(path string) ([]string, error) {
	target, err := s.Real(path)
	if err != nil {
		return nil, err
	}
	file, err := elf.Open(filepath.Join(s.Root, target))
	var other *elf.FormatError
	if errors.As(err, &other) {
		return nil, nil // a file of configuration
	}
	if err != nil {
		return nil, fmt.Errorf("read the program %s of Debian: %w", path, err)
	}
	defer func() { _ = file.Close() }()
	var out []string
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			name := make([]byte, part.Filesz)
			if _, err := part.ReadAt(name, 0); err != nil {
				return nil, fmt.Errorf("read which loader %s of Debian has: %w", path, err)
			}
			out = append(out, strings.TrimRight(string(name), "\x00"))
		}
	}
	libraries, err := file.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("read which libraries %s of Debian has: %w", path, err)
	}
	for _, name := range libraries {
		place, err := s.library(name)
		if err != nil {
			return nil, fmt.Errorf("%s needs it: %w", path, err)
		}
		out = append(out, place)
	}
	return out, nil
}

// library is where a library is found by its name, as the loader looks for it.
func (s *System) library(name string) (string, error) {
	for _, directory := range []string{"/lib/" + s.Triplet, "/usr/lib/" + s.Triplet, "/lib", "/usr/lib"} {
		path := filepath.Join(directory, name)
		if _, err := s.Real(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no package that is unpacked has the library %s", name)
}

// Owners are the packages of the paths, sorted.
func (s *System) Owners(paths []string) ([]string, error) {
	var out []string
	for _, path := range paths {
		target, err := s.Real(path)
		if err != nil {
			return nil, err
		}
		if s.owners[target] == "" {
			return nil, fmt.Errorf("%s is of no Debian package", target)
		}
		out = append(out, s.owners[target])
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Package is what an SBOM says of a Debian package.
type Package struct{ Name, Version, Arch string }

// Describe reads the description of a package.
func (s *System) Describe(name string) (Package, error) {
	text, err := os.ReadFile(filepath.Join(s.Root, controls, name))
	if err != nil {
		return Package{}, fmt.Errorf("read the description of a Debian package: %w", err)
	}
	p := Package{Name: name}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "Version":
			p.Version = value
		case "Architecture":
			p.Arch = value
		}
	}
	if p.Version == "" || p.Arch == "" {
		return p, fmt.Errorf("the description of the Debian package %s has no version or no architecture", name)
	}
	return p, nil
}
