package snapemulator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"syscall"

	"github.com/moor-storage/moor/reference/snapemulator/hosttree"
	"github.com/moor-storage/moor/reference/snapemulator/model"
	"github.com/moor-storage/moor/reference/snapemulator/wire"
)

func nvmeMethods() map[string]handler {
	return map[string]handler{
		"nvme_subsystem_create":     method(subsystemCreate),
		"nvme_subsystem_destroy":    method(subsystemDestroy),
		"nvme_subsystem_list":       method(subsystemList),
		"nvme_namespace_create":     method(namespaceCreate),
		"nvme_namespace_destroy":    method(namespaceDestroy),
		"nvme_namespace_list":       method(namespaceList),
		"nvme_controller_create":    method(controllerCreate),
		"nvme_controller_destroy":   method(controllerDestroy),
		"nvme_controller_list":      method(controllerList),
		"nvme_controller_attach_ns": method(attachNS),
		"nvme_controller_detach_ns": method(detachNS),
		"nvme_controller_suspend":   method(suspend),
		"nvme_controller_resume":    method(resume),
		"emulation_function_list":   method(functionList),
	}
}

func subsystemCreate(_ context.Context, e *Emulator, p struct {
	NQN          string `json:"nqn" snap:"must"`
	SerialNumber string `json:"serial_number"`
	ModelNumber  string `json:"model_number"`
	NN           uint64 `json:"nn"`
	MNAN         uint64 `json:"mnan"`
},
) (any, error) {
	err := e.model.CreateSubsystem(model.SubsystemSpec{
		NQN: p.NQN, SerialNumber: p.SerialNumber,
		ModelNumber: p.ModelNumber, NN: p.NN, MNAN: p.MNAN,
	})
	return map[string]string{"nqn": p.NQN}, err
}

func subsystemDestroy(ctx context.Context, e *Emulator, p struct {
	NQN   string `json:"nqn" snap:"must"`
	Force bool   `json:"force"`
},
) (any, error) {
	return e.changed(ctx, e.model.DestroySubsystem(p.NQN, p.Force))
}

func subsystemList(_ context.Context, e *Emulator, _ none) (any, error) {
	return wire.SubsystemsOf(e.model), nil
}

func namespaceCreate(_ context.Context, e *Emulator, p struct {
	NQN          string `json:"nqn" snap:"must"`
	BdevName     string `json:"bdev_name" snap:"must"`
	NSID         uint64 `json:"nsid" snap:"must"`
	UUID         string `json:"uuid"`
	BdevType     string `json:"bdev_type"`
	EUI64        string `json:"eui64"`
	NGUID        string `json:"nguid"`
	ForceInOrder bool   `json:"force_in_order"`
},
) (any, error) {
	return true, e.model.CreateNamespace(model.NamespaceSpec{
		NQN: p.NQN, Bdev: p.BdevName,
		NSID: p.NSID, UUID: p.UUID, Type: p.BdevType,
	})
}

func namespaceDestroy(_ context.Context, e *Emulator, p struct {
	NQN  string `json:"nqn" snap:"must"`
	NSID uint64 `json:"nsid" snap:"must"`
},
) (any, error) {
	for _, s := range e.model.Subsystems {
		for _, ns := range s.Namespaces {
			if s.NQN != p.NQN || ns.NSID != p.NSID {
				continue
			}
			if err := e.stores[ns.Bdev.Name].Settled(); err != nil {
				return nil, err
			}
		}
	}
	return true, e.model.DestroyNamespace(p.NQN, p.NSID)
}

func namespaceList(_ context.Context, e *Emulator, p struct {
	NQN string `json:"nqn"`
},
) (any, error) {
	out := []any{}
	found := p.NQN == ""
	for _, s := range e.model.Subsystems {
		if p.NQN != "" && s.NQN != p.NQN {
			continue
		}
		found = true
		for _, ns := range s.Namespaces {
			out = append(out, wire.NamespaceOf(ns))
		}
	}
	if !found {
		return nil, model.Refuse(syscall.ENOENT, "subsystem %s", p.NQN)
	}
	return out, nil
}

// controllerParams are those of nvme_controller_create. The last group is
// accepted and changes nothing here.
type controllerParams struct {
	NQN       string `json:"nqn" snap:"must"`
	CtrlID    string `json:"ctrl_id"`
	PCIBDF    string `json:"pci_bdf"`
	VUID      string `json:"vuid"`
	PFID      *int   `json:"pf_id"`
	VFID      *int   `json:"vf_id"`
	Suspended bool   `json:"suspended"`
	AdminOnly bool   `json:"admin_only"`
	NumQueues int    `json:"num_queues"`
	MDTS      int    `json:"mdts"`

	FWSlots       int             `json:"fw_slots"`
	WriteZeroes   bool            `json:"write_zeroes"`
	Compare       bool            `json:"compare"`
	CompareWrite  bool            `json:"compare_write"`
	DeallocateDSM bool            `json:"deallocate_dsm"`
	Snapshot      bool            `json:"snapshot"`
	DynamicMSIX   bool            `json:"dynamic_msix"`
	VFNumMSIX     int             `json:"vf_num_msix"`
	Quirks        json.RawMessage `json:"quirks"`
}

func controllerCreate(ctx context.Context, e *Emulator, p controllerParams) (any, error) {
	c, err := e.model.CreateController(model.ControllerSpec{
		NQN: p.NQN, Name: p.CtrlID, BDF: p.PCIBDF, VUID: p.VUID,
		PFID: p.PFID, VFID: p.VFID, Suspended: p.Suspended, AdminOnly: p.AdminOnly, NumQueues: p.NumQueues, MDTS: p.MDTS,
	})
	if err != nil {
		return nil, err
	}
	_, err = e.changed(ctx, nil)
	return wire.ControllerOf(c), err
}

func controllerDestroy(ctx context.Context, e *Emulator, p struct {
	CtrlID      string `json:"ctrl_id" snap:"must"`
	Force       bool   `json:"force"`
	ReleaseMSIX bool   `json:"release_msix"`
},
) (any, error) {
	return e.changed(ctx, e.model.DestroyController(p.CtrlID, p.Force))
}

func controllerList(_ context.Context, e *Emulator, p struct {
	NQN    string `json:"nqn"`
	CtrlID string `json:"ctrl_id"`
},
) (any, error) {
	all := slices.DeleteFunc(e.model.Controllers(), func(c *model.Controller) bool {
		return (p.NQN != "" && c.Subsystem.NQN != p.NQN) || (p.CtrlID != "" && c.ID != p.CtrlID)
	})
	return wire.ControllersOf(all), nil
}

// ctrlNS names a controller and a namespace of its subsystem.
type ctrlNS struct {
	CtrlID string `json:"ctrl_id" snap:"must"`
	NSID   uint64 `json:"nsid" snap:"must"`
}

func attachNS(ctx context.Context, e *Emulator, p ctrlNS) (any, error) {
	if err := e.model.AttachNamespace(p.CtrlID, p.NSID); err != nil {
		return nil, err
	}
	out, err := e.changed(ctx, nil)
	if err != nil {
		// The device could not be made: leave things as they were.
		return nil, errors.Join(err, e.model.DetachNamespace(p.CtrlID, p.NSID))
	}
	return out, nil
}

// detachNS fences before it changes anything: a namespace whose last writes may
// arrive at a target out of reach stays attached, dead to the host, until they
// cannot, since the answer to a detach is a receipt.
func detachNS(ctx context.Context, e *Emulator, p ctrlNS) (any, error) {
	for _, s := range e.shown {
		if s.Namespace.NSID == p.NSID && s.Namespace.Controller.ID == p.CtrlID {
			e.fence([]*hosttree.Shown{s})
			if err := e.stores[s.Namespace.Bdev.Name].Settled(); err != nil {
				return nil, err
			}
		}
	}
	return e.changed(ctx, e.model.DetachNamespace(p.CtrlID, p.NSID))
}

func suspend(ctx context.Context, e *Emulator, p struct {
	CtrlID    string `json:"ctrl_id" snap:"must"`
	TimeoutMS int    `json:"timeout_ms"`
	Force     bool   `json:"force"`
	AdminOnly bool   `json:"admin_only"`
},
) (any, error) {
	return e.changed(ctx, e.model.Suspend(p.CtrlID))
}

func resume(ctx context.Context, e *Emulator, p struct {
	CtrlID string `json:"ctrl_id" snap:"must"`
},
) (any, error) {
	return e.changed(ctx, e.model.Resume(p.CtrlID))
}

func functionList(_ context.Context, e *Emulator, _ struct {
	All bool `json:"all"`
},
) (any, error) {
	return wire.FunctionsOf(e.model), nil
}
