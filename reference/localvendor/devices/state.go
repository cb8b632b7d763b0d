package devices

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/reference/localvendor/files"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// remember writes down whose device a hashed name is, before it is made.
func (h *Host) remember(volumeID string) error {
	name := records.Device(volumeID)
	if _, hashed, _ := records.VolumeOf(name); !hashed {
		return nil
	}
	if err := files.MakeDir(h.stateDir); err != nil {
		return err
	}
	if err := files.Replace(filepath.Join(h.stateDir, name), []byte(volumeID)); err != nil {
		return fmt.Errorf("remember the volume of device %s: %w", name, err)
	}
	return nil
}

// recall returns the volume of a device of a hashed name; empty if that was
// forgotten.
func (h *Host) recall(name string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(h.stateDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("recall the volume of device %s: %w", name, err)
	}
	return string(raw), nil
}

func (h *Host) forget(volumeID string) error {
	if err := files.Remove(filepath.Join(h.stateDir, records.Device(volumeID))); err != nil {
		return fmt.Errorf("forget the device of volume %s: %w", volumeID, err)
	}
	return nil
}

// kind gives an error of the SNAP service the sentinel that callers act on.
func kind(err error) error {
	var sentinel error
	code, refused := snaprpc.Code(err)
	switch {
	case errors.Is(err, snaprpc.ErrUnavailable), code == snaprpc.CodeUnreachable:
		sentinel = provisioner.ErrUnavailable
	case !refused:
		return err
	case snaprpc.IsNotFound(err):
		sentinel = provisioner.ErrNotFound
	case snaprpc.IsExists(err):
		sentinel = provisioner.ErrExists
	case snaprpc.IsBusy(err):
		sentinel = provisioner.ErrInUse
	case code == snaprpc.CodeNoSpace, code == snaprpc.CodeNoMemory:
		sentinel = provisioner.ErrExhausted
	case snaprpc.IsMethodNotFound(err):
		sentinel = provisioner.ErrUnsupported
	default:
		sentinel = provisioner.ErrPrecondition
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}
