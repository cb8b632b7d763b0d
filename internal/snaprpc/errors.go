package snaprpc

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnavailable means that the service could not be reached, did not answer in time, or
// answered something that is not an answer. The effect of the call is unknown;
// the same call may be repeated.
var ErrUnavailable = errors.New("snap service unavailable")

// The codes that the service answers with: JSON-RPC 2.0 section 5.1, and the
// negative errno values of SPDK's rpc.c.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	// CodeInvalidState is SPDK's SPDK_JSONRPC_ERROR_INVALID_STATE.
	CodeInvalidState = -1

	CodeNotFound  = -2  // ENOENT
	CodeIO        = -5  // EIO
	CodeNoMemory  = -12 // ENOMEM
	CodeBusy      = -16 // EBUSY
	CodeExists    = -17 // EEXIST
	CodeNoDevice  = -19 // ENODEV
	CodeInvalid   = -22 // EINVAL
	CodeNoSpace   = -28 // ENOSPC
	CodeTooLong   = -36 // ENAMETOOLONG
	CodeNotEmpty  = -39 // ENOTEMPTY
	CodeInAlready = -114
)

// Error is the service's own refusal: the call was understood and not done.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// Code returns the code of the service's refusal in err's chain, and whether
// there is one.
func Code(err error) (int, bool) {
	var e *Error
	if !errors.As(err, &e) {
		return 0, false
	}
	return e.Code, true
}

// IsNotFound reports whether the service said that the thing named is not
// there: ENOENT, ENODEV, or their words under another code.
func IsNotFound(err error) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	if e.Code == CodeNotFound || e.Code == CodeNoDevice {
		return true
	}
	return strings.Contains(strings.ToLower(e.Message), "no such device")
}

// IsExists reports whether the service said that the name is taken (EEXIST).
func IsExists(err error) bool { c, ok := Code(err); return ok && c == CodeExists }

// IsBusy reports whether the service said that the thing is held (EBUSY).
func IsBusy(err error) bool { c, ok := Code(err); return ok && c == CodeBusy }

// IsMethodNotFound reports whether the service does not know the method.
func IsMethodNotFound(err error) bool { c, ok := Code(err); return ok && c == CodeMethodNotFound }
