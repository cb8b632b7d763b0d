// Command conformance helps to run Kubernetes' storage suite on the test bed.
// "conformance load AGNHOST" brings the images that the suite asks for to the
// hosts, under its names; "conformance report FILE" tells what came of it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/ociimage"
)

// The names in Kubernetes 1.35, test/utils/image/manifest.go.
const (
	busybox = "registry.k8s.io/e2e-test-images/busybox:1.37.0-1"
	agnhost = "registry.k8s.io/e2e-test-images/agnhost:2.59"
	// nginx is asked for where a shell is all that is used of it.
	nginx = "registry.k8s.io/e2e-test-images/nginx:1.14-4"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: conformance load AGNHOST, or conformance report FILE")
	}
	switch args[0] {
	case "load":
		return load(ctx, args[1])
	case "report":
		return report(os.Stdout, args[1])
	}
	return fmt.Errorf("%s is neither load nor report", args[0])
}

func load(ctx context.Context, path string) error {
	program, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("make the image of agnhost: %w", err)
	}
	files, err := devcluster.BusyboxFiles(ctx)
	if err != nil {
		return err
	}
	c, err := devcluster.Load()
	if err != nil {
		return err
	}
	if err := c.LoadImage(ctx, "e2e-busybox", ociimage.Image{Names: []string{busybox, nginx}, Command: []string{"sh"}, Files: files}); err != nil {
		return err
	}
	return c.LoadImage(ctx, "e2e-agnhost", ociimage.Image{
		Names: []string{agnhost}, Entrypoint: []string{"/agnhost"}, Command: []string{"pause"},
		Files: append(files, ociimage.File{Path: "/agnhost", Content: program, Mode: 0o755}),
	})
}
