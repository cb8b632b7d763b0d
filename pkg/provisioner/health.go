package provisioner

import "context"

// Severity says how bad a problem is.
type Severity string

// The severities.
const (
	// Degraded: it works, not as well as it should.
	Degraded Severity = "Degraded"
	// Inaccessible: it cannot be used now.
	Inaccessible Severity = "Inaccessible"
	// DataLoss: data is gone, or very likely so.
	DataLoss Severity = "DataLoss"
)

// Problem is something that is wrong.
type Problem struct {
	Severity Severity
	// Reason is one word in CamelCase.
	Reason string
	// Message says it for the user, with what to do.
	Message string
}

// VolumeHealth is what is wrong with a volume; nothing, if it is well.
type VolumeHealth struct {
	VolumeID string
	Problems []Problem
}

// Health tells what is wrong with volumes, as the storage sees it.
type Health interface {
	// Get returns the health of a volume, or ErrNotFound.
	Get(ctx context.Context, id string) (VolumeHealth, error)
	// List returns a page of the volumes with which something is wrong,
	// ordered by ID; next is where the following page goes on.
	List(ctx context.Context, page Page) (unwell []VolumeHealth, next string, err error)
}
