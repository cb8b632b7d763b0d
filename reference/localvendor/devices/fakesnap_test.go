package devices

import (
	"context"
	"sync"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/blocktarget"
)

// fakeSNAP is the part of a SNAP service that Host uses.
type fakeSNAP struct {
	epochs map[string]int64
	mu     sync.Mutex
	bdevs  map[string]snaprpc.Bdev
	fsdevs map[string]string
	specs  []snaprpc.AIOSpec
	// targets are the calls to make a bdev over a target.
	targets []snaprpc.TargetSpec
	// rescans are the devices whose size was looked at again.
	rescans []string
	fail    map[string][]error
	silent  bool // tells no file names, as old services do
}

func newFakeSNAP() *fakeSNAP {
	return &fakeSNAP{bdevs: map[string]snaprpc.Bdev{}, fsdevs: map[string]string{}, fail: map[string][]error{}}
}

// next returns the next error injected for a method; the caller holds mu.
func (f *fakeSNAP) next(ctx context.Context, method string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(f.fail[method]) == 0 {
		return nil
	}
	err := f.fail[method][0]
	f.fail[method] = f.fail[method][1:]
	return err
}

func (f *fakeSNAP) BdevGetBdevs(ctx context.Context, _ string) ([]snaprpc.Bdev, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.next(ctx, "list"); err != nil {
		return nil, err
	}
	var out []snaprpc.Bdev
	for _, b := range f.bdevs {
		if f.silent {
			b.DriverSpecific.AIO = nil
		}
		out = append(out, b)
	}
	return out, nil
}

func (f *fakeSNAP) BdevAioCreate(ctx context.Context, spec snaprpc.AIOSpec) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.specs = append(f.specs, spec)
	if err := f.next(ctx, "create"); err != nil {
		return "", err
	}
	if _, ok := f.bdevs[spec.Name]; ok {
		return "", &snaprpc.Error{Code: snaprpc.CodeExists, Message: "File exists"}
	}
	f.bdevs[spec.Name] = aioBdev(spec.Name, spec.Filename)
	return spec.Name, nil
}

func (f *fakeSNAP) BdevAioDelete(ctx context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.next(ctx, "delete"); err != nil {
		return err
	}
	if _, ok := f.bdevs[name]; !ok {
		return &snaprpc.Error{Code: snaprpc.CodeNoDevice, Message: "No such device"}
	}
	delete(f.bdevs, name)
	return nil
}

func (f *fakeSNAP) BdevMoorTargetCreate(ctx context.Context, spec snaprpc.TargetSpec) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.targets = append(f.targets, spec)
	if err := f.next(ctx, "create"); err != nil {
		return "", err
	}
	if _, ok := f.bdevs[spec.Name]; ok {
		return "", &snaprpc.Error{Code: snaprpc.CodeExists, Message: "File exists"}
	}
	e, err := blocktarget.ParseExport(spec.Export)
	if err != nil {
		return "", err
	}
	f.bdevs[spec.Name] = snaprpc.Bdev{Name: spec.Name, DriverSpecific: snaprpc.DriverSpecific{MoorTarget: &snaprpc.TargetBdev{
		Address: spec.Address, Volume: e.Volume, Node: e.Node, Fingerprint: e.Fingerprint(), ReadOnly: spec.ReadOnly,
	}}}
	return spec.Name, nil
}

func (f *fakeSNAP) BdevMoorTargetDelete(ctx context.Context, name string) error {
	if b, ok := f.bdevs[name]; ok && b.DriverSpecific.MoorTarget == nil {
		return &snaprpc.Error{Code: snaprpc.CodeNoDevice, Message: "No such device"}
	}
	return f.BdevAioDelete(ctx, name)
}

func (f *fakeSNAP) BdevAioRescan(ctx context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rescans = append(f.rescans, name)
	return f.next(ctx, "rescan")
}

func (f *fakeSNAP) BdevMoorTargetRescan(ctx context.Context, name string) error {
	return f.BdevAioRescan(ctx, name)
}

func (f *fakeSNAP) BdevMoorTargetEpoch(ctx context.Context, name string, epoch int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.next(ctx, "epoch"); err != nil {
		return err
	}
	if f.epochs == nil {
		f.epochs = map[string]int64{}
	}
	if epoch < f.epochs[name] {
		return &snaprpc.Error{Code: snaprpc.CodeDenied, Message: "Permission denied"}
	}
	f.epochs[name] = epoch
	return nil
}

func aioBdev(name, file string) snaprpc.Bdev {
	return snaprpc.Bdev{
		Name:           name,
		DriverSpecific: snaprpc.DriverSpecific{AIO: &snaprpc.AIOBdev{Filename: file}},
	}
}

func (f *fakeSNAP) FsdevGetFsdevs(ctx context.Context) ([]snaprpc.FSDev, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.next(ctx, "list fsdevs"); err != nil {
		return nil, err
	}
	var out []snaprpc.FSDev
	for name, root := range f.fsdevs {
		d := snaprpc.FSDev{Name: name}
		d.Module.RootPath = root
		out = append(out, d)
	}
	return out, nil
}

func (f *fakeSNAP) FsdevAioCreate(ctx context.Context, name, root string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.next(ctx, "create"); err != nil {
		return err
	}
	if f.fsdevs[name] != "" {
		return &snaprpc.Error{Code: snaprpc.CodeInternal, Message: "Failed to create fsdev"}
	}
	f.fsdevs[name] = root
	return nil
}

func (f *fakeSNAP) FsdevAioDelete(ctx context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.next(ctx, "delete"); err != nil {
		return err
	}
	if f.fsdevs[name] == "" {
		return &snaprpc.Error{Code: snaprpc.CodeNoDevice, Message: "No such device"}
	}
	delete(f.fsdevs, name)
	return nil
}
