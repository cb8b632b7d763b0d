package snaprpc

import "context"

// CodeUnreachable is EHOSTUNREACH: something behind the service is out of
// reach; the same call may be repeated.
const CodeUnreachable = -113

// CodeDenied is EACCES: something behind the service refuses it.
const CodeDenied = -13

// TargetSpec is what bdev_moor_target_create is asked for. That method is the
// emulator's own, none of SPDK's.
type TargetSpec struct {
	Name string `json:"name"`
	// Address of the target, "host:port".
	Address string `json:"address"`
	// Export is what to open there. It holds a secret: never log it.
	Export   string `json:"export"`
	ReadOnly bool   `json:"readonly,omitempty"`
}

// TargetBdev tells of a bdev over a volume of a block target.
type TargetBdev struct {
	Address string `json:"address"`
	Volume  string `json:"volume"`
	Node    string `json:"node"`
	// Fingerprint tells exports apart without their secret.
	Fingerprint string `json:"fingerprint"`
	ReadOnly    bool   `json:"readonly"`
}

// BdevMoorTargetCreate makes a bdev over a volume of a block target and returns
// its name. The emulated service alone has it.
func (c *Client) BdevMoorTargetCreate(ctx context.Context, spec TargetSpec) (string, error) {
	var out string
	err := c.Call(ctx, "bdev_moor_target_create", spec, &out)
	return out, err
}

// BdevMoorTargetDelete removes a bdev made by BdevMoorTargetCreate. It is
// refused with EHOSTUNREACH while the target is out of reach and may be about to
// work on a write of the bdev.
func (c *Client) BdevMoorTargetDelete(ctx context.Context, name string) error {
	return c.Call(ctx, "bdev_moor_target_delete", params{"name": name}, nil)
}

// BdevMoorTargetRescan gives a bdev made by BdevMoorTargetCreate the size that
// the volume has now at its target.
func (c *Client) BdevMoorTargetRescan(ctx context.Context, name string) error {
	return c.Call(ctx, "bdev_moor_target_rescan", params{"name": name}, nil)
}

// BdevMoorTargetEpoch opens the volume of a bdev made by BdevMoorTargetCreate under an
// epoch: after it nothing that the bdev sent before reaches the volume. It is refused
// with EACCES if the epoch is over, or lower than the bdev's.
func (c *Client) BdevMoorTargetEpoch(ctx context.Context, name string, epoch int64) error {
	return c.Call(ctx, "bdev_moor_target_epoch", params{"name": name, "epoch": epoch}, nil)
}
