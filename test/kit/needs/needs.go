// Package needs lets a test say what it needs of the machine. Where that is
// missing the test is skipped, unless MOOR_NO_SKIP=1 says that this machine has
// to have everything: then it fails.
package needs

import (
	"os"
	"os/exec"
	"testing"
)

// NoSkip is the environment variable that turns skips into failures if it is 1.
const NoSkip = "MOOR_NO_SKIP"

// Program skips or fails the test if the program is not installed.
func Program(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		Missing(t, "%s is not installed: add its package to hack/apt/packages.txt", name)
	}
}

// Missing skips or fails the test because the machine lacks what the words say.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	end := t.Skipf
	if os.Getenv(NoSkip) == "1" {
		end = t.Fatalf
	}
	end(format, args...)
}
