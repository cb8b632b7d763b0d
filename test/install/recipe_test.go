package install

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moor-storage/moor/test/devcluster/ociimage"
)

func dockerfile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "image", "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTheDockerfileIsFollowed: each instruction of it, as it is.
func TestTheDockerfileIsFollowed(t *testing.T) {
	r, err := ReadRecipe(dockerfile(t))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.Build, "./cmd/...") || !strings.Contains(r.Build, "./reference/cmd/...") {
		t.Errorf("the programs are built by %q", r.Build)
	}
	if !slices.Contains(r.Packages, "e2fsprogs") || !slices.Contains(r.Packages, "xfsprogs") || r.Programs != "/usr/local/bin" || r.User != "65532:65532" {
		t.Errorf("got %+v", r)
	}
	links, err := r.links(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := slices.IndexFunc(links, func(f ociimage.File) bool { return f.Path == "/manager" && f.Link == "usr/local/bin/snap-controller" })
	if found < 0 || len(links) < 8 {
		t.Errorf("the links are %+v", links)
	}
}

// TestAnUnknownInstructionIsRefused: an image without what it does would be another.
func TestAnUnknownInstructionIsRefused(t *testing.T) {
	text := dockerfile(t)
	for name, changed := range map[string]string{
		"one more":         text + "ENV A=B\n",
		"one more command": text + "RUN touch /more\n",
		"another base":     strings.Replace(text, "debian:bookworm-slim", "debian:trixie-slim", 1),
		"no user":          strings.Replace(text, "USER 65532:65532\n", "", 1),
		"another build":    strings.Replace(text, "hack/build.sh /out", "hack/build.sh /elsewhere", 1),
		"more of packages": strings.Replace(text, "&& rm -rf /var/lib/apt/lists/*", "&& rm -rf /var/lib/apt", 1),
	} {
		if changed == text {
			t.Errorf("%s: nothing is changed", name)
		}
		if r, err := ReadRecipe(changed); err == nil {
			t.Errorf("%s: it is taken for %+v", name, r)
		}
	}
}

func TestClosure(t *testing.T) {
	list := "tool\tinstalled\tno\toptional\t\t\tlibc6 (>= 2.36), awk | nothing, missing | liba (>= 1) | libb\n" +
		"libc6\tinstalled\tno\toptional\t\t\t\n" +
		"mawk\tinstalled\tno\toptional\tawk\tlibc6:any\t\n" +
		"liba\tnot-installed\tno\toptional\t\t\t\n" +
		"libb\tinstalled\tno\toptional\t\t\ttool\n" +
		"dash\tinstalled\tyes\toptional\t\t\t\n" +
		"mount\tinstalled\tno\trequired\t\t\t\n" +
		"other\tinstalled\tno\toptional\t\t\t\n"
	installed, err := ReadInstalled(list)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Closure(installed, []string{"tool"})
	if want := []string{"dash", "libb", "libc6", "mawk", "mount", "tool"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if got, err := Closure(installed, []string{"liba"}); err == nil {
		t.Errorf("a package that is not installed is found: %v", got)
	}
	delete(installed, "mawk")
	if got, err := Closure(installed, []string{"tool"}); err == nil {
		t.Errorf("a need that nothing meets is not noticed: %v", got)
	}
	if _, err := ReadInstalled("tool\tinstalled\n"); err == nil {
		t.Error("what is no such list is taken for one")
	}
}
