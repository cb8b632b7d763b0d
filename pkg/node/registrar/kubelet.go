package registrar

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/go-logr/logr"
)

// Kubelet is that of this node, for a process that has many drivers.
type Kubelet struct {
	// Directory is its plugin registry.
	Directory string
	Logger    logr.Logger
}

// Run is Run for one of the drivers.
func (k Kubelet) Run(ctx context.Context, driver, endpoint string) error {
	return Run(ctx, Options{Driver: driver, Endpoint: endpoint, Directory: k.Directory, Logger: k.Logger})
}

// Forget removes the socket that a process which died has left for a driver: the kubelet calls it again
// and again.
func (k Kubelet) Forget(driver string) error {
	if err := os.Remove(SocketPath(k.Directory, driver)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the registration of driver %s: %w", driver, err)
	}
	return nil
}
