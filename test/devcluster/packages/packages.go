// Package packages installs the Debian packages that the test bed needs.
package packages

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
)

// Install installs what hack/apt/packages.txt of the checkout lists and this
// machine lacks. It does nothing, and needs no network, when nothing is
// missing.
func Install(ctx context.Context, root string, progress io.Writer) error {
	script := filepath.Join(root, "hack/apt/install.sh")
	cmd := exec.CommandContext(ctx, script)
	cmd.Stdout, cmd.Stderr = progress, progress
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("install the Debian packages of the bed with %s: %w", script, err)
	}
	return nil
}
