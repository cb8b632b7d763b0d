package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestListIsRead: that of this checkout.
func TestListIsRead(t *testing.T) {
	l, err := ReadList(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	found := slices.IndexFunc(l.Images, func(i Image) bool { return i.Name == "snap-csi-plugin-node" })
	if found < 0 || !slices.Contains(l.Images[found].Calls, "/sbin/mkfs.xfs") || !slices.Contains(l.Packages(), "xfsprogs") {
		t.Errorf("got %+v", l)
	}
	if !slices.IsSorted(l.Packages()) || len(slices.Compact(l.Packages())) != len(l.Packages()) {
		t.Errorf("the packages are %v", l.Packages())
	}
}

// TestListIsRefused: what would make another image than is meant.
func TestListIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":                {"images: []", "it has no image"},
		"no program":           {"images: [{name: a}]", "both are needed"},
		"no name":              {"images: [{program: a}]", "both are needed"},
		"two of one name":      {"images: [{name: a, program: a}, {name: a, program: b}]", "two images a"},
		"packages for nothing": {"images: [{name: a, program: a, packages: [p]}]", "packages are for what it calls"},
		"calls of no package":  {"images: [{name: a, program: a, calls: [/bin/c]}]", "packages are for what it calls"},
		"not from the root":    {"images: [{name: a, program: a, paths: [a]}]", "a is no clean path"},
		"out of the root":      {"images: [{name: a, program: a, files: [/etc/../../f], packages: [p]}]", "is no clean path"},
		"a word of no meaning": {"images: [{name: a, program: a, command: b}]", "unknown field"},
	} {
		checkout := t.TempDir()
		file := filepath.Join(checkout, ListFile)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadList(checkout); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, and not %q", name, err, c.want)
		}
	}
}
