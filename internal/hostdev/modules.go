package hostdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Loader is what loads drivers for a Finder over roots: modprobe where they are the
// machine's own; nil for other trees, which no kernel reads.
func Loader(roots Roots) Runner {
	if roots != DefaultRoots() {
		return nil
	}
	return Commands{}
}

// load has the kernel load a driver whose directory sysfs does not have. The
// name of the driver is an alias of the module: modprobe takes - and _ for the
// same (modprobe(8)). Repeating it is harmless.
func (f *Finder) load(ctx context.Context, dir, driver string) error {
	if f.Load == nil {
		return nil
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := f.Load.Run(ctx, "modprobe", driver); err != nil {
		return fmt.Errorf("driver %s is not loaded, and loading it failed: %w", driver, err)
	}
	return nil
}
