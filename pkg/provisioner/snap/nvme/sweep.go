package nvme

import (
	"context"
	"strings"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

// Tidy removes what is left of withdrawn devices, as far as the host has let go
// of it, and returns of how many, and how many are left. What fails is left for later.
func (d *Emulation) Tidy(ctx context.Context) (removed, left int, err error) {
	subsystems, err := d.subsystems(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, s := range subsystems {
		if !remains(s) {
			continue
		}
		gone, remain, err := d.tidy(ctx, s.NQN)
		switch {
		case gone:
			removed++
		case remain || err != nil:
			left++
		}
	}
	return removed, left, nil
}

// tidy removes what is left of a withdrawn device, as far as the host has let go of it, and
// reports whether that is gone by this, or whether something remains. The device may be shown
// again since it was listed: while no other call works on it, it is looked at anew.
func (d *Emulation) tidy(ctx context.Context, nqn string) (gone, remain bool, err error) {
	now := func() (listing, error) {
		subsystems, err := d.subsystems(ctx)
		return find(subsystems, nqn), err
	}
	err = d.Alone(nqn, nqn, func() error {
		p, err := now()
		if err != nil || p.subsystem == nil || !remains(*p.subsystem) {
			return err
		}
		if err := d.tearDown(ctx, nqn, madeHere); err != nil {
			return err
		}
		p, err = now()
		gone, remain = err == nil && p.subsystem == nil, p.subsystem != nil
		return err
	})
	return gone, remain, err
}

// remains reports whether a subsystem is what a withdrawn device has left.
func remains(s snaprpc.Subsystem) bool {
	return Own(s.NQN) && len(s.Namespaces) == 0 && len(s.Controllers) > 0
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
		if err := d.toUnplug(ctx, NQN(name), vuid); err != nil {
			return err
		}
	}
	return d.tearDown(ctx, NQN(name), madeHere)
}
