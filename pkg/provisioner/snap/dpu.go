package snap

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/internal/keylock"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Options of a DPU; the zero value will do.
type Options struct {
	// Reserved returns the PCI addresses that are promised to devices which
	// are not exposed now, such as those of a service that has just
	// restarted: no other device is given them. Nil means none.
	Reserved func(context.Context) map[string]string
	// Recorded returns the VUIDs of the functions that virtio-fs devices were
	// given, by device, as far as they are on record. Nil means none.
	Recorded func(context.Context) map[string]string
	// NewUUID makes identities of namespaces: random version 4 by default.
	NewUUID func() string
	// HotplugLimit is how many functions can be plugged in at a time: 31 if it
	// is 0.
	HotplugLimit int
	// PlugWait is how long Expose waits for the host to enumerate a function
	// that is plugged in: half a second if it is 0.
	PlugWait time.Duration
	// Clock is the machine's if nil.
	Clock clock.Clock
}

// DPU is the DPU face over one SNAP service. It is safe for concurrent use;
// a second call for the same device is refused with ErrBusy while one is
// under way.
type DPU struct {
	rpc      *snaprpc.Client
	reserved func(context.Context) map[string]string
	recorded func(context.Context) map[string]string
	newUUID  func() string
	// hotplugLimit, plugWait and clock are those of Options.
	hotplugLimit int
	plugWait     time.Duration
	clock        clock.Clock

	devices keylock.Locks
	// choosing is held while a function is chosen and taken, so that no two
	// exposures choose the same.
	choosing chan struct{}
	// given is which function this process gave each virtio-fs device, as the
	// service does not tell.
	given given
}

var _ provisioner.DPU = (*DPU)(nil)

// New returns the DPU face over the service that rpc calls. Nothing is called.
func New(rpc *snaprpc.Client, options Options) *DPU {
	d := &DPU{
		rpc: rpc, reserved: options.Reserved, recorded: options.Recorded, newUUID: options.NewUUID, choosing: make(chan struct{}, 1),
		hotplugLimit: cmp.Or(options.HotplugLimit, DefaultHotplugLimit),
		plugWait:     cmp.Or(options.PlugWait, DefaultPlugWait), clock: options.Clock,
	}
	if d.clock == nil {
		d.clock = clock.RealClock{}
	}
	if d.reserved == nil {
		d.reserved = func(context.Context) map[string]string { return nil }
	}
	if d.recorded == nil {
		d.recorded = func(context.Context) map[string]string { return nil }
	}
	if d.newUUID == nil {
		d.newUUID = uuid.NewString
	}
	return d
}

// alone runs act while no other call works on the device.
func (d *DPU) alone(device string, act func() error) error {
	if device == "" {
		return fmt.Errorf("no device named: %w", provisioner.ErrInvalid)
	}
	unlock, ok := d.devices.TryLock(NQN(device))
	if !ok {
		return fmt.Errorf("device %s: another call works on it: %w", device, provisioner.ErrBusy)
	}
	defer unlock()
	return act()
}

// lockFunctions waits for the right to choose a function.
func (d *DPU) lockFunctions(ctx context.Context) (unlock func(), err error) {
	select {
	case d.choosing <- struct{}{}:
		return func() { <-d.choosing }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for another exposure to choose its function: %w", ctx.Err())
	}
}
