package snapemulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/snapemulator/datapath"
	"github.com/moor-storage/moor/reference/snapemulator/model"
	"github.com/moor-storage/moor/reference/snapemulator/wire"
)

// targetOpenTimeout bounds the opening of a volume at its target.
const targetOpenTimeout = 5 * time.Second

// targetMethods are the emulator's own: volumes of a block target in place of
// the network storage that SNAP reaches by NVMe over Fabrics.
func targetMethods() map[string]handler {
	return map[string]handler{
		"bdev_moor_target_create": targetCreate,
		"bdev_moor_target_delete": method(deleteBdev(model.MoorTarget)),
		"bdev_moor_target_rescan": targetRescan,
		"bdev_moor_target_epoch":  targetEpoch,
	}
}

// targetParams are what bdev_moor_target_create is asked for.
type targetParams struct {
	Name     string `json:"name" snap:"must"`
	Address  string `json:"address" snap:"must"`
	Export   string `json:"export" snap:"must"`
	ReadOnly bool   `json:"readonly"`
}

// targetCreate opens the volume without the emulator's lock: a target that is
// out of reach must not hold up the fencing of other volumes.
func targetCreate(ctx context.Context, e *Emulator, raw json.RawMessage) (any, error) {
	p, err := wire.Decode[targetParams](raw)
	if err != nil {
		return nil, &snaprpc.Error{Code: snaprpc.CodeInvalidParams, Message: "Invalid parameters: " + err.Error()}
	}
	export, err := blocktarget.ParseExport(p.Export)
	if err != nil {
		return nil, model.Refuse(syscall.EINVAL, "%v", err)
	}
	if e.hasBdev(p.Name) {
		return nil, model.Refuse(syscall.EEXIST, "bdev %s", p.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, targetOpenTimeout)
	defer cancel()
	d, err := blocktarget.OpenDevice(ctx, blocktarget.DeviceOptions{
		Address: p.Address, Export: p.Export, IOTimeout: e.opts.IOTimeout, Log: e.log,
	})
	if err != nil {
		return nil, refuseTarget(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := datapath.NewStore(d)
	if e.closed {
		s.Close()
		return nil, model.Refuse(syscall.ESHUTDOWN, "the service ends")
	}
	return e.addBdev(model.Bdev{
		Name: p.Name, Product: model.MoorTarget, BlockSize: 512, NumBlocks: d.Size() / 512, ReadOnly: p.ReadOnly || d.ReadOnly(),
		Target: &model.Target{Address: p.Address, Volume: export.Volume, Node: export.Node, Fingerprint: export.Fingerprint()},
	}, s)
}

func (e *Emulator) hasBdev(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.model.Bdev(name) != nil
}

// refuseTarget tells a refusal, which is final, from a target out of reach.
func refuseTarget(err error) error {
	if errors.Is(err, blocktarget.ErrDenied) {
		return model.Refuse(syscall.EACCES, "%v", err)
	}
	return model.Refuse(syscall.EHOSTUNREACH, "%v", err)
}

// rescanParams are what the methods that look at a bdev again are asked for.
type rescanParams struct {
	Name string `json:"name" snap:"must"`
}

// aioRescan looks at the size of the file behind a bdev again.
func aioRescan(_ context.Context, e *Emulator, p rescanParams) (any, error) {
	s := e.stores[p.Name]
	if s == nil {
		return nil, model.Refuse(syscall.ENODEV, "bdev %s", p.Name)
	}
	file, ok := s.Backing().(datapath.FileBacking)
	if !ok {
		return nil, model.Refuse(syscall.ENODEV, "bdev %s", p.Name)
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, refuseOpen(fmt.Errorf("find the size of the file behind %s: %w", p.Name, err))
	}
	return e.resized(p.Name, model.AIO, size)
}

// targetRescan asks the target for the size of a bdev's volume again, without
// the emulator's lock: a target that is out of reach must not hold up others.
func targetRescan(ctx context.Context, e *Emulator, raw json.RawMessage) (any, error) {
	p, err := wire.Decode[rescanParams](raw)
	if err != nil {
		return nil, &snaprpc.Error{Code: snaprpc.CodeInvalidParams, Message: "Invalid parameters: " + err.Error()}
	}
	device := e.targetDevice(p.Name)
	if device == nil {
		return nil, model.Refuse(syscall.ENODEV, "bdev %s", p.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, targetOpenTimeout)
	defer cancel()
	size, err := device.Refresh(ctx)
	if err != nil {
		return nil, refuseTarget(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.stores[p.Name]; s == nil || s.Backing() != datapath.Backing(device) {
		return nil, model.Refuse(syscall.ENODEV, "bdev %s", p.Name)
	}
	return e.resized(p.Name, model.MoorTarget, size)
}

// epochParams are what bdev_moor_target_epoch is asked for.
type epochParams struct {
	Name  string `json:"name" snap:"must"`
	Epoch int64  `json:"epoch" snap:"must"`
}

// targetEpoch opens a bdev's volume at its target under an epoch, without the
// emulator's lock: a target that is out of reach must not hold up others.
func targetEpoch(ctx context.Context, e *Emulator, raw json.RawMessage) (any, error) {
	p, err := wire.Decode[epochParams](raw)
	if err != nil {
		return nil, &snaprpc.Error{Code: snaprpc.CodeInvalidParams, Message: "Invalid parameters: " + err.Error()}
	}
	device := e.targetDevice(p.Name)
	if device == nil {
		return nil, model.Refuse(syscall.ENODEV, "bdev %s", p.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, targetOpenTimeout)
	defer cancel()
	if err := device.Raise(ctx, p.Epoch); err != nil {
		return nil, refuseTarget(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.stores[p.Name]; s == nil || s.Backing() != datapath.Backing(device) {
		return nil, model.Refuse(syscall.ENODEV, "bdev %s", p.Name)
	}
	return true, nil
}

// nullResize gives a bdev that keeps nothing another size, in MiB.
func nullResize(_ context.Context, e *Emulator, p struct {
	Name    string `json:"name" snap:"must"`
	NewSize int64  `json:"new_size" snap:"must"`
},
) (any, error) {
	return e.resized(p.Name, model.Null, p.NewSize<<20)
}

func (e *Emulator) targetDevice(name string) *blocktarget.Device {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.stores[name]; s != nil {
		device, _ := s.Backing().(*blocktarget.Device)
		return device
	}
	return nil
}

// resized gives a bdev the size of what is behind it, and with it the namespace
// over it: the host is told by the controller (NVMe's asynchronous event
// "namespace attribute changed") and looks at the size again by itself.
func (e *Emulator) resized(name, product string, bytes int64) (any, error) {
	if err := e.model.GrowBdev(name, product, bytes); err != nil {
		return nil, err
	}
	var failures error
	for _, s := range e.shown {
		if s.Namespace.Bdev.Name != name {
			continue
		}
		if err := s.Device.Resize(s.Namespace.Bdev.Size()); err != nil {
			failures = errors.Join(failures, err)
		}
	}
	if failures != nil {
		return nil, failures
	}
	return true, e.tree.Render(e.model, e.shown)
}
