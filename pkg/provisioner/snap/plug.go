package snap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// DefaultHotplugLimit is how many functions can be plugged in at a time: the
// PCI switch of a BlueField has at most 32 ports, and one is for the static
// functions. The service does not tell.
const DefaultHotplugLimit = 31

// DefaultPlugWait is how long Expose waits for the host to enumerate a function
// before it says that it has to be repeated.
const DefaultPlugWait = 500 * time.Millisecond

// plugPoll is the pause between two looks at the host's progress: the service
// has no events.
const plugPoll = 20 * time.Millisecond

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
func (d *DPU) plugging(ctx context.Context) (plugging, error) {
	names, err := d.rpc.RPCGetMethods(ctx)
	switch {
	case err != nil:
		return plugging{}, explain(err, unread, "ask the service for its methods")
	case slices.Contains(names, "nvme_function_create"):
		return plugging{
			make: d.rpc.NvmeFunctionCreate, plug: d.rpc.NvmeControllerHotplug,
			unplug: func(ctx context.Context, ctrlID, _ string) error { return d.rpc.NvmeControllerHotunplug(ctx, ctrlID) },
			remove: d.rpc.NvmeFunctionDestroy,
		}, nil
	case slices.Contains(names, "nvme_emulation_device_attach"):
		return plugging{
			make:   d.rpc.NvmeEmulationDeviceAttach,
			unplug: func(ctx context.Context, _, vuid string) error { return d.rpc.EmulationDeviceDetachPrepare(ctx, vuid) },
			remove: func(ctx context.Context, vuid string) error { return d.rpc.EmulationDeviceDetach(ctx, vuid, false) },
		}, nil
	}
	return plugging{}, fmt.Errorf("the SNAP service has no methods for hot-plug, use hotplugFunction: false: %w", provisioner.ErrUnsupported)
}

// chooseSpare picks a hot-plugged function that is there already and free: the
// one at the recorded address, or one that no other device is promised. Which
// one it is does not matter for the volume, whose identity is its UUID.
// pendingToo allows one that the host does not have.
func chooseSpare(functions []snaprpc.Function, want wanted, reserved map[string]string, pendingToo bool) (snaprpc.Function, bool) {
	if f, ok := functionAt(functions, want.recorded); ok && want.recorded != "" && f.Hotplugged && f.CtrlID == "" {
		return f, true
	}
	promised := promises(reserved)
	return pick(functions, func(f snaprpc.Function) bool {
		owner, taken := promised[bare(f.PCIBDF)]
		return f.Hotplugged && f.CtrlID == "" && (pendingToo || !pending(f)) && (pending(f) || !taken || owner == want.device)
	})
}

func promises(reserved map[string]string) map[string]string {
	out := map[string]string{}
	for address, device := range reserved {
		out[bare(address)] = device
	}
	return out
}

func pending(f snaprpc.Function) bool { return f.PCIBDF == snaprpc.PendingBDF || f.PCIBDF == "" }

// createPlugged makes the controller on a hot-plugged function that is free, or
// on a new one. A crash between the two leaves a free one, for the next volume
// or for the sweep.
func (b *build) createPlugged(ctx context.Context) error {
	unlock, err := b.d.lockFunctions(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	family, err := b.d.plugging(ctx)
	if err != nil {
		return err
	}
	functions, err := b.d.functions(ctx)
	if err != nil {
		return err
	}
	f, found := chooseSpare(functions, b.wanted(), b.d.reserved(ctx), family.plug != nil)
	if !found {
		if f.VUID, err = b.d.newFunction(ctx, family); err != nil {
			return err
		}
	}
	err = b.controllerOn(ctx, snaprpc.ControllerSpec{VUID: f.VUID})
	if err != nil && !found && !provisioner.Uncertain(err) && family.plug != nil {
		// If it cannot be removed, it is free for the next volume.
		_ = family.remove(ctx, f.VUID)
	}
	return err
}

// newFunction makes a function. Where there is no room for one it first removes
// those that the host has let go of since they were withdrawn.
func (d *DPU) newFunction(ctx context.Context, family plugging) (string, error) {
	vuid, err := family.make(ctx)
	if code, refused := snaprpc.Code(err); refused && (code == snaprpc.CodeNoSpace || code == snaprpc.CodeNoMemory) {
		if d.tidy(ctx) > 0 {
			vuid, err = family.make(ctx)
		}
	}
	return vuid, explain(err, map[int]error{snaprpc.CodeInvalid: provisioner.ErrUnavailable},
		"make a hot-plug function (a DPU has room for %d: detach a volume from this host)", d.hotplugLimit)
}

// tidy removes what is left of withdrawn devices, as far as the host has let go
// of it, and returns of how many. What fails is left for later.
func (d *DPU) tidy(ctx context.Context) int {
	subsystems, err := d.subsystems(ctx)
	if err != nil {
		return 0
	}
	removed := d.tidyFS(ctx)
	for _, s := range subsystems {
		if !Own(s.NQN) || len(s.Namespaces) > 0 || len(s.Controllers) == 0 {
			continue
		}
		err := d.alone(s.NQN, func() error { return d.tearDown(ctx, s.NQN, oursOnly) })
		if now, listErr := d.subsystems(ctx); err == nil && listErr == nil && locate(now, s.NQN).subsystem == nil {
			removed++
		}
	}
	return removed
}

// plug begins to plug in the function of the exposure's controller.
func (b *build) plug(p place) func(context.Context) error {
	return func(ctx context.Context) error {
		family, err := b.d.plugging(ctx)
		if err != nil || family.plug == nil {
			return err
		}
		return explain(family.plug(ctx, p.controller.CtrlID), gone, "plug in the function of controller %s", p.controller.CtrlID)
	}
}

// needsPlug reports whether the function of the exposure is still to be plugged
// in. One that is on its way shows no address either.
func (b *build) needsPlug(ctx context.Context, p place) (bool, error) {
	if !b.spec.Hotplug || p.controller == nil || p.controller.Plugged {
		return false, nil
	}
	functions, err := b.d.functions(ctx)
	if err != nil {
		return false, err
	}
	f, ok := functionOf(functions, p.controller.CtrlID)
	if !ok || !f.Hotplugged || !pending(f) {
		return false, nil
	}
	family, err := b.d.plugging(ctx)
	return family.plug != nil, err
}

// leftover reports whether p is what a withdrawal left of a hot-plugged
// function that the host had not let go of: a controller without a namespace.
// An exposure makes the namespace first.
func (p place) leftover() bool {
	return p.own() && p.namespace == nil && len(p.subsystem.Controllers) > 0
}

// clearLeftover ends a withdrawal of the same device that waits for the host:
// its function is on the way out and can not be used.
func (b *build) clearLeftover(ctx context.Context) error {
	return b.d.patiently(ctx, func() error {
		p, err := b.place(ctx)
		if err != nil || !p.leftover() {
			return err
		}
		if err := b.d.tearDown(ctx, b.spec.Device, oursOnly); err != nil {
			return err
		}
		if p, err = b.place(ctx); err != nil || !p.leftover() {
			return err
		}
		return fmt.Errorf("the host has not let go of the function that the device had before: %w", errNotYet)
	})
}

// errNotYet says that the host has not done its part; it may yet.
var errNotYet = fmt.Errorf("the host is slow, off or hung: %w", provisioner.ErrUnavailable)

// patiently repeats look while it says errNotYet, for a short time.
func (d *DPU) patiently(ctx context.Context, look func() error) error {
	until := d.clock.Now().Add(d.plugWait)
	for {
		err := look()
		if !errors.Is(err, errNotYet) || !d.clock.Now().Before(until) {
			return err
		}
		timer := d.clock.NewTimer(plugPoll)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// nextOut removes what remains of a withdrawn device with a hot-plugged
// function. The host is asked once to let go of it, and not waited for: what is
// left then is listed, and removed by a later call. Nil if nothing can be done.
func (d *DPU) nextOut(ctx context.Context, c snaprpc.Controller, f snaprpc.Function, asked map[string]bool) (*step, error) {
	family, err := d.plugging(ctx)
	if err != nil {
		return nil, err
	}
	out := pending(f) && (asked[f.VUID] || !c.Plugged)
	switch {
	case !out && asked[f.VUID]:
		return nil, nil
	case !out:
		name := "unplug function " + f.VUID
		return &step{name, func(ctx context.Context) error {
			err := family.unplug(ctx, c.CtrlID, f.VUID)
			asked[f.VUID] = err == nil
			return explain(err, absent, "%s", name)
		}}, nil
	}
	name := fmt.Sprintf("destroy controller %s and function %s", c.CtrlID, f.VUID)
	return &step{name, func(ctx context.Context) error {
		if err := d.rpc.NvmeControllerDestroy(ctx, c.CtrlID, true); err != nil {
			return explain(err, absent, "%s", name)
		}
		return explain(family.remove(ctx, f.VUID), absent, "%s", name)
	}}, nil
}

// sparePrefix begins the name under which List tells of a hot-plugged function
// that no device has; its VUID follows.
const sparePrefix = "function:"

// spares returns the hot-plugged functions that no device has, nor is promised.
func spares(functions []snaprpc.Function, reserved map[string]string) []snaprpc.Function {
	promised := promises(reserved)
	var out []snaprpc.Function
	for _, f := range functions {
		_, taken := promised[bare(f.PCIBDF)]
		if isNVMe(f) && f.Hotplugged && f.CtrlID == "" && (pending(f) || !taken) {
			out = append(out, f)
		}
	}
	return out
}

// removeSpare removes a hot-plugged function that no device has. One that the
// host has can be unplugged by its controller alone, so it is given one first.
func (d *DPU) removeSpare(ctx context.Context, name string) error {
	unlock, err := d.lockFunctions(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	functions, err := d.functions(ctx)
	if err != nil {
		return err
	}
	vuid := strings.TrimPrefix(name, sparePrefix)
	for _, f := range spares(functions, d.reserved(ctx)) {
		if f.VUID != vuid {
			continue
		}
		family, err := d.plugging(ctx)
		if err != nil {
			return err
		}
		if pending(f) {
			return explain(family.remove(ctx, vuid), absent, "destroy function %s", vuid)
		}
		if err := d.rpc.NvmeSubsystemCreate(ctx, NQN(name)); err != nil && !isExists(err) {
			return explain(err, nil, "create subsystem %s", NQN(name))
		}
		spec := snaprpc.ControllerSpec{NQN: NQN(name), VUID: vuid, Suspended: true}
		if _, err := d.rpc.NvmeControllerCreate(ctx, spec); err != nil {
			return explain(err, gone, "create a controller on function %s to unplug it", vuid)
		}
	}
	return d.tearDown(ctx, NQN(name), oursOnly)
}

func isExists(err error) bool {
	code, refused := snaprpc.Code(err)
	return refused && code == snaprpc.CodeExists
}
