package hostdev

import "errors"

var (
	// ErrAbsent: the device is not there (yet). It may still appear.
	ErrAbsent = errors.New("device is not there")
	// ErrAddress: the words given are no PCI address or namespace id.
	ErrAddress = errors.New("not a device address")
	// ErrForeign: the device holds something that is not ours to overwrite.
	ErrForeign = errors.New("device holds something else")
	// ErrBusy: somebody else has the device open for himself alone.
	ErrBusy = errors.New("device is in use")
	// ErrBlankReadOnly: a blank device was to be used without writing to it.
	ErrBlankReadOnly = errors.New("device is blank and may not be written")
)
