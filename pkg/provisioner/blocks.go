package provisioner

import "context"

// Range is a stretch of a snapshot, in bytes.
type Range struct{ Offset, Length int64 }

// Blocks tells of snapshots of volumes of mode Block which parts hold data, and in
// which parts two of them differ. Both call found for each part, in order, as long as
// it returns nil; no two parts overlap or touch. Parts may hold a little more than what
// is meant, never less, and none ends at or before from. Errors: ErrNotFound if there
// is no such snapshot; ErrInvalid if it has no blocks, or the two are not of one volume;
// that of found.
type Blocks interface {
	// Allocated tells where the snapshot may hold something else than zeros.
	Allocated(ctx context.Context, snapshotID string, from int64, found func(Range) error) error
	// Changed tells where target differs from base. What target has beyond the end of
	// base is told where it may hold something else than zeros.
	Changed(ctx context.Context, baseID, targetID string, from int64, found func(Range) error) error
}
