package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/moor-storage/moor/test/devcluster/ociimage"
)

// Recipe is what a Dockerfile of two stages, build and the image itself, says of the image.
type Recipe struct {
	// Build is the shell command that builds the programs into the directory BuiltIn.
	Build string
	// Packages are the Debian packages that are installed, without what they depend on.
	Packages []string
	// Programs is the directory of the programs in the image.
	Programs string
	// Links is the shell command that makes links in the root directory.
	Links string
	// User runs the programs, unless a manifest says another.
	User string
}

// BuiltIn is where the build stage puts the programs.
const BuiltIn = "/out"

// base is the image that the second stage begins with: this machine has the same release of Debian.
const base = "FROM docker.io/library/debian:bookworm-slim"

var (
	comment  = regexp.MustCompile(`(?m)^#.*\n`)
	packages = regexp.MustCompile(`^RUN apt-get update && apt-get install -y --no-install-recommends ([a-z0-9.+ -]+?) && rm -rf /var/lib/apt/lists/\*$`)
	programs = regexp.MustCompile(`^COPY --from=build ` + BuiltIn + `/ (/\S+?)/?$`)
	licenses = regexp.MustCompile(`^COPY --from=build /licenses/ `)
	links    = regexp.MustCompile(`^RUN (cd / && .+)$`)
	user     = regexp.MustCompile(`^USER (\S+)$`)
)

// ReadRecipe reads a Dockerfile. An instruction of the second stage that it does not know is an
// error: the image would not be that of the file.
func ReadRecipe(dockerfile string) (Recipe, error) {
	var r Recipe
	text := strings.ReplaceAll(comment.ReplaceAllString(dockerfile, ""), "\\\n", "")
	first, second, found := strings.Cut(text, base+"\n")
	if !found {
		return r, fmt.Errorf("read the Dockerfile: it has no stage that begins with %q", base)
	}
	for line := range strings.Lines(first) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "RUN "); ok && strings.Contains(command, "hack/build.sh "+BuiltIn+" ") {
			r.Build = command
		}
	}
	for line := range strings.Lines(second) {
		line = strings.Join(strings.Fields(line), " ")
		switch {
		case line == "", licenses.MatchString(line):
		case packages.MatchString(line):
			r.Packages = strings.Fields(packages.FindStringSubmatch(line)[1])
		case programs.MatchString(line):
			r.Programs = programs.FindStringSubmatch(line)[1]
		case links.MatchString(line):
			r.Links = links.FindStringSubmatch(line)[1]
		case user.MatchString(line):
			r.User = user.FindStringSubmatch(line)[1]
		default:
			return r, fmt.Errorf("read the Dockerfile: the instruction %q is not known: have test/install follow it", line)
		}
	}
	if slices.Contains([]string{r.Build, strings.Join(r.Packages, " "), r.Programs, r.Links, r.User}, "") {
		return r, fmt.Errorf("read the Dockerfile: it lacks programs, packages, links or a user: %+v", r)
	}
	return r, nil
}

// Compile builds the programs of the recipe into a directory, from the checkout.
func (r Recipe) Compile(ctx context.Context, checkout, directory string) error {
	return shell(ctx, checkout, strings.Replace(r.Build, BuiltIn, directory, 1))
}

// Files are those of the image, but for the licenses: the programs that Compile put into a
// directory, the links to them, and the Debian packages of this machine.
func (r Recipe) Files(ctx context.Context, directory string) ([]ociimage.File, error) {
	out, err := DebianFiles(ctx, r.Packages)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(directory)
	if err == nil && len(entries) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("read the directory of the programs: %w", err)
	}
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(directory, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read a program: %w", err)
		}
		out = append(out, ociimage.File{Path: filepath.Join(r.Programs, e.Name()), Content: content, Mode: 0o755})
	}
	links, err := r.links(ctx)
	return append(out, links...), err
}

// links has the shell make them in an empty directory.
func (r Recipe) links(ctx context.Context) ([]ociimage.File, error) {
	root, err := os.MkdirTemp("", "links-")
	if err != nil {
		return nil, fmt.Errorf("make the links of the image: %w", err)
	}
	defer func() { _ = os.RemoveAll(root) }()
	if err := shell(ctx, root, strings.TrimPrefix(r.Links, "cd / && ")); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("read the links of the image: %w", err)
	}
	var out []ociimage.File
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(root, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read a link of the image: %w", err)
		}
		out = append(out, ociimage.File{Path: "/" + e.Name(), Link: target})
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
