// Package jinja renders templates in a dialect of Jinja 3: that which Pods-as-Volumes
// promises to those who write provisioners, with trim_blocks and lstrip_blocks set.
//
// Templates come from users of the API and are rendered by a process with rights, so the package
// is a border: a template reaches the variables and functions that it is given and nothing
// else. No value is reached by reflection, none has methods but those listed here, nothing can be
// loaded or included, what is given is never changed, and the work of one rendering is bounded
// by the limits below, whatever the template says. That is why it is our own: the engines that there
// are for Go either speak another dialect, or read files, or print what is not defined.
//
// Left out of Jinja 3: include, import, extends, block, call, do, break and continue, recursive
// loops, line statements, macros with varargs, automatic escaping, and numbers beyond 64 bits,
// which are an error. Mappings that are given have the order of their keys, sorted.
package jinja

import (
	"fmt"

	"github.com/moor-storage/moor/internal/jinja/value"
)

// The limits of a template. One that exceeds them is refused or ends with an error.
const (
	// MaxSource is the length of a template in bytes; an object of the API has 1.5 MiB at most.
	MaxSource = 256 << 10
	// MaxDepth is how deep expressions and statements may nest, and how deep macros and filters may
	// call one another.
	MaxDepth = 100
	// MaxSteps and MaxBytes are of one rendering, see package value: statements, expressions,
	// elements gone through and text looked through; and bytes of text made, in between and in the
	// end. A variable counts as many steps as it has elements when it is named first, and a call of
	// a function that is given counts 500.
	MaxSteps = value.MaxSteps
	MaxBytes = value.MaxBytes
	// MaxRange is how many numbers range gives. Jinja's sandbox has 100,000, which MaxSteps would
	// not let a loop go through.
	MaxRange = 10_000
)

// Error is what is wrong with a template, or went wrong when it was rendered.
type Error struct {
	// Line counts from 1.
	Line    int
	Message string
	// Cause is what is behind it, such as the error of a function that was called.
	Cause error
}

func (e *Error) Error() string {
	switch {
	case e.Cause == nil:
		return fmt.Sprintf("line %d: %s", e.Line, e.Message)
	case e.Message == "":
		return fmt.Sprintf("line %d: %v", e.Line, e.Cause)
	}
	return fmt.Sprintf("line %d: %s: %v", e.Line, e.Message, e.Cause)
}

func (e *Error) Unwrap() error { return e.Cause }

func fail(line int, format string, args ...any) error {
	return &Error{Line: line, Message: fmt.Sprintf(format, args...)}
}
