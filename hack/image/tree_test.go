package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// machine is this one, whose program mount is of Debian.
func machine() *System { return &System{Root: "/", Triplet: triplets[runtime.GOARCH]} }

// TestClosure: a program has its loader, and libraries of its libraries.
func TestClosure(t *testing.T) {
	got, err := machine().Closure([]string{"/bin/mount", "/etc/passwd"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/bin/mount", "/etc/passwd", "ld-linux", "libmount.so.1", "libc.so.6", "libblkid.so.1", "libpcre2-8.so.0"} {
		if !slices.ContainsFunc(got, func(path string) bool { return strings.Contains(path, want) }) {
			t.Errorf("%s is not in %v", want, got)
		}
	}
	if !slices.IsSorted(got) {
		t.Errorf("%v is not sorted", got)
	}
	if got, err := machine().Closure([]string{"/bin/no-such-program"}); err == nil {
		t.Errorf("a program that is not there has %v", got)
	}
}

// unpacked is a system with mount, all that it needs but for without, and one package of all.
func unpacked(t *testing.T, without string) *System {
	t.Helper()
	root := t.TempDir()
	paths, err := machine().Closure([]string{"/bin/mount"})
	if err != nil {
		t.Fatal(err)
	}
	var list string
	for _, path := range paths {
		list += "." + path + "\n"
		if without != "" && strings.Contains(path, without) {
			continue
		}
		if err := put(path, filepath.Join(root, path), 0o755|fs.ModeSetuid); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(root, lists, "all.list"), list)
	write(t, filepath.Join(root, controls, "all"), "Package: all\nArchitecture: any\nVersion: 1:2+b3\n")
	write(t, filepath.Join(root, docs, "all", "copyright"), "GPL")
	s, err := OpenSystem(root, runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// built is what hack/images.sh leaves for the program a.
func built(t *testing.T, s *System) Maker {
	t.Helper()
	m := Maker{Dir: t.TempDir(), System: s}
	write(t, filepath.Join(m.Dir, "programs", "a"), "program")
	write(t, filepath.Join(m.Dir, "sbom", "a.cdx.json"), sbom)
	write(t, filepath.Join(m.Dir, "licenses", "all", "b.example", "LICENSE"), "MIT")
	return m
}

// TestMake: an image has its program, what that calls, and what has to be told of both.
func TestMake(t *testing.T) {
	m := built(t, unpacked(t, ""))
	image := Image{Name: "a-node", Program: "a", Paths: []string{"/of-dpf"}, Calls: []string{"/bin/mount"}, Packages: []string{"all"}}
	for range 2 { // the second one replaces the first
		if err := m.Make(image); err != nil {
			t.Fatal(err)
		}
	}
	root := m.Tree("a-node")
	for path, want := range map[string]string{
		"usr/local/bin/a": "program", "of-dpf": "program", "usr/share/doc/moor/licenses/b.example/LICENSE": "MIT", "usr/share/doc/all/copyright": "GPL",
		"var/lib/dpkg/status.d/all": "Package: all", "usr/share/doc/moor/sbom.cdx.json": "pkg:deb/debian/all@1%3A2%2Bb3?arch=any",
	} {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, and not %q:\n%s", path, err, want, text)
		}
	}
	for path, want := range map[string]fs.FileMode{"usr/local/bin/a": 0o755, "bin/mount": 0o755, "usr/share/doc/all/copyright": 0o644} {
		info, err := os.Stat(filepath.Join(root, path))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if found, err := filepath.Glob(filepath.Join(root, "lib", m.System.Triplet, "libc.so.6")); err != nil || len(found) != 1 {
		t.Errorf("the library of mount is not there: %v, %v", found, err)
	}
}

// TestMakeAlone: an image of a program that calls nothing has nothing of Debian.
func TestMakeAlone(t *testing.T) {
	m := built(t, unpacked(t, ""))
	write(t, filepath.Join(m.Dir, "licenses", "a", "own", "LICENSE"), "of a alone")
	if err := m.Make(Image{Name: "a", Program: "a"}); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := filepath.WalkDir(m.Tree("a"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			got = append(got, strings.TrimPrefix(path, m.Tree("a")))
		}
		return err
	})
	if want := []string{"/usr/local/bin/a", "/usr/share/doc/moor/licenses/own/LICENSE", "/usr/share/doc/moor/sbom.cdx.json"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

// TestMakeFails: rather than an image whose programs do not start, or whose parts have no license.
func TestMakeFails(t *testing.T) {
	image := Image{Name: "a", Program: "a", Calls: []string{"/bin/mount"}, Packages: []string{"all"}}
	for name, c := range map[string]struct {
		without string
		change  func(m Maker) error
		want    string
	}{
		"a library is missing":     {without: "libpcre2-8.so.0", want: "library libpcre2-8.so.0"},
		"the program is missing":   {change: func(m Maker) error { return os.Remove(filepath.Join(m.Dir, "programs", "a")) }, want: "programs/a"},
		"its SBOM is missing":      {change: func(m Maker) error { return os.Remove(filepath.Join(m.Dir, "sbom", "a.cdx.json")) }, want: "a.cdx.json"},
		"its licenses are missing": {change: func(m Maker) error { return os.RemoveAll(filepath.Join(m.Dir, "licenses")) }, want: "licenses"},
		"a package has no license": {change: func(m Maker) error { return os.Remove(filepath.Join(m.System.Root, docs, "all", "copyright")) }, want: "copyright"},
		"a file is of no package":  {change: func(m Maker) error { delete(m.System.owners, "/bin/mount"); return nil }, want: "of no Debian package"},
	} {
		m := built(t, unpacked(t, c.without))
		if c.change != nil {
			if err := c.change(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Make(image); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, and not %q", name, err, c.want)
		}
	}
}

// TestOpenSystem: of a processor that there are images for, with packages.
func TestOpenSystem(t *testing.T) {
	if _, err := OpenSystem(t.TempDir(), "arm64"); err == nil {
		t.Error("an empty directory is taken for a system")
	}
	if _, err := OpenSystem(unpacked(t, "").Root, "riscv64"); err == nil {
		t.Error("a processor without images is taken")
	}
}
