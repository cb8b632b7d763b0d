package provisioner

import "context"

// Expansion makes volumes larger, attached or not.
type Expansion interface {
	// Expand makes the volume at least bytes large, and at most limit if that
	// is not 0, and returns its size in bytes, which is the same if that is
	// large enough already. Who has it open sees the new size after
	// Rescan there. Errors: ErrNotFound, ErrOutOfRange, ErrExhausted.
	Expand(ctx context.Context, id string, bytes, limit int64) (int64, error)
}

// Rescan is for hosts whose open devices can grow.
type Rescan interface {
	// Rescan looks at the size of the open device of a volume again, and
	// returns it in bytes. ErrNotFound if the volume is not open here;
	// ErrUnavailable if it has not grown to atLeast bytes yet. Of a directory, the
	// file system has that size when it returns.
	Rescan(ctx context.Context, volumeID string, atLeast int64) (int64, error)
}

// Change changes what may change in the life of a volume.
type Change interface {
	// Modify sets the parameters of a VolumeAttributesClass; those not named
	// stay. ErrInvalid, and nothing changed, if one is not known.
	Modify(ctx context.Context, id string, parameters map[string]string) error
}
