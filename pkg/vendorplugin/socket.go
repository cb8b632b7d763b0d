package vendorplugin

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/moor-storage/moor/internal/unixsocket"
	"github.com/moor-storage/moor/pkg/provisioner"
)

const (
	// DefaultRoot is where DPF keeps the plugins' directories on a DPU.
	DefaultRoot = "/var/lib/nvidia/storage/snap/plugins"
	// DefaultProvider is the SNAP process meant by an empty provider name.
	DefaultProvider = "nvidia"
	// socketName is the plugin's socket in its directory.
	socketName = "dpu.sock"
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
	if err := unixsocket.CheckPath(path); err != nil {
		return fmt.Errorf("socket %s: %w: %w", path, err, provisioner.ErrInvalid)
	}
	return nil
}

// listen makes the socket in a directory of mode 0755. A socket that an earlier
// process left is removed; one that is still answered is unixsocket.ErrServed.
func listen(path string) (net.Listener, error) {
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
	l, err := unixsocket.Listen(path)
	if err != nil {
		return nil, err
	}
	// On close Go removes whatever is at the path by then, perhaps the socket of
	// a successor; a socket left behind does no harm.
	l.SetUnlinkOnClose(false)
	return l, nil
}
