package docs

import (
	"bufio"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated tables into the pages")

// root is the checkout, seen from this package.
const root = "../.."

func path(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }

// bufioReader reads from text.
func bufioReader(text string) *bufio.Reader { return bufio.NewReader(strings.NewReader(text)) }

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// checkBlock compares the part of a page between the markers of a block with
// what it should be, or writes it there.
func checkBlock(t *testing.T, page, block, want string) {
	t.Helper()
	content := read(t, page)
	begin, end := "<!-- begin "+block+" -->\n", "<!-- end "+block+" -->"
	head, rest, ok := strings.Cut(content, begin)
	have, tail, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatalf("%s has no block between %q and %q", page, begin, end)
	}
	if have == want {
		return
	}
	if *update {
		if err := os.WriteFile(page, []byte(head+begin+want+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	line, had, should := difference(have, want)
	t.Errorf("%s: line %d of block %q is not what the code says; run go test ./test/docs -update\nhave %q\nwant %q", page, line, block, had, should)
}

// difference is the first line in which two texts differ.
func difference(have, want string) (line int, had, should string) {
	a, b := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		had, should = "", ""
		if i < len(a) {
			had = a[i]
		}
		if i < len(b) {
			should = b[i]
		}
		if had != should {
			return i + 1, had, should
		}
	}
	return 0, "", ""
}

// cell makes text fit into one cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", "\\|")
}

// code sets text as code, and leaves nothing as nothing.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + cell(text) + "`"
}

// markdown lists the pages of the project.
func markdown(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin"):
			return filepath.SkipDir
		case strings.HasSuffix(p, ".md"):
			out = append(out, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
