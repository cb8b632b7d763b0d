package service

import (
	"errors"
	"fmt"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// kinds translates the service's refusals. What is not here is a fault of the
// service, and may pass: ErrUnavailable.
var kinds = map[int]error{
	snaprpc.CodeInvalidRequest: provisioner.ErrInvalid,
	snaprpc.CodeInvalidParams:  provisioner.ErrInvalid,
	snaprpc.CodeInvalid:        provisioner.ErrInvalid,
	snaprpc.CodeTooLong:        provisioner.ErrInvalid,
	snaprpc.CodeMethodNotFound: provisioner.ErrUnsupported,
	snaprpc.CodeNotFound:       provisioner.ErrNotFound,
	snaprpc.CodeNoDevice:       provisioner.ErrNotFound,
	snaprpc.CodeExists:         provisioner.ErrExists,
	snaprpc.CodeBusy:           provisioner.ErrBusy,
	snaprpc.CodeInAlready:      provisioner.ErrBusy,
	snaprpc.CodeNoMemory:       provisioner.ErrExhausted,
	snaprpc.CodeNoSpace:        provisioner.ErrExhausted,
}

// Explain adds to an error of the service what was tried, and its kind in the
// words of package provisioner. special overrides the kind of single codes.
func Explain(err error, special map[int]error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	code, refused := snaprpc.Code(err)
	if !refused {
		if errors.Is(err, snaprpc.ErrUnavailable) {
			return fmt.Errorf("%s: %w: %w", what, provisioner.ErrSilent, err)
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	kind := special[code]
	if kind == nil {
		kind = kinds[code]
	}
	if kind == nil {
		kind = provisioner.ErrUnavailable
	}
	return fmt.Errorf("%s: %w: %w", what, kind, err)
}

// Unread is for lists: one that is refused says nothing about what is there.
var Unread = map[int]error{
	snaprpc.CodeInvalidRequest: provisioner.ErrUnavailable,
	snaprpc.CodeInvalidParams:  provisioner.ErrUnavailable,
	snaprpc.CodeInvalid:        provisioner.ErrUnavailable,
	snaprpc.CodeNotFound:       provisioner.ErrUnavailable,
	snaprpc.CodeNoDevice:       provisioner.ErrUnavailable,
	snaprpc.CodeExists:         provisioner.ErrUnavailable,
	snaprpc.CodeTooLong:        provisioner.ErrUnavailable,
}

// Absent is for things whose absence is no failure: the next look decides.
var Absent = map[int]error{
	snaprpc.CodeNotFound: provisioner.ErrBusy,
	snaprpc.CodeNoDevice: provisioner.ErrBusy,
}

// Vanished is for things that were listed a moment ago: they may come back.
var Vanished = map[int]error{
	snaprpc.CodeNotFound: provisioner.ErrUnavailable,
	snaprpc.CodeNoDevice: provisioner.ErrUnavailable,
}
