package snapemulator

import (
	"context"
	"encoding/json"
	"errors"
	"syscall"
	"time"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/snapemulator/model"
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
	p, err := decodeParams[targetParams](raw)
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
	s := &store{Backing: d, closer: d}
	if e.closed {
		s.close()
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
