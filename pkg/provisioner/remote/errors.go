package remote

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// errBusy is the answer to a second call for the same volume.
var errBusy = fmt.Errorf("another operation on it is under way: %w", provisioner.ErrBusy)

// words are what NVIDIA's plugins look for in a refusal, whatever its code. The
// first that it has counts.
var words = []struct {
	text string
	kind error
}{
	{"no space left", provisioner.ErrExhausted},
	{"no such device", provisioner.ErrNotFound},
	{"invalid parameters", provisioner.ErrInvalid},
}

// outOfReach are the codes by which SPDK says that the other side did not
// answer; nothing was made, and the same call may be repeated.
var outOfReach = map[syscall.Errno]bool{
	syscall.EIO: true, syscall.ETIMEDOUT: true, syscall.ECONNREFUSED: true, syscall.EHOSTUNREACH: true, syscall.ENETUNREACH: true,
}

// Kind gives an error of the SNAP service the sentinel that callers act on.
func Kind(err error) error {
	code, refused := snaprpc.Code(err)
	switch {
	case errors.Is(err, snaprpc.ErrUnavailable), refused && outOfReach[syscall.Errno(-code)]:
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	case !refused:
		return err
	case snaprpc.IsNotFound(err):
		return fmt.Errorf("%w: %w", provisioner.ErrNotFound, err)
	case snaprpc.IsBusy(err):
		return fmt.Errorf("%w: %w", provisioner.ErrInUse, err)
	case snaprpc.IsMethodNotFound(err):
		return fmt.Errorf("%w: %w", provisioner.ErrUnsupported, err)
	}
	for _, w := range words {
		if strings.Contains(strings.ToLower(err.Error()), w.text) {
			return fmt.Errorf("%w: %w", w.kind, err)
		}
	}
	return fmt.Errorf("%w: %w", provisioner.ErrPrecondition, err)
}
