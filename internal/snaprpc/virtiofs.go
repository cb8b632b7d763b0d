package snaprpc

import (
	"context"
	"fmt"
	"hash/fnv"
)

// The states that virtio-fs transports and devices are listed in.
const (
	TransportStarted = "started"
	FSDeviceRunning  = "running"
)

// FSTransport is one element of virtio_fs_get_transports.
type FSTransport struct {
	Name  string `json:"name"`
	State string `json:"state"`
}

// FSManager is a device of the DPU that can manage emulated functions.
type FSManager struct {
	Name string `json:"name"`
}

// FSFunction is an emulated function of virtio-fs.
type FSFunction struct {
	// PCIAddress is "bb:dd.f" without a domain, or PendingBDF.
	PCIAddress string `json:"pci_address"`
	VUID       string `json:"vuid"`
	// Manager is the one that lists it.
	Manager string `json:"-"`
}

// FSDevice is one element of virtio_fs_get_devices, which does not tell the
// function of a device.
type FSDevice struct {
	Name      string `json:"name"`
	Transport string `json:"transport_name"`
	State     string `json:"state"`
	FSDev     string `json:"fsdev"`
	Tag       string `json:"tag"`
}

// FSDeviceSpec is what virtio_fs_device_create is asked for.
type FSDeviceSpec struct {
	Transport string `json:"transport_name"`
	Name      string `json:"dev_name"`
	// Tag is what the host mounts: 36 bytes at most.
	Tag   string `json:"tag"`
	FSDev string `json:"fsdev"`
	// Queues is the number of request queues, QueueSize that of their
	// entries.
	Queues    int64 `json:"num_request_queues"`
	QueueSize int64 `json:"queue_size"`
	// Platform of the host's driver, "x86_64".
	Platform string `json:"driver_platform"`
}

// FSDev is a directory of the DPU that a virtio-fs device can show.
type FSDev struct {
	Name   string `json:"name"`
	Module struct {
		RootPath string `json:"root_path"`
	} `json:"module_specific"`
}

// FSDevName is the name that DPF's nvidia-fs gives the fsdev of a volume: names
// of fsdevs are short, so it is the volume's FNV-1a-64, 16 hexadecimal digits.
func FSDevName(volumeID string) string {
	h := fnv.New64a()
	h.Write([]byte(volumeID)) // never fails, hash.Hash
	return fmt.Sprintf("%016x", h.Sum64())
}

// FsdevGetFsdevs returns every fsdev. Not every SPDK has the method.
func (c *Client) FsdevGetFsdevs(ctx context.Context) ([]FSDev, error) {
	var out []FSDev
	err := c.Call(ctx, "fsdev_get_fsdevs", nil, &out)
	return out, err
}

// FsdevAioCreate makes an fsdev of a directory. Every refusal has the code
// CodeInternal.
func (c *Client) FsdevAioCreate(ctx context.Context, name, rootPath string) error {
	return c.Call(ctx, "fsdev_aio_create", params{"name": name, "root_path": rootPath}, nil)
}

// FsdevAioDelete removes an fsdev; the directory stays.
func (c *Client) FsdevAioDelete(ctx context.Context, name string) error {
	return c.Call(ctx, "fsdev_aio_delete", params{"name": name}, nil)
}

// VirtioFSTransports returns the transports there are.
func (c *Client) VirtioFSTransports(ctx context.Context) ([]FSTransport, error) {
	var out []FSTransport
	err := c.Call(ctx, "virtio_fs_get_transports", nil, &out)
	return out, err
}

// VirtioFSTransportCreate makes a transport, which does not serve yet.
func (c *Client) VirtioFSTransportCreate(ctx context.Context, name string) error {
	return c.Call(ctx, "virtio_fs_transport_create", params{"transport_name": name}, nil)
}

// VirtioFSTransportStart lets a transport serve.
func (c *Client) VirtioFSTransportStart(ctx context.Context, name string) error {
	return c.Call(ctx, "virtio_fs_transport_start", params{"transport_name": name}, nil)
}

// VirtioFSPossibleManagers returns the managers that can be made.
func (c *Client) VirtioFSPossibleManagers(ctx context.Context) ([]FSManager, error) {
	var out []FSManager
	err := c.Call(ctx, "virtio_fs_doca_get_possible_managers", nil, &out)
	return out, err
}

// VirtioFSManagers returns the managers that were made.
func (c *Client) VirtioFSManagers(ctx context.Context) ([]FSManager, error) {
	var out []FSManager
	err := c.Call(ctx, "virtio_fs_doca_get_managers", nil, &out)
	return out, err
}

// VirtioFSManagerCreate makes a manager.
func (c *Client) VirtioFSManagerCreate(ctx context.Context, name string) error {
	return c.Call(ctx, "virtio_fs_doca_manager_create", params{"manager": name}, nil)
}

// VirtioFSFunctions returns the functions of all managers.
func (c *Client) VirtioFSFunctions(ctx context.Context) ([]FSFunction, error) {
	var lists []struct {
		Manager string `json:"manager"`
		// Functions has a blank in its key on the wire.
		Functions []FSFunction `json:"Function List"`
	}
	err := c.Call(ctx, "virtio_fs_doca_get_functions", nil, &lists)
	var out []FSFunction
	for _, l := range lists {
		for _, f := range l.Functions {
			f.Manager = l.Manager
			out = append(out, f)
		}
	}
	return out, err
}

// VirtioFSFunctionCreate makes a function, which the host does not see until
// its device is plugged in, and returns its VUID. Refused (ENOSPC) when every
// port of the PCI switch is taken.
func (c *Client) VirtioFSFunctionCreate(ctx context.Context, manager string) (string, error) {
	var vuid string
	if err := c.Call(ctx, "virtio_fs_doca_function_create", params{"manager": manager}, &vuid); err != nil {
		return "", err
	}
	if vuid == "" {
		return "", fmt.Errorf("make a virtio-fs function: %w: the answer is no vuid", ErrUnavailable)
	}
	return vuid, nil
}

// VirtioFSFunctionDestroy removes a function that is not plugged in and that no
// device has.
func (c *Client) VirtioFSFunctionDestroy(ctx context.Context, manager, vuid string) error {
	return c.Call(ctx, "virtio_fs_doca_function_destroy", params{"manager": manager, "vuid": vuid}, nil)
}

// VirtioFSDevices returns every virtio-fs device.
func (c *Client) VirtioFSDevices(ctx context.Context) ([]FSDevice, error) {
	var out []FSDevice
	err := c.Call(ctx, "virtio_fs_get_devices", nil, &out)
	return out, err
}

// VirtioFSDeviceCreate makes a device, which has no function yet. Refused
// (ENODEV) without its fsdev, (EEXIST) if name or tag is taken.
func (c *Client) VirtioFSDeviceCreate(ctx context.Context, spec FSDeviceSpec) error {
	return c.Call(ctx, "virtio_fs_device_create", spec, nil)
}

// VirtioFSDeviceModify gives a device its function; refused (EBUSY) while it
// runs, or if another device has the function.
func (c *Client) VirtioFSDeviceModify(ctx context.Context, name, manager, vuid string) error {
	return c.Call(ctx, "virtio_fs_doca_device_modify", params{"dev_name": name, "manager": manager, "vuid": vuid}, nil)
}

// VirtioFSDeviceStart lets a device serve.
func (c *Client) VirtioFSDeviceStart(ctx context.Context, name string) error {
	return c.Call(ctx, "virtio_fs_device_start", params{"dev_name": name}, nil)
}

// VirtioFSDeviceStop ends a device's service: when it returns nil no I/O of the
// host is accepted any more. Refused (EBUSY) while the host has its function.
func (c *Client) VirtioFSDeviceStop(ctx context.Context, name string) error {
	return c.Call(ctx, "virtio_fs_device_stop", params{"dev_name": name}, nil)
}

// VirtioFSDeviceDestroy removes a device that does not run.
func (c *Client) VirtioFSDeviceDestroy(ctx context.Context, name string) error {
	return c.Call(ctx, "virtio_fs_device_destroy", params{"dev_name": name}, nil)
}

// VirtioFSDeviceHotplug begins to plug the device's function into the host, and
// does not wait for the host, which may be off or hang.
func (c *Client) VirtioFSDeviceHotplug(ctx context.Context, name string) error {
	return c.Call(ctx, "virtio_fs_doca_device_hotplug", params{"dev_name": name, "wait_for_done": false}, nil)
}

// VirtioFSDeviceHotunplug begins to take the device's function out of the host,
// and does not wait for it either. Refused (EINVAL) if it is out already.
func (c *Client) VirtioFSDeviceHotunplug(ctx context.Context, name string) error {
	return c.Call(ctx, "virtio_fs_doca_device_hotunplug", params{"dev_name": name, "wait_for_done": false}, nil)
}
