package install

import (
	"os"
	"path/filepath"
	"reflect"
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

// TestTheDockerfileIsFollowed: its images are what hack/images.sh makes, and nothing else.
func TestTheDockerfileIsFollowed(t *testing.T) {
	if got, err := User(dockerfile(t)); err != nil || got != "65532:65532" {
		t.Errorf("the user is %q, %v", got, err)
	}
}

// TestAnotherInstructionIsRefused: an image without what it does would be another.
func TestAnotherInstructionIsRefused(t *testing.T) {
	text := dockerfile(t)
	for name, changed := range map[string]string{
		"one more":         text + "ENV A=B\n",
		"one more command": strings.Replace(text, "FROM scratch\n", "RUN touch /out/more\nFROM scratch\n", 1),
		"another base":     strings.Replace(text, "FROM scratch", "FROM docker.io/library/debian:bookworm-slim", 1),
		"no user":          strings.Replace(text, "USER 65532:65532\n", "", 1),
		"another end":      strings.Replace(text, "USER 65532:65532\n", "ENTRYPOINT [\"/manager\"]\n", 1),
		"another copy":     strings.Replace(text, "/out/images/$IMAGE/", "/out/images/", 1),
	} {
		if changed == text {
			t.Errorf("%s: nothing is changed", name)
		}
		if got, err := User(changed); err == nil {
			t.Errorf("%s: it is taken, with user %q", name, got)
		}
	}
}

// TestFilesAreAllOfADirectory: with their modes and links.
func TestFilesAreAllOfADirectory(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "usr", "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "usr", "bin", "a"), []byte("program"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("usr/bin/a", filepath.Join(root, "a")); err != nil {
		t.Fatal(err)
	}
	got, err := Files(root)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i].Link != "" {
			got[i].Mode = 0 // which a link does not have
		}
	}
	want := []ociimage.File{{Path: "/a", Link: "usr/bin/a"}, {Path: "/usr/bin/a", Content: []byte("program"), Mode: 0o700}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := Files(filepath.Join(root, "none")); err == nil {
		t.Error("a directory that is not there is taken for an image")
	}
}
