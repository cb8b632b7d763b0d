package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerdicts: what shows that a program does not start, or not do what it was asked.
func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		ending      Ending
		own, called bool
	}{
		"did it":                  {Ending{Said: "v1"}, true, true},
		"does not know the flag":  {Ending{Said: "usage", Code: 1}, false, true},
		"said nothing":            {Ending{}, false, false},
		"lacks a library":         {Ending{Said: "error while loading shared libraries: libc.so.6", Code: 127}, false, false},
		"lacks it, by its words":  {Ending{Said: "error while loading shared libraries: libc.so.6", Code: 1}, false, false},
		"lacks it, by its status": {Ending{Said: "?", Code: 127}, false, false},
		"was killed":              {Ending{Said: "v1", Err: errors.New("signal: killed")}, false, false},
	} {
		if got := own(c.ending) == nil; got != c.own {
			t.Errorf("%s: of Moor's own it is %v, want %v", name, got, c.own)
		}
		if got := called(c.ending) == nil; got != c.called {
			t.Errorf("%s: of Debian's it is %v, want %v", name, got, c.called)
		}
	}
}

// TestStart: how a program ended is told, with a script in the place of an emulator.
func TestStart(t *testing.T) {
	emulator := filepath.Join(t.TempDir(), "emulator")
	script := "#!/bin/sh\n[ \"$2$3$4\" = /root/root/bin/a-V ] && [ \"$PATH\" = /nowhere ] || exit 9\necho said\necho more >&2\nexit 3\n"
	if err := os.WriteFile(emulator, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := start(t.Context(), emulator, "/root", "/bin/a", "-V"); got.Err != nil || got.Code != 3 || got.Said != "said\nmore" || !strings.Contains(got.What, "/bin/a -V") {
		t.Errorf("got %+v", got)
	}
	if got := start(t.Context(), filepath.Join(t.TempDir(), "none"), "/root", "/bin/a", "-V"); got.Err == nil {
		t.Errorf("without an emulator it ended: %+v", got)
	}
}

// TestTryNeedsAnEmulator: without one nothing was tried, and that is said.
func TestTryNeedsAnEmulator(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Try(t.Context(), List{}, Maker{}, "arm64")
	if err == nil || !strings.Contains(err.Error(), "nothing was tried") || !strings.Contains(err.Error(), "qemu-user-static") {
		t.Error(err)
	}
}

func TestWritten(t *testing.T) {
	page := "a\n<!-- begin sizes arm64 -->\nold\n<!-- end sizes arm64 -->\nb\n"
	got, err := Written(page, "sizes arm64", "new\n")
	if want := "a\n<!-- begin sizes arm64 -->\nnew\n<!-- end sizes arm64 -->\nb\n"; err != nil || got != want {
		t.Errorf("got %q, %v", got, err)
	}
	for _, bad := range []string{"a\n", "<!-- begin sizes arm64 -->\n", "<!-- end sizes arm64 -->\n<!-- begin sizes arm64 -->\n"} {
		if got, err := Written(bad, "sizes arm64", "new\n"); err == nil {
			t.Errorf("%q becomes %q", bad, got)
		}
	}
}

// TestSizeOf: what is in a registry is smaller, and links have no size.
func TestSizeOf(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "usr", "a"), strings.Repeat("a", 1e6))
	if err := os.Symlink("usr/a", filepath.Join(root, "b")); err != nil {
		t.Fatal(err)
	}
	got, err := sizeOf(root)
	if err != nil || got.unpacked != 1e6 || got.packed == 0 || got.packed > 1e5 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestSizes: an image that holds a program alone has a limit, and one with Debian's programs has none.
func TestSizes(t *testing.T) {
	for _, tt := range []struct {
		name     string
		bytes    int64
		packages []string
		refused  bool
	}{
		{name: "at the limit", bytes: largest},
		{name: "above it", bytes: largest + 1, refused: true},
		{name: "above it, with Debian's programs", bytes: largest + 1, packages: []string{"mount"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := Maker{Dir: t.TempDir()}
			page, program := filepath.Join(m.Dir, "page.md"), filepath.Join(m.Tree("one"), "program")
			write(t, page, "<!-- begin sizes amd64 -->\n<!-- end sizes amd64 -->\n")
			write(t, program, "")
			if err := os.Truncate(program, tt.bytes); err != nil {
				t.Fatal(err)
			}
			err := Sizes(List{Images: []Image{{Name: "one", Program: "program", Packages: tt.packages}}}, m, "amd64", page)
			if refused := err != nil && strings.Contains(err.Error(), "image one has 60.0 MB, of 60 at most"); refused != tt.refused || err != nil && !refused {
				t.Errorf("it is refused with %v", err)
			}
			if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "| one | 0.1 | 60.0 |") {
				t.Errorf("the page has %q: %v", text, err)
			}
		})
	}
}
