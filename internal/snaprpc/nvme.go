package snaprpc

import (
	"context"
	"fmt"
)

type params map[string]any

// NvmeSubsystemList returns every subsystem with its namespaces and
// controllers, in the service's order.
func (c *Client) NvmeSubsystemList(ctx context.Context) ([]Subsystem, error) {
	var out []Subsystem
	err := c.Call(ctx, "nvme_subsystem_list", nil, &out)
	return out, err
}

// NvmeSubsystemCreate makes a subsystem, with the NQN as its only property.
// One that is there already is an error: list first.
func (c *Client) NvmeSubsystemCreate(ctx context.Context, nqn string) error {
	return c.Call(ctx, "nvme_subsystem_create", params{"nqn": nqn}, nil)
}

// NvmeSubsystemDestroy removes a subsystem. Without force the service refuses
// while controllers or namespaces are in it; with force they go too.
func (c *Client) NvmeSubsystemDestroy(ctx context.Context, nqn string, force bool) error {
	p := params{"nqn": nqn}
	set(p, "force", true, force)
	return c.Call(ctx, "nvme_subsystem_destroy", p, nil)
}

// NvmeNamespaceCreate makes a namespace of a bdev. Refused (EEXIST) if the
// NSID is taken in the subsystem, (EBUSY) if the bdev is claimed.
func (c *Client) NvmeNamespaceCreate(ctx context.Context, spec NamespaceSpec) error {
	if spec.BdevType == "" {
		spec.BdevType = "spdk"
	}
	return c.Call(ctx, "nvme_namespace_create", spec, nil)
}

// NvmeNamespaceDestroy removes a namespace; refused while it is attached.
func (c *Client) NvmeNamespaceDestroy(ctx context.Context, nqn string, nsid int64) error {
	return c.Call(ctx, "nvme_namespace_destroy", params{"nqn": nqn, "nsid": nsid}, nil)
}

// EmulationFunctionList returns every emulated physical function with its
// virtual functions.
func (c *Client) EmulationFunctionList(ctx context.Context) ([]Function, error) {
	var out []Function
	err := c.Call(ctx, "emulation_function_list", params{"all": true}, &out)
	return out, err
}

// NvmeFunctionCreate makes a hot-plug function, which the host does not see
// until its controller is plugged in, and returns its VUID. Refused (ENOSPC)
// when every port of the PCI switch is taken.
func (c *Client) NvmeFunctionCreate(ctx context.Context) (string, error) {
	return c.newFunction(ctx, "nvme_function_create", nil)
}

// NvmeFunctionDestroy removes a hot-plug function that has no controller and is
// not plugged in.
func (c *Client) NvmeFunctionDestroy(ctx context.Context, vuid string) error {
	return c.Call(ctx, "nvme_function_destroy", params{"vuid": vuid}, nil)
}

// NvmeControllerHotplug begins to plug the controller's function into the host.
// It does not wait for the host, which may be off or hang: the function shows
// its PCI address once the host has enumerated it.
func (c *Client) NvmeControllerHotplug(ctx context.Context, ctrlID string) error {
	return c.Call(ctx, "nvme_controller_hotplug", params{"ctrl_id": ctrlID, "wait_for_done": false}, nil)
}

// NvmeControllerHotunplug begins to take the controller's function out of the
// host, and does not wait for it either.
func (c *Client) NvmeControllerHotunplug(ctx context.Context, ctrlID string) error {
	return c.Call(ctx, "nvme_controller_hotunplug", params{"ctrl_id": ctrlID, "wait_for_done": false}, nil)
}

// NvmeEmulationDeviceAttach is the older way: the function is plugged in as it
// is made. It returns the VUID.
func (c *Client) NvmeEmulationDeviceAttach(ctx context.Context) (string, error) {
	return c.newFunction(ctx, "nvme_emulation_device_attach", params{"protocol": "nvme"})
}

// EmulationDeviceDetachPrepare begins to take a function out of the host, the
// older way.
func (c *Client) EmulationDeviceDetachPrepare(ctx context.Context, vuid string) error {
	return c.Call(ctx, "emulation_device_detach_prepare", params{"vuid": vuid}, nil)
}

// EmulationDeviceDetach removes a function that has no controller, the older
// way; with force also one that the host has not let go of.
func (c *Client) EmulationDeviceDetach(ctx context.Context, vuid string, force bool) error {
	p := params{"vuid": vuid}
	set(p, "force", true, force)
	return c.Call(ctx, "emulation_device_detach", p, nil)
}

func (c *Client) newFunction(ctx context.Context, method string, p any) (string, error) {
	var out struct {
		VUID string `json:"vuid"`
	}
	if err := c.Call(ctx, method, p, &out); err != nil {
		return "", err
	}
	if out.VUID == "" {
		return "", fmt.Errorf("make a hot-plug function: %w: the answer carries no vuid", ErrUnavailable)
	}
	return out.VUID, nil
}

// NvmeControllerCreate makes a controller on a function and returns its id.
func (c *Client) NvmeControllerCreate(ctx context.Context, spec ControllerSpec) (string, error) {
	var out struct {
		CtrlID string `json:"ctrl_id"`
	}
	if err := c.Call(ctx, "nvme_controller_create", spec.wire(), &out); err != nil {
		return "", err
	}
	if out.CtrlID == "" {
		return "", fmt.Errorf("create a controller in %s: %w: the answer carries no ctrl_id", spec.NQN, ErrUnavailable)
	}
	return out.CtrlID, nil
}

// NvmeControllerDestroy removes a controller. With force, attached namespaces
// are detached first.
func (c *Client) NvmeControllerDestroy(ctx context.Context, ctrlID string, force bool) error {
	p := params{"ctrl_id": ctrlID}
	set(p, "force", true, force)
	return c.Call(ctx, "nvme_controller_destroy", p, nil)
}

// NvmeControllerAttachNS shows a namespace of the controller's subsystem
// through it. A namespace has one controller at most.
func (c *Client) NvmeControllerAttachNS(ctx context.Context, ctrlID string, nsid int64) error {
	return c.Call(ctx, "nvme_controller_attach_ns", params{"nsid": nsid, "ctrl_id": ctrlID}, nil)
}

// NvmeControllerDetachNS takes a namespace away from the host. When it returns
// nil, the I/O in flight has ended and no further I/O is accepted.
func (c *Client) NvmeControllerDetachNS(ctx context.Context, ctrlID string, nsid int64) error {
	return c.Call(ctx, "nvme_controller_detach_ns", params{"nsid": nsid, "ctrl_id": ctrlID}, nil)
}

// NvmeControllerResume lets a suspended controller serve the host.
func (c *Client) NvmeControllerResume(ctx context.Context, ctrlID string) error {
	return c.Call(ctx, "nvme_controller_resume", params{"ctrl_id": ctrlID}, nil)
}

// NvmeControllerSuspend stops a controller from serving the host. It sends no
// timeout: on hardware a timed-out suspend kills the device.
func (c *Client) NvmeControllerSuspend(ctx context.Context, ctrlID string) error {
	return c.Call(ctx, "nvme_controller_suspend", params{"ctrl_id": ctrlID}, nil)
}
