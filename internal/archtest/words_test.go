package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unclear finds words that do not say who or what does a thing, and a form that is not
// plain English any more. They are put together here, so that this file has none.
var unclear = regexp.MustCompile(`(?i)\b(no` + `body|some` + `body|who` + `ever|be` + ` it|sha` + `ll)\b`)

// texts are the kinds of files that people of the project write; LICENSE is quoted.
var texts = []string{".go", ".md", ".yaml", ".yml", ".sh", ".proto", ".pml"}

// TestWordsArePlain: a sentence names the program, the DPU or the person that it is about.
func TestWordsArePlain(t *testing.T) {
	root, read := filepath.Join("..", ".."), 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || path == filepath.Join(root, "bin")):
			return filepath.SkipDir
		case d.IsDir() || !slices.Contains(texts, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read++
		for i, line := range strings.Split(string(text), "\n") {
			if strings.Contains(line, "etc/passwd") {
				continue // where one of them is a user
			}
			for _, word := range unclear.FindAllString(line, -1) {
				if word != "NoBody" { // of net/http
					t.Errorf("%s:%d: %q does not say who or what is meant: name it, in plain words", path, i+1, word)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if read < 1000 {
		t.Errorf("read %d files: the search is wrong", read)
	}
}
