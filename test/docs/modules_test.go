package docs

import (
	"regexp"
	"testing"
)

var (
	required = regexp.MustCompile(`(?m)^\t(\S+) v\S+( // indirect)?$`)
	listed   = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
)

// TestModules holds the list of dependencies to go.mod: each module that is
// required directly has a line, and no line names one that is not required.
func TestModules(t *testing.T) {
	page := read(t, path("docs", "decisions", "0005-dependencies.md"))
	has, there := map[string]bool{}, map[string]bool{}
	for _, m := range listed.FindAllStringSubmatch(page, -1) {
		has[m[1]] = true
	}
	for _, m := range required.FindAllStringSubmatch(read(t, path("go.mod")), -1) {
		there[m[1]] = true
		if m[2] == "" && !has[m[1]] {
			t.Errorf("module %s has no line in docs/decisions/0005-dependencies.md that says why it is needed", m[1])
		}
	}
	for module := range has {
		if !there[module] {
			t.Errorf("module %s is listed in docs/decisions/0005-dependencies.md, and go.mod does not require it", module)
		}
	}
}
