package main

import (
	"context"
	"fmt"
	"os"
	"slices"

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
	// Its shell is Debian's too: busybox's would take its own dd.
	debian, err := devcluster.WithPrograms(ctx, files, map[string]string{"/bin/dd": "dd", "/bin/sh": "dash"})
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
