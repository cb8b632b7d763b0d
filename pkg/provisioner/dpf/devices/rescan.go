package devices

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// rescanWait bounds how long Rescan waits for the DPU to let the device grow,
// which takes it less than a second; the caller repeats.
const rescanWait = 15 * time.Second

var _ provisioner.Rescan = (*Host)(nil)

// Rescan waits until the device of an open volume has atLeast bytes. The DPU lets
// it grow and tells the host, whose driver looks at the namespace again.
func (h *Host) Rescan(ctx context.Context, volumeID string, atLeast int64) (int64, error) {
	h.mu.Lock()
	p, ok := h.open[volumeID]
	h.mu.Unlock()
	if !ok {
		return 0, fmt.Errorf("volume %q is not open on this host: %w", volumeID, provisioner.ErrNotFound)
	}
	ctx, cancel := context.WithTimeout(ctx, min(rescanWait, h.wait))
	defer cancel()
	size, err := h.finder.WaitSize(ctx, p.Identity, atLeast)
	if errors.Is(err, hostdev.ErrAbsent) {
		return 0, fmt.Errorf("look at the size of volume %q: %w: %w", volumeID, err, provisioner.ErrUnavailable)
	}
	if err != nil {
		return 0, fmt.Errorf("look at the size of volume %q: %w", volumeID, err)
	}
	return size, nil
}
