package snap

import (
	"context"
	"fmt"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// Size returns how large the device is. A namespace has the size of the device
// below it, and follows it.
func (d *DPU) Size(ctx context.Context, device string) (int64, error) {
	what := "look at the size of device " + device
	all, err := d.rpc.BdevGetBdevs(ctx, device)
	if err != nil {
		return 0, explain(err, nil, "%s", what)
	}
	if len(all) != 1 {
		return 0, fmt.Errorf("%s: the service tells of %d devices: %w", what, len(all), provisioner.ErrNotFound)
	}
	return all[0].SizeBytes(), nil
}
