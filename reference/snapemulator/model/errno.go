package model

import (
	"fmt"
	"syscall"
)

// Error is a refusal: an errno, negated as SPDK answers it, and words.
type Error struct {
	Errno syscall.Errno
	Text  string
}

// Error implements error.
func (e *Error) Error() string { return e.Text }

// Unwrap makes errors.Is(err, syscall.EBUSY) work.
func (e *Error) Unwrap() error { return e.Errno }

// text holds the words of strerror(3) that clients look for.
var text = map[syscall.Errno]string{
	syscall.ENOENT: "No such file or directory",
	syscall.ENODEV: "No such device",
	syscall.EEXIST: "File exists",
	syscall.EBUSY:  "Device or resource busy",
	syscall.EINVAL: "Invalid parameters",
	syscall.ENOSPC: "No space left on device",
	syscall.EIO:    "Input/output error",
}

// Refuse returns a refusal with errno, its words and an explanation.
func Refuse(errno syscall.Errno, format string, args ...any) *Error {
	words := text[errno]
	if words == "" {
		words = errno.Error()
	}
	return &Error{Errno: errno, Text: words + ": " + fmt.Sprintf(format, args...)}
}
