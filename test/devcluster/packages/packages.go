// Package packages installs the Debian packages that the test bed needs.
package packages

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
)

// Install installs what the lists of the checkout's hack/apt have, by default
// packages.txt, and this machine lacks. It does nothing, and needs no network, when
// nothing is missing.
func Install(ctx context.Context, root string, progress io.Writer, lists ...string) error {
	script := filepath.Join(root, "hack/apt/install.sh")
	var paths []string
	for _, list := range lists {
		paths = append(paths, filepath.Join(root, "hack/apt", list))
	}
	cmd := exec.CommandContext(ctx, script, paths...)
	cmd.Stdout, cmd.Stderr = progress, progress
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("install the Debian packages of the bed with %s: %w", script, err)
	}
	return nil
}
