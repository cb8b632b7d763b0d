package nvme

import (
	"context"
	"errors"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// Count counts the static functions, and those that are plugged in and carry a
// controller: -1 where the service plugs in none. One without a controller is
// free: the next volume takes it.
func (d *Emulation) Count(ctx context.Context) (static []provisioner.FunctionCount, plugged int, err error) {
	functions, err := d.functions(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, kind := range []provisioner.FunctionType{provisioner.PF, provisioner.VF} {
		count := provisioner.FunctionCount{Type: kind}
		for _, f := range ofKind(functions, kind) {
			count.Total++
			if f.CtrlID == "" {
				count.Free++
			}
		}
		static = append(static, count)
	}
	for _, f := range functions {
		if f.Hotplugged && isNVMe(f) && f.CtrlID != "" {
			plugged++
		}
	}
	_, err = d.plugging(ctx)
	switch {
	case err == nil:
		return static, plugged, nil
	case errors.Is(err, provisioner.ErrUnsupported):
		return static, -1, nil
	}
	return nil, 0, err
}

// List returns the exposures in the subsystems made here, and the hot-plugged
// functions that no device has.
func (d *Emulation) List(ctx context.Context) ([]provisioner.Exposure, error) {
	subsystems, err := d.subsystems(ctx)
	if err != nil {
		return nil, err
	}
	functions, err := d.functions(ctx)
	if err != nil {
		return nil, err
	}
	var out []provisioner.Exposure
	for _, s := range subsystems {
		if !Own(s.NQN) {
			continue
		}
		if len(s.Namespaces) == 0 {
			out = append(out, find(subsystems, s.NQN).exposure(s.NQN, functions))
		}
		for _, ns := range s.Namespaces {
			out = append(out, find(subsystems, ns.Bdev).exposure(ns.Bdev, functions))
		}
	}
	for _, f := range spares(functions, d.Reserved(ctx)) {
		out = append(out, provisioner.Exposure{Device: SparePrefix + f.VUID})
	}
	return out, nil
}
