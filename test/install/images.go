package install

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/moor-storage/moor/test/devcluster/ociimage"
)

// instructions are those of deploy/image/Dockerfile: with any other its images would not be
// those that hack/images.sh makes for the test bed.
var instructions = []string{
	"FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26-bookworm AS build",
	"WORKDIR /src",
	"COPY . .",
	"ARG VERSION=",
	"ARG COMMIT=",
	"ARG TARGETARCH",
	"RUN hack/images.sh $TARGETARCH /out",
	"FROM scratch",
	"ARG IMAGE",
	"COPY --from=build /out/images/$IMAGE/ /",
}

var (
	comment = regexp.MustCompile(`(?m)^#.*\n`)
	user    = regexp.MustCompile(`^USER (\S+)$`)
)

// User is who runs the programs of an image by its Dockerfile, unless a manifest says another. A
// Dockerfile with another instruction than those that are followed here is refused.
func User(dockerfile string) (string, error) {
	found := strings.FieldsFunc(comment.ReplaceAllString(dockerfile, ""), func(r rune) bool { return r == '\n' })
	if len(found) != len(instructions)+1 || !slices.Equal(found[:len(instructions)], instructions) {
		return "", fmt.Errorf("read the Dockerfile: its instructions are %q: have test/install follow them", found)
	}
	m := user.FindStringSubmatch(found[len(instructions)])
	if m == nil {
		return "", fmt.Errorf("read the Dockerfile: it ends with %q and not with a user", found[len(instructions)])
	}
	return m[1], nil
}

// Make makes what the images for this machine's processor hold, as the Dockerfile does, in a
// directory: images/NAME is the root of an image, programs/ has the programs.
func Make(ctx context.Context, checkout, directory string) error {
	return shell(ctx, checkout, "hack/images.sh "+runtime.GOARCH+" "+directory)
}

// Files are those of a root directory.
func Files(root string) ([]ociimage.File, error) {
	var out []ociimage.File
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		f := ociimage.File{Path: strings.TrimPrefix(path, root), Mode: int64(info.Mode().Perm())}
		switch {
		case info.Mode().IsRegular():
			f.Content, err = os.ReadFile(path)
		case info.Mode()&fs.ModeSymlink != 0:
			f.Link, err = os.Readlink(path)
		default:
			err = fmt.Errorf("%s is a %v", path, info.Mode())
		}
		out = append(out, f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read what an image holds: %w", err)
	}
	return out, nil
}

func shell(ctx context.Context, directory, script string) error {
	cmd := exec.CommandContext(ctx, "sh", "-ec", script)
	cmd.Dir = directory
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %q: %w\n%s", script, err, out)
	}
	return nil
}
