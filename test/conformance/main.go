// Command conformance helps to run Kubernetes' storage suite on the test bed.
// "conformance load AGNHOST" brings the images that the suite asks for to the
// hosts, under its names; "conformance skips DEFINITION" prints a regular
// expression for the specs that cannot run there; "conformance report DEFINITION
// FILE" tells what came of them. A definition is a file here, without its .yaml.
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
	// jessie too: dd and sha256sum.
	jessie = "registry.k8s.io/e2e-test-images/jessie-dnsutils:1.7"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	mask, err := capabilities()
	if err != nil {
		return err
	}
	switch {
	case len(args) == 2 && args[0] == "load":
		return load(ctx, args[1])
	case len(args) == 2 && args[0] == "skips":
		_, err := fmt.Println(expression(left(args[1], mask)))
		return err
	case len(args) == 3 && args[0] == "report":
		return report(os.Stdout, args[2], left(args[1], mask))
	}
	return fmt.Errorf("usage: conformance load AGNHOST, conformance skips DEFINITION, or conformance report DEFINITION FILE")
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
	if err := c.LoadImage(ctx, "e2e-busybox", ociimage.Image{Names: []string{busybox, nginx, jessie}, Command: []string{"sh"}, Files: files}); err != nil {
		return err
	}
	return c.LoadImage(ctx, "e2e-agnhost", ociimage.Image{
		Names: []string{agnhost}, Entrypoint: []string{"/agnhost"}, Command: []string{"pause"},
		Files: append(files, ociimage.File{Path: "/agnhost", Content: program, Mode: 0o755}),
	})
}
