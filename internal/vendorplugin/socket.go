package vendorplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moor-storage/moor/pkg/provisioner"
)

const (
	// DefaultRoot is where DPF keeps the plugins' directories on a DPU.
	DefaultRoot = "/var/lib/nvidia/storage/snap/plugins"
	// DefaultProvider is the SNAP process meant by an empty provider name.
	DefaultProvider = "nvidia"
	// socketName is the plugin's socket in its directory.
	socketName = "dpu.sock"
	// maxSocketPath is sizeof(sockaddr_un.sun_path) less the final NUL, unix(7).
	maxSocketPath = 107
	// staleProbe bounds the question whether an old socket is still served.
	staleProbe = time.Second
)

// SocketPath returns <root>/<plugin>/dpu.sock, where the node driver looks for
// the plugin. ErrInvalid if the name is not one path element or the path is
// longer than a unix socket's may be.
func SocketPath(root, plugin string) (string, error) {
	if plugin == "" || plugin == "." || plugin == ".." || strings.ContainsAny(plugin, "/\x00") {
		return "", fmt.Errorf("vendor plugin name %q cannot be a directory: %w", plugin, provisioner.ErrInvalid)
	}
	path := filepath.Join(root, plugin, socketName)
	return path, checkSocketPath(path)
}

func checkSocketPath(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("socket %q: want an absolute path: %w", path, provisioner.ErrInvalid)
	}
	if n := len(path); n > maxSocketPath {
		return fmt.Errorf("socket %s has a path of %d bytes and the kernel allows %d, choose a shorter directory or name: %w",
			path, n, maxSocketPath, provisioner.ErrInvalid)
	}
	return nil
}

// listen makes the socket in a directory of mode 0755. A socket that an earlier
// process left is removed; one that is still answered is ErrInUse.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := checkSocketPath(path); err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of socket %s: %w", path, err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask
		return nil, fmt.Errorf("open the directory of socket %s to the node driver: %w", path, err)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	// On close Go removes whatever is at the path by then, perhaps the socket of
	// a successor; a socket left behind harms nobody.
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	return l, nil
}

func removeStale(ctx context.Context, path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at socket %s: %w", path, err)
	}
	if fi.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("socket %s: something else (%s) is in its place, remove it: %w", path, fi.Mode().Type(), provisioner.ErrExists)
	}
	d := net.Dialer{Timeout: staleProbe}
	if c, err := d.DialContext(ctx, "unix", path); err == nil {
		_ = c.Close()
		return fmt.Errorf("socket %s: another process serves on it, stop that one first: %w", path, provisioner.ErrInUse)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove stale socket %s: %w", path, err)
	}
	return nil
}
