package docs

import (
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/moor-storage/moor/pkg/provisioner"
)

var (
	fileBlock = regexp.MustCompile(`(?m)^<!-- begin file (\S+) -->$`)
	yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
)

// guides are the pages that are followed step by step, with the package that
// holds their code. The package's own tests try what the page promises.
var guides = map[string]string{
	"adding-a-vendor.md":   "examples/vendor",
	"adding-a-platform.md": "examples/platform",
}

// TestInterfaces: the guide to platforms names every interface that one can have.
func TestInterfaces(t *testing.T) {
	page := read(t, path("docs", "adding-a-platform.md"))
	for _, field := range reflect.VisibleFields(reflect.TypeFor[provisioner.Platform]()) {
		if !strings.Contains(page, "`"+field.Name+"`") {
			t.Errorf("docs/adding-a-platform.md says nothing of the interface %s", field.Name)
		}
	}
}

// TestGuides holds each guide to the code that is built and tested: every file
// of the package is on the page, as it is, and every manifest there decodes.
func TestGuides(t *testing.T) {
	for name, dir := range guides {
		t.Run(name, func(t *testing.T) {
			page := path("docs", name)
			shown := map[string]bool{}
			for _, m := range fileBlock.FindAllStringSubmatch(read(t, page), -1) {
				shown[m[1]] = true
				checkBlock(t, page, "file "+m[1], "```go\n"+read(t, path(m[1]))+"```\n")
			}
			files, err := filepath.Glob(path(dir, "*.go"))
			if err != nil || len(files) == 0 {
				t.Fatalf("no code in %s: %v", dir, err)
			}
			for _, file := range files {
				if file = strings.TrimPrefix(filepath.ToSlash(file), root+"/"); !shown[file] {
					t.Errorf("%s is not on the page, so that a reader who follows it lacks the file", file)
				}
			}
			for _, m := range yamlBlock.FindAllStringSubmatch(read(t, page), -1) {
				decode(t, page, m[1])
			}
		})
	}
}
