package nvme

import (
	"context"
	"strings"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

// Tidy removes what is left of withdrawn devices, as far as the host has let go
// of it, and returns of how many. What fails is left for later.
func (d *Emulation) Tidy(ctx context.Context) int {
	subsystems, err := d.subsystems(ctx)
	if err != nil {
		return 0
	}
	removed := 0
	for _, s := range subsystems {
		if !Own(s.NQN) || len(s.Namespaces) > 0 || len(s.Controllers) == 0 {
			continue
		}
		err := d.Alone(s.NQN, s.NQN, func() error { return d.tearDown(ctx, s.NQN, madeHere) })
		if now, listErr := d.subsystems(ctx); err == nil && listErr == nil && find(now, s.NQN).subsystem == nil {
			removed++
		}
	}
	return removed
}

// RemoveSpare removes a hot-plugged function that no device has. One that the
// host has can be unplugged by its controller alone, so it is given one first.
func (d *Emulation) RemoveSpare(ctx context.Context, name string) error {
	unlock, err := d.LockFunctions(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	functions, err := d.functions(ctx)
	if err != nil {
		return err
	}
	vuid := strings.TrimPrefix(name, SparePrefix)
	for _, f := range spares(functions, d.Reserved(ctx)) {
		if f.VUID != vuid {
			continue
		}
		family, err := d.plugging(ctx)
		if err != nil {
			return err
		}
		if pending(f) {
			return service.Explain(family.remove(ctx, vuid), service.Absent, "destroy function %s", vuid)
		}
		if err := d.RPC.NvmeSubsystemCreate(ctx, NQN(name)); err != nil && !snaprpc.IsExists(err) {
			return service.Explain(err, nil, "create subsystem %s", NQN(name))
		}
		spec := snaprpc.ControllerSpec{NQN: NQN(name), VUID: vuid, Suspended: true}
		if _, err := d.RPC.NvmeControllerCreate(ctx, spec); err != nil {
			return service.Explain(err, service.Vanished, "create a controller on function %s to unplug it", vuid)
		}
	}
	return d.tearDown(ctx, NQN(name), madeHere)
}
