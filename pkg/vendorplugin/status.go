package vendorplugin

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// errBadToken is a page token that ListDevices did not hand out.
var errBadToken = errors.New("starting_token is not one that was handed out")

// toStatus turns the error of a handler into the code that the plugin API
// names: NOT_FOUND, ABORTED for a bad token, UNIMPLEMENTED, and
// FAILED_PRECONDITION for all other final errors. An uncertain error gets
// UNAVAILABLE or the context's code, so that the caller repeats the call.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return s.GRPCStatus().Err()
	}
	code := codes.FailedPrecondition
	switch {
	case errors.Is(err, provisioner.ErrBusy), errors.Is(err, provisioner.ErrUnavailable):
		code = codes.Unavailable
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, errBadToken):
		code = codes.Aborted
	case errors.Is(err, provisioner.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, provisioner.ErrUnsupported):
		code = codes.Unimplemented
	}
	return status.Error(code, err.Error())
}

// final are the codes by which a plugin refuses: nothing was left behind.
var final = map[codes.Code]error{
	codes.InvalidArgument:    provisioner.ErrInvalid,
	codes.NotFound:           provisioner.ErrNotFound,
	codes.AlreadyExists:      provisioner.ErrExists,
	codes.ResourceExhausted:  provisioner.ErrExhausted,
	codes.OutOfRange:         provisioner.ErrOutOfRange,
	codes.FailedPrecondition: provisioner.ErrPrecondition,
	codes.PermissionDenied:   provisioner.ErrPrecondition,
	codes.Unauthenticated:    provisioner.ErrPrecondition,
	codes.Unimplemented:      provisioner.ErrUnsupported,
}

// fromStatus turns the error of a call into words and the sentinel that callers
// act on. ctx is the caller's: its end is told apart from a plugin that is slow.
func (c *Client) fromStatus(ctx context.Context, verb string, err error) error {
	if err == nil {
		return nil
	}
	s, _ := status.FromError(err)
	if why := ctx.Err(); why != nil {
		return fmt.Errorf("vendor plugin %s: %s was given up: %w", c.name, verb, why)
	}
	if sentinel, ok := final[s.Code()]; ok {
		return fmt.Errorf("vendor plugin %s refuses %s: %s: %w", c.name, verb, s.Message(), sentinel)
	}
	switch s.Code() {
	case codes.DeadlineExceeded:
		return fmt.Errorf("vendor plugin %s at %s did not answer %s within %s; is it overloaded, or the SNAP service behind it stuck? %w",
			c.name, c.socket, verb, c.timeout, provisioner.ErrUnavailable)
	case codes.Unavailable, codes.Canceled:
		return fmt.Errorf("vendor plugin %s at %s does not answer %s (%s); is its pod running on this DPU? %w",
			c.name, c.socket, verb, s.Message(), provisioner.ErrUnavailable)
	case codes.Aborted:
		return fmt.Errorf("vendor plugin %s broke off %s: %s: %w", c.name, verb, s.Message(), provisioner.ErrBusy)
	}
	return fmt.Errorf("vendor plugin %s failed at %s in a way that tells nothing of its effect (%s: %s): %w",
		c.name, verb, s.Code(), s.Message(), provisioner.ErrUnavailable)
}
