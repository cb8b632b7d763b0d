package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/ociimage"
)

// The names in Kubernetes 1.35, test/utils/image/manifest.go.
const (
	busybox = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"
	agnhost = "registry.k8s.io/e2e-test-images/agnhost:2.59"
	// nginx is asked for where a shell is all that is used of it.
	nginx = "registry.k8s.io/e2e-test-images/nginx:1.14-4"
	// jessie is Debian: asked for where dd has to know oflag=nocache.
	jessie = "registry.k8s.io/e2e-test-images/jessie-dnsutils:1.7"
)

// load brings the images to the hosts; path is the program agnhost.
func load(ctx context.Context, path string) error {
	program, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("make the image of agnhost: %w", err)
	}
	files, err := devcluster.BusyboxFiles(ctx)
	if err != nil {
		return err
	}
	debian, err := withDebian(ctx, files)
	if err != nil {
		return fmt.Errorf("make the image of jessie: %w", err)
	}
	c, err := devcluster.Load()
	if err != nil {
		return err
	}
	for name, image := range map[string]ociimage.Image{
		"e2e-busybox": {Names: []string{busybox, nginx}, Command: []string{"sh"}, Files: files},
		"e2e-jessie":  {Names: []string{jessie}, Command: []string{"sh"}, Files: debian},
		"e2e-agnhost": {
			Names: []string{agnhost}, Entrypoint: []string{"/agnhost"}, Command: []string{"pause"},
			Files: append(slices.Clip(files), ociimage.File{Path: "/agnhost", Content: program, Mode: 0o755}),
		},
	} {
		if err := c.LoadImage(ctx, name, image); err != nil {
			return err
		}
	}
	return nil
}

// fromDebian are the programs that busybox's do not do for, by their place in the
// image. Its shell is one: it would take its own dd.
var fromDebian = map[string]string{"/bin/dd": "dd", "/bin/sh": "dash"}

// withDebian is busybox with those programs of this machine instead, and the
// libraries that they are linked to.
func withDebian(ctx context.Context, busybox []ociimage.File) ([]ociimage.File, error) {
	copied := map[string]string{}
	for place, program := range fromDebian {
		path, err := exec.LookPath(program)
		if err != nil {
			return nil, fmt.Errorf("find this machine's %s: %w", program, err)
		}
		copied[place] = path
		list, err := exec.CommandContext(ctx, "ldd", path).Output()
		if err != nil {
			return nil, fmt.Errorf("list the libraries of %s: %w", path, err)
		}
		for _, library := range libraries(string(list)) {
			copied[library] = library
		}
	}
	files := slices.DeleteFunc(slices.Clone(busybox), func(f ociimage.File) bool { return copied[f.Path] != "" })
	for place, path := range copied {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("copy %s: %w", path, err)
		}
		files = append(files, ociimage.File{Path: place, Content: content, Mode: 0o755})
	}
	slices.SortFunc(files, func(a, b ociimage.File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

// libraries finds the paths in what ldd prints.
func libraries(list string) []string {
	var out []string
	for _, word := range strings.Fields(list) {
		if strings.HasPrefix(word, "/") {
			out = append(out, word)
		}
	}
	return out
}
