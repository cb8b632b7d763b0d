package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/moor-storage/moor/test/devcluster/ociimage"
)

// Installed is a Debian package of this machine.
type Installed struct {
	Name string
	// Basic is whether every Debian has it.
	Basic bool
	// Provides are other names of it.
	Provides []string
	// Needs has, for each dependency, the names of which one is enough.
	Needs [][]string
}

const dpkgFormat = "${Package}\t${db:Status-Status}\t${Essential}\t${Priority}\t${Provides}\t${Pre-Depends}\t${Depends}\n"

// ReadInstalled reads what dpkg-query prints with dpkgFormat.
func ReadInstalled(list string) (map[string]Installed, error) {
	out := map[string]Installed{}
	for line := range strings.Lines(list) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 7 {
			return nil, fmt.Errorf("read the list of Debian packages: the line %q has %d fields, want 7", line, len(f))
		}
		if f[1] != "installed" {
			continue
		}
		p := Installed{Name: f[0], Basic: f[2] == "yes" || f[3] == "required"}
		for _, names := range alternatives(f[4]) {
			p.Provides = append(p.Provides, names...)
		}
		p.Needs = append(alternatives(f[5]), alternatives(f[6])...)
		out[p.Name] = p
	}
	return out, nil
}

// alternatives reads a list of packages, without the versions: a, b | c (>= 1).
func alternatives(list string) [][]string {
	var out [][]string
	for _, one := range strings.Split(list, ",") {
		var names []string
		for _, name := range strings.Split(one, "|") {
			name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
			name, _, _ = strings.Cut(name, ":")
			if name != "" {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			out = append(out, names)
		}
	}
	return out
}

// Closure are the names of the packages, of those that every Debian has, and of all that they
// depend on, sorted.
func Closure(installed map[string]Installed, wanted []string) ([]string, error) {
	providers := map[string]string{}
	queue := slices.Clone(wanted)
	for _, p := range installed {
		if p.Basic {
			queue = append(queue, p.Name)
		}
		for _, other := range p.Provides {
			providers[other] = p.Name
		}
	}
	in := map[string]bool{}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		p, ok := installed[name]
		if !ok {
			return nil, fmt.Errorf("the Debian package %s is not installed on this machine", name)
		}
		if in[p.Name] {
			continue
		}
		in[p.Name] = true
		for _, need := range p.Needs {
			found := slices.IndexFunc(need, func(n string) bool { return installed[n].Name != "" || providers[n] != "" })
			if found < 0 {
				return nil, fmt.Errorf("of %v, which the Debian package %s needs, none is installed on this machine", need, name)
			}
			if n := need[found]; installed[n].Name != "" {
				queue = append(queue, n)
			} else {
				queue = append(queue, providers[n])
			}
		}
	}
	var out []string
	for name := range in {
		out = append(out, name)
	}
	slices.Sort(out)
	return out, nil
}

// unneeded is what Debian's slim image leaves out.
var unneeded = []string{"/usr/share/doc/", "/usr/share/man/", "/usr/share/info/", "/usr/share/locale/", "/usr/share/lintian/"}

// DebianFiles are the files of the packages and of all that they depend on.
func DebianFiles(ctx context.Context, wanted []string) ([]ociimage.File, error) {
	list, err := output(ctx, "dpkg-query", "-W", "-f", dpkgFormat)
	if err != nil {
		return nil, err
	}
	installed, err := ReadInstalled(list)
	if err != nil {
		return nil, err
	}
	names, err := Closure(installed, wanted)
	if err != nil {
		return nil, err
	}
	paths, err := output(ctx, "dpkg-query", append([]string{"-L"}, names...)...)
	if err != nil {
		return nil, err
	}
	var out []ociimage.File
	seen := map[string]bool{}
	for path := range strings.Lines(paths) {
		path = strings.TrimSpace(path)
		if seen[path] || !strings.HasPrefix(path, "/") || slices.ContainsFunc(unneeded, func(p string) bool { return strings.HasPrefix(path, p) }) {
			continue
		}
		seen[path] = true
		f, err := fileOf(path)
		if err != nil {
			return nil, err
		}
		if f != nil {
			out = append(out, *f)
		}
	}
	return out, nil
}

// fileOf is nil for a directory, and for what a package lists and this machine has not.
func fileOf(path string) (*ociimage.File, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", path, err)
	}
	f := &ociimage.File{Path: path, Mode: int64(info.Mode().Perm())}
	switch {
	case info.Mode().IsRegular():
		f.Content, err = os.ReadFile(path)
	case info.Mode()&fs.ModeSymlink != 0:
		if to, err := os.Stat(path); err == nil && to.IsDir() && len(strings.Split(path, "/")) == 2 {
			return nil, nil // /bin and its like: the packages have files in both
		}
		f.Link, err = os.Readlink(path)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return f, nil
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	var out, failure bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("run %s: %w: %s", name, err, failure.String())
	}
	return out.String(), nil
}
