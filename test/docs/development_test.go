package docs

import (
	"regexp"
	"strings"
	"testing"
)

// checks are the words of hack/verify.sh for what it can check.
var checks = regexp.MustCompile(`(?m)^CHECKS="([^"]+)"$`)

// TestChecksAreNamed: the page on development names each check that can be run alone.
func TestChecksAreNamed(t *testing.T) {
	m := checks.FindStringSubmatch(read(t, path("hack", "verify.sh")))
	if m == nil {
		t.Fatal("hack/verify.sh has no list of checks")
	}
	for line := range strings.Lines(read(t, path("docs", "development.md"))) {
		if !strings.HasPrefix(line, "hack/verify.sh ") {
			continue
		}
		for _, check := range strings.Fields(m[1]) {
			if !regexp.MustCompile(`\b` + check + `\b`).MatchString(line) {
				t.Errorf("docs/development.md does not name the check %s", check)
			}
		}
		return
	}
	t.Error("docs/development.md does not say how one check is run")
}
