package provisionertest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/moor-storage/moor/pkg/provisioner"
)

type fakeHost struct{ f *Fake }

func (h fakeHost) Open(ctx context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	call := Call{Face: FaceHost, Verb: "Open", Object: spec.VolumeID}
	return do(ctx, h.f, call, func() (provisioner.Device, error) {
		if spec.VolumeID == "" {
			return provisioner.Device{}, fmt.Errorf("no volume named: %w", provisioner.ErrInvalid)
		}
		if d, ok := h.f.devices[spec.VolumeID]; ok {
			h.f.deviceSizes[d.Name] = h.f.sizes[spec.VolumeID]
			return d, nil
		}
		d := provisioner.Device{VolumeID: spec.VolumeID, Name: "dev_" + spec.VolumeID, Mode: spec.Mode}
		h.f.devices[spec.VolumeID], h.f.deviceSizes[d.Name] = d, h.f.sizes[spec.VolumeID]
		return d, nil
	})
}

func (h fakeHost) Close(ctx context.Context, volumeID, deviceName string) error {
	call := Call{Face: FaceHost, Verb: "Close", Object: volumeID}
	_, err := do(ctx, h.f, call, func() (struct{}, error) {
		if d, ok := h.f.devices[volumeID]; ok && (deviceName == "" || d.Name == deviceName) {
			delete(h.f.devices, volumeID)
		}
		return struct{}{}, nil
	})
	return err
}

func (h fakeHost) Lookup(ctx context.Context, volumeID string) (provisioner.Device, error) {
	call := Call{Face: FaceHost, Verb: "Lookup", Object: volumeID}
	return do(ctx, h.f, call, func() (provisioner.Device, error) {
		if d, ok := h.f.devices[volumeID]; ok {
			return d, nil
		}
		return provisioner.Device{}, fmt.Errorf("no device of the volume: %w", provisioner.ErrNotFound)
	})
}

func (h fakeHost) List(ctx context.Context) ([]provisioner.Device, error) {
	return do(ctx, h.f, Call{Face: FaceHost, Verb: "List"}, func() ([]provisioner.Device, error) {
		var out []provisioner.Device
		for _, d := range h.f.devices {
			out = append(out, d)
		}
		slices.SortFunc(out, func(a, b provisioner.Device) int { return cmp.Compare(a.VolumeID, b.VolumeID) })
		return out, nil
	})
}

type fakeDPU struct{ f *Fake }

func (d fakeDPU) Expose(ctx context.Context, spec provisioner.ExposeSpec) (provisioner.Exposure, error) {
	call := Call{Face: FaceDPU, Verb: "Expose", Object: spec.Device}
	return do(ctx, d.f, call, func() (provisioner.Exposure, error) { return d.f.expose(spec) })
}

func (f *Fake) expose(spec provisioner.ExposeSpec) (provisioner.Exposure, error) {
	none := provisioner.Exposure{}
	if spec.FunctionType != provisioner.PF && spec.FunctionType != provisioner.VF {
		return none, fmt.Errorf("function type %q: %w", spec.FunctionType, provisioner.ErrInvalid)
	}
	if !f.hasDevice(spec.Device) {
		return none, fmt.Errorf("no device %q: %w", spec.Device, provisioner.ErrNotFound)
	}
	if have, ok := f.exposures[spec.Device]; ok {
		have.exposure.Visible, have.exposure.Hidden = !spec.Hidden, spec.Hidden
		f.exposures[spec.Device] = have
		return have.exposure, nil
	}
	slot, ok := f.freeSlot(spec)
	if !ok {
		return none, fmt.Errorf("no free %s function: %w", spec.FunctionType, provisioner.ErrExhausted)
	}
	e := provisioner.Exposure{
		Device: spec.Device, PCIAddress: slot, NamespaceID: max(spec.NamespaceID, 1),
		UUID: spec.UUID, Visible: !spec.Hidden, Hidden: spec.Hidden,
	}
	if e.UUID == "" {
		f.made++
		e.UUID = fmt.Sprintf("00000000-0000-4000-8000-%012d", f.made)
	}
	f.exposures[spec.Device] = fakeExposure{exposure: e, function: spec.FunctionType}
	return e, nil
}

func (f *Fake) hasDevice(name string) bool {
	for _, d := range f.devices {
		if d.Name == name {
			return true
		}
	}
	return f.plain[name]
}

// freeSlot returns the PCI address recorded in spec, or the first free one.
func (f *Fake) freeSlot(spec provisioner.ExposeSpec) (string, bool) {
	bus, used := map[provisioner.FunctionType]int{provisioner.PF: 0x3a, provisioner.VF: 0x3b}, map[string]bool{}
	for _, e := range f.exposures {
		used[e.exposure.PCIAddress] = true
	}
	if spec.PCIAddress != "" {
		return spec.PCIAddress, !used[spec.PCIAddress]
	}
	for i := range f.functions[spec.FunctionType] {
		slot := fmt.Sprintf("0000:%02x:%02x.%d", bus[spec.FunctionType], i/8, i%8)
		if !used[slot] {
			return slot, true
		}
	}
	return "", false
}

func (d fakeDPU) Withdraw(ctx context.Context, deviceName string) error {
	call := Call{Face: FaceDPU, Verb: "Withdraw", Object: deviceName}
	_, err := do(ctx, d.f, call, func() (struct{}, error) {
		delete(d.f.exposures, deviceName)
		return struct{}{}, nil
	})
	return err
}

// Discard implements provisioner.DPU; nothing is ever kept.
func (fakeDPU) Discard(context.Context, string, string) error { return nil }

// Tidy has nothing to do: a host lets go at once.
func (d fakeDPU) Tidy(ctx context.Context) (removed, left int, err error) {
	_, err = do(ctx, d.f, Call{Face: FaceDPU, Verb: "Tidy"}, func() (struct{}, error) { return struct{}{}, nil })
	return 0, 0, err
}

func (d fakeDPU) List(ctx context.Context) ([]provisioner.Exposure, error) {
	return do(ctx, d.f, Call{Face: FaceDPU, Verb: "List"}, func() ([]provisioner.Exposure, error) {
		var out []provisioner.Exposure
		for _, e := range d.f.exposures {
			out = append(out, e.exposure)
		}
		slices.SortFunc(out, func(a, b provisioner.Exposure) int { return cmp.Compare(a.Device, b.Device) })
		return out, nil
	})
}

func (d fakeDPU) Functions(ctx context.Context) ([]provisioner.FunctionCount, error) {
	return do(ctx, d.f, Call{Face: FaceDPU, Verb: "Functions"}, func() ([]provisioner.FunctionCount, error) {
		used := map[provisioner.FunctionType]int{}
		for _, e := range d.f.exposures {
			used[e.function]++
		}
		var out []provisioner.FunctionCount
		for _, t := range []provisioner.FunctionType{provisioner.PF, provisioner.VF} {
			total := d.f.functions[t]
			out = append(out, provisioner.FunctionCount{Type: t, Total: total, Free: max(total-used[t], 0)})
		}
		return out, nil
	})
}

func (d fakeDPU) Size(ctx context.Context, device string) (int64, error) {
	return do(ctx, d.f, Call{Face: FaceDPU, Verb: "Size", Object: device}, func() (int64, error) {
		if !d.f.hasDevice(device) {
			return 0, fmt.Errorf("no device %q: %w", device, provisioner.ErrNotFound)
		}
		return max(d.f.deviceSizes[device], mib), nil
	})
}

func (d fakeDPU) Paths(ctx context.Context, devices []string) ([]provisioner.Path, error) {
	return do(ctx, d.f, Call{Face: FaceDPU, Verb: "Paths"}, func() ([]provisioner.Path, error) {
		var out []provisioner.Path
		for _, name := range slices.Compact(slices.Sorted(slices.Values(devices))) {
			if d.f.hasDevice(name) {
				out = append(out, d.f.path(name))
			}
		}
		return out, nil
	})
}

func (f *Fake) path(device string) provisioner.Path {
	if p, ok := f.paths[device]; ok {
		return p
	}
	return provisioner.Path{Device: device, State: provisioner.PathConnected, Detail: "enabled"}
}

// ProbePath has an answer over a path that is connected.
func (d fakeDPU) ProbePath(ctx context.Context, device string) error {
	call := Call{Face: FaceDPU, Verb: "ProbePath", Object: device}
	_, err := do(ctx, d.f, call, func() (struct{}, error) {
		if !d.f.hasDevice(device) {
			return struct{}{}, fmt.Errorf("no device %q: %w", device, provisioner.ErrNotFound)
		}
		switch p := d.f.path(device); p.State {
		case provisioner.PathConnected:
			return struct{}{}, nil
		case provisioner.PathUnknown:
			return struct{}{}, provisioner.ErrUnsupported
		default:
			return struct{}{}, fmt.Errorf("the path is %s: %w", p.State, provisioner.ErrUnavailable)
		}
	})
	return err
}
