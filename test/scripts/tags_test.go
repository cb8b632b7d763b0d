package scripts

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/moor-storage/moor/test/devcluster/kubebuild"
)

// programTags finds the build tags with which a script builds programs, without those that it is told to add.
var programTags = regexp.MustCompile(`(?m)^[^#\n]*CGO_ENABLED=0 .*(-tags=)"?(\w+)`)

// TestProgramsHaveOneTag: each script that builds a program of Moor leaves the same out of it, so that what is
// tested is what is installed, and Go's cache has it.
func TestProgramsHaveOneTag(t *testing.T) {
	for _, name := range []string{"Makefile", "hack/build.sh", "hack/scheduler.sh", "hack/steps.sh"} {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		found := programTags.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s builds no program with a build tag", name)
		}
		for _, tags := range found {
			if got := tags[1] + tags[2]; got != kubebuild.Tags {
				t.Errorf("%s builds with %s, want %s", name, got, kubebuild.Tags)
			}
		}
	}
}
