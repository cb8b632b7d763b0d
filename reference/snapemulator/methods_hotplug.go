package snapemulator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"syscall"
	"time"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/snapemulator/model"
	"github.com/moor-storage/moor/reference/snapemulator/wire"
)

// snapHotplug is the newer family of methods: a function is made, gets its
// controller while the host does not see it, and is plugged in then.
func snapHotplug() map[string]handler {
	return map[string]handler{
		"nvme_function_create":      method(functionCreate),
		"nvme_function_destroy":     method(functionDestroy),
		"nvme_controller_hotplug":   plugMethod((*model.Model).PlugController),
		"nvme_controller_hotunplug": plugMethod((*model.Model).UnplugController),
	}
}

// legacyHotplug is the older family: a function is plugged in as it is made.
func legacyHotplug() map[string]handler {
	return map[string]handler{
		"nvme_emulation_device_attach":    method(deviceAttach),
		"emulation_device_detach_prepare": method(deviceDetachPrepare),
		"emulation_device_detach":         method(deviceDetach),
	}
}

// methods returns those of the families offered; none without a port.
func (h Hotplug) methods() map[string]handler {
	all := map[string]handler{}
	if h.Slots > 0 && h.Family != FamilyLegacy {
		maps.Copy(all, snapHotplug())
	}
	if h.Slots > 0 && h.Family != FamilySNAP {
		maps.Copy(all, legacyHotplug())
	}
	return all
}

func functionCreate(ctx context.Context, e *Emulator, _ none) (any, error) {
	f, err := e.model.CreateFunction(false)
	if err != nil {
		return nil, err
	}
	_, err = e.replugged(ctx)
	return map[string]any{"vuid": f.VUID, "vhca_id": f.VHCAID}, err
}

func functionDestroy(ctx context.Context, e *Emulator, p struct {
	VUID string `json:"vuid" snap:"must"`
},
) (any, error) {
	if err := e.model.DestroyFunction(p.VUID, false); err != nil {
		return nil, err
	}
	return e.replugged(ctx)
}

// deviceAttach takes the properties of the PCI function too, which change
// nothing here.
func deviceAttach(ctx context.Context, e *Emulator, p struct {
	Protocol string          `json:"protocol" snap:"must"`
	ID       json.RawMessage `json:"id"`
	VID      json.RawMessage `json:"vid"`
	SSID     json.RawMessage `json:"ssid"`
	SSVID    json.RawMessage `json:"ssvid"`
},
) (any, error) {
	if p.Protocol != "nvme" {
		return nil, model.Refuse(syscall.EINVAL, "protocol %q, only nvme is known here", p.Protocol)
	}
	f, err := e.model.CreateFunction(true)
	if err != nil {
		return nil, err
	}
	_, err = e.replugged(ctx)
	return map[string]any{"vuid": f.VUID}, err
}

func deviceDetachPrepare(ctx context.Context, e *Emulator, p struct {
	VUID string `json:"vuid" snap:"must"`
},
) (any, error) {
	if err := e.model.PullFunction(p.VUID); err != nil {
		return nil, err
	}
	return e.replugged(ctx)
}

func deviceDetach(ctx context.Context, e *Emulator, p struct {
	VUID  string `json:"vuid" snap:"must"`
	Force bool   `json:"force"`
},
) (any, error) {
	if err := e.model.DestroyFunction(p.VUID, p.Force); err != nil {
		return nil, err
	}
	return e.replugged(ctx)
}

// plugParams are those of nvme_controller_hotplug and _hotunplug; timeout is in
// milliseconds.
type plugParams struct {
	CtrlID      string `json:"ctrl_id" snap:"must"`
	WaitForDone bool   `json:"wait_for_done"`
	Timeout     int    `json:"timeout"`
}

// plugMethod makes a handler of act that, if asked to, answers only when the
// host has done its part. The emulator goes on meanwhile.
func plugMethod(act func(*model.Model, string) (*model.Function, error)) handler {
	return func(ctx context.Context, e *Emulator, raw json.RawMessage) (any, error) {
		p, err := wire.Decode[plugParams](raw)
		if err != nil {
			return nil, invalidParams(err)
		}
		if p.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(p.Timeout)*time.Millisecond)
			defer cancel()
		}
		return e.plug(ctx, p.WaitForDone, func() (*model.Function, error) { return act(e.model, p.CtrlID) })
	}
}

func invalidParams(err error) error {
	return &snaprpc.Error{Code: snaprpc.CodeInvalidParams, Message: "Invalid parameters: " + err.Error()}
}

// plug runs act, which begins to plug in a function or to take it out, and waits
// for the host if it is to.
func (e *Emulator) plug(ctx context.Context, wait bool, act func() (*model.Function, error)) (any, error) {
	e.mu.Lock()
	f, err := act()
	if err == nil {
		_, err = e.replugged(ctx)
	}
	e.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if wait {
		err = e.awaitHost(ctx, f)
	}
	return true, err
}

// setHost says whether the host answers to its PCI switch: one that hangs lets
// go of nothing, and enumerates nothing.
func setHost(ctx context.Context, e *Emulator, p struct {
	Answers bool `json:"answers" snap:"must"`
},
) (any, error) {
	e.deaf = !p.Answers
	return e.replugged(ctx)
}

// awaitHost returns when the host has enumerated f, or let go of it.
func (e *Emulator) awaitHost(ctx context.Context, f *model.Function) error {
	for {
		e.mu.Lock()
		done, again, closed := f.Plug == model.PlugOn || f.Plug == model.PlugOff, e.plugged, e.closed
		e.mu.Unlock()
		if done {
			return nil
		}
		if closed {
			return fmt.Errorf("the service ends")
		}
		select {
		case <-again:
		case <-ctx.Done():
			return model.Refuse(syscall.ETIMEDOUT, "the host has not answered for function %s", f.VUID)
		}
	}
}
