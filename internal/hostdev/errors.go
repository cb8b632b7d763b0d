package hostdev

import "errors"

var (
	// ErrAbsent means that the device is not there (yet). It may still appear.
	ErrAbsent = errors.New("device is not there")
	// ErrAddress means that the words given are no PCI address or namespace id.
	ErrAddress = errors.New("not a device address")
	// ErrAmbiguous means that several devices could be the one meant, so that none is.
	ErrAmbiguous = errors.New("it is not certain which device is meant")
	// ErrForeign means that the device holds something that is not ours to overwrite.
	ErrForeign = errors.New("device holds something else")
	// ErrBusy means that another process has the device open exclusively.
	ErrBusy = errors.New("device is in use")
	// ErrBlankReadOnly means that a blank device was to be used without writing to it.
	ErrBlankReadOnly = errors.New("device is blank and may not be written")
)
