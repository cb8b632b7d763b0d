package nvme

import (
	"context"
	"fmt"
	"slices"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

// plugging is the methods of one of the two families for hot-plug. Neither
// waits for the host: one that is dead would hold up a fence.
type plugging struct {
	// make makes a function and returns its VUID.
	make func(ctx context.Context) (string, error)
	// plug begins to plug in the function of a controller; nil where make did.
	plug func(ctx context.Context, ctrlID string) error
	// unplug begins to take the controller's function out of the host.
	unplug func(ctx context.Context, ctrlID, vuid string) error
	// remove removes a function that is out and has no controller.
	remove func(ctx context.Context, vuid string) error
}

// plugging finds out which family the service has: the newer one if it has
// both. ErrUnsupported if it has none.
func (d *Emulation) plugging(ctx context.Context) (plugging, error) {
	names, err := d.RPC.RPCGetMethods(ctx)
	switch {
	case err != nil:
		return plugging{}, service.Explain(err, service.Unread, "ask the service for its methods")
	case slices.Contains(names, "nvme_function_create"):
		return plugging{
			make: d.RPC.NvmeFunctionCreate, plug: d.RPC.NvmeControllerHotplug,
			unplug: func(ctx context.Context, ctrlID, _ string) error { return d.RPC.NvmeControllerHotunplug(ctx, ctrlID) },
			remove: d.RPC.NvmeFunctionDestroy,
		}, nil
	case slices.Contains(names, "nvme_emulation_device_attach"):
		return plugging{
			make:   d.RPC.NvmeEmulationDeviceAttach,
			unplug: func(ctx context.Context, _, vuid string) error { return d.RPC.EmulationDeviceDetachPrepare(ctx, vuid) },
			remove: func(ctx context.Context, vuid string) error { return d.RPC.EmulationDeviceDetach(ctx, vuid, false) },
		}, nil
	}
	return plugging{}, fmt.Errorf("the SNAP service has no methods for hot-plug, use hotplugFunction: false: %w", provisioner.ErrUnsupported)
}

// newFunction makes a function. Where there is no room for one it first removes
// those that the host has let go of since they were withdrawn.
func (d *Emulation) newFunction(ctx context.Context, family plugging) (string, error) {
	vuid, err := family.make(ctx)
	if code, refused := snaprpc.Code(err); refused && (code == snaprpc.CodeNoSpace || code == snaprpc.CodeNoMemory) {
		if d.MakeRoom(ctx) > 0 {
			vuid, err = family.make(ctx)
		}
	}
	return vuid, service.Explain(err, map[int]error{snaprpc.CodeInvalid: provisioner.ErrUnavailable},
		"make a hot-plug function (a DPU has room for %d: detach a volume from this host)", d.HotplugLimit)
}
