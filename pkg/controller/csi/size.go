package csi

import (
	"fmt"

	csispec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/csiserver"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// parseSize reads a capacity range in bytes. Nothing asked is def, or the
// limit if that is smaller.
func parseSize(r *csispec.CapacityRange, def int64) (size, limit int64, err error) {
	size, limit = r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case size < 0 || limit < 0:
		return 0, 0, csiserver.Invalid("the size may not be negative: required %d, limit %d bytes", size, limit)
	case limit > 0 && size > limit:
		return 0, 0, fmt.Errorf("required are %d bytes, more than the limit of %d: %w", size, limit, provisioner.ErrOutOfRange)
	case size == 0 && limit > 0:
		return min(def, limit), limit, nil
	case size == 0:
		return def, 0, nil
	}
	return size, limit, nil
}

// fitting is the size in bytes of a volume that can hold the file systems it is
// asked for: a smaller one could be made, and never mounted.
func fitting(size, limit int64, caps []csiserver.Capability) (int64, error) {
	for _, c := range caps {
		least := hostdev.LeastBytes(c.FSType)
		if limit > 0 && limit < least {
			return 0, fmt.Errorf("%s needs at least %d bytes, more than the limit of %d: %w", c.FSType, least, limit, provisioner.ErrOutOfRange)
		}
		size = max(size, least)
	}
	return size, nil
}
