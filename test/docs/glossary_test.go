package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named is a link from the name of something in the code to the file that has it.
var named = regexp.MustCompile("\\[`([A-Za-z.]+)`\\]\\(([^)]+\\.go)\\)")

// TestGlossary: what the glossary names is in the file to which it links.
func TestGlossary(t *testing.T) {
	page := path("docs", "glossary.md")
	names := named.FindAllStringSubmatch(read(t, page), -1)
	if len(names) == 0 {
		t.Fatal("no names found on the page")
	}
	for _, m := range names {
		name := m[1][strings.LastIndex(m[1], ".")+1:]
		declared := regexp.MustCompile(`(?m)^(type|func) ` + name + `\b`)
		if !declared.MatchString(read(t, filepath.Join(filepath.Dir(page), m[2]))) {
			t.Errorf("%s does not declare %s", m[2], name)
		}
	}
}
