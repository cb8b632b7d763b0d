package hostdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	nvmeDriver = "nvme"
	// snapVendor is NVIDIA/Mellanox in the PCI id list.
	snapVendor = "15b3"
)

func (f *Finder) device(addr string, parts ...string) string {
	return f.Roots.sys(append([]string{"bus/pci/devices", addr}, parts...)...)
}

// Driver is the name of the driver that has the PCI function, empty if none
// has it; ErrAbsent if there is no such function.
func (f *Finder) Driver(addr string) (string, error) {
	if _, err := os.Stat(f.device(addr)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("there is no PCI function %s on this host: %w", addr, ErrAbsent)
		}
		return "", fmt.Errorf("look at PCI function %s: %w", addr, err)
	}
	link, err := os.Readlink(f.device(addr, "driver"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("driver of PCI function %s: %w", addr, err)
	}
	return filepath.Base(link), nil
}

// BindDriver gives the PCI function to driver, and takes it from another one
// first. driver_override makes the driver accept a function whose class it
// would not take by itself. A driver that is no part of the running kernel is
// loaded first, if Load is set. Repeating it is harmless.
func (f *Finder) BindDriver(ctx context.Context, addr, driver string) error {
	have, err := f.Driver(addr)
	if err != nil || have == driver {
		return err
	}
	return f.bind(ctx, addr, have, driver)
}

// bind takes the function from the driver that has it, if any, and gives it to driver.
func (f *Finder) bind(ctx context.Context, addr, have, driver string) error {
	if err := f.load(ctx, f.Roots.sys("bus/pci/drivers", driver), driver); err != nil {
		return fmt.Errorf("bind PCI function %s: %w", addr, err)
	}
	if have != "" {
		if err := writeAttr(f.device(addr, "driver/unbind"), addr); err != nil {
			return fmt.Errorf("take PCI function %s from driver %s: %w", addr, have, err)
		}
	}
	if err := writeAttr(f.device(addr, "driver_override"), driver); err != nil {
		return fmt.Errorf("reserve PCI function %s for driver %s: %w", addr, driver, err)
	}
	err := writeAttr(f.Roots.sys("bus/pci/drivers", driver, "bind"), addr)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("bind PCI function %s: driver %s is not loaded, run modprobe %s: %w", addr, driver, driver, err)
	}
	if now, lookErr := f.Driver(addr); err != nil && lookErr == nil && now == driver {
		return nil // the kernel gave it to the driver by itself, as to one that was just loaded
	}
	if err != nil {
		return fmt.Errorf("bind PCI function %s to driver %s: %w", addr, driver, err)
	}
	return nil
}

// writeAttr writes a sysfs attribute that has to exist already.
func writeAttr(path, value string) error {
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = w.WriteString(value)
	return errors.Join(err, w.Close())
}

// PhysicalFunctions are the addresses of the PCI functions of vendor 15b3
// with the device id given (hex without 0x, such as 6001 for SNAP NVMe) that
// are not virtual functions themselves, in order.
func (f *Finder) PhysicalFunctions(deviceID string) ([]string, error) {
	return f.functions(func(addr string) bool { return f.isPhysical(addr, deviceID) })
}

func (f *Finder) isPhysical(addr, deviceID string) bool {
	vendor, err := readTrimmed(f.device(addr, "vendor"))
	if err != nil || strings.TrimPrefix(vendor, "0x") != snapVendor {
		return false
	}
	id, err := readTrimmed(f.device(addr, "device"))
	if err != nil || strings.TrimPrefix(id, "0x") != strings.TrimPrefix(strings.ToLower(deviceID), "0x") {
		return false
	}
	_, err = os.Lstat(f.device(addr, "physfn"))
	return errors.Is(err, fs.ErrNotExist)
}

// VirtualFunctions is how many virtual functions exist on the physical
// functions with the device id given: what a node can hold of volumes that use
// one each. 0 if there is no such function.
func (f *Finder) VirtualFunctions(deviceID string) (int64, error) {
	pfs, err := f.PhysicalFunctions(deviceID)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, pf := range pfs {
		n, err := readInt(f.device(pf, "sriov_numvfs"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("virtual functions of %s: %w", pf, err)
		}
		sum += n
	}
	return sum, nil
}

// Prepare gets the host ready: it binds the nvme driver to every physical
// function with the device id given and, if createVFs is set, makes all their
// virtual functions where none exist. Another number of them than the greatest
// is kept: they may be in use. Repeating it is harmless.
func (f *Finder) Prepare(ctx context.Context, deviceID string, createVFs bool) error {
	pfs, err := f.PhysicalFunctions(deviceID)
	if err != nil {
		return err
	}
	for _, pf := range pfs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f.BindDriver(ctx, pf, nvmeDriver); err != nil {
			return err
		}
		if !createVFs {
			continue
		}
		if err := f.createVFs(pf); err != nil {
			return err
		}
	}
	return nil
}

func (f *Finder) createVFs(pf string) error {
	total, err := readInt(f.device(pf, "sriov_totalvfs"))
	if errors.Is(err, fs.ErrNotExist) || (err == nil && total == 0) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("greatest number of virtual functions of %s: %w", pf, err)
	}
	have, err := readInt(f.device(pf, "sriov_numvfs"))
	if err != nil {
		return fmt.Errorf("virtual functions of %s: %w", pf, err)
	}
	if have != 0 {
		return nil
	}
	// Without it each new function would be probed before the DPU has put
	// anything behind it; kernels before 4.13 do not have the attribute.
	_ = writeAttr(f.device(pf, "sriov_drivers_autoprobe"), "0")
	if err := writeAttr(f.device(pf, "sriov_numvfs"), fmt.Sprint(total)); err != nil {
		return fmt.Errorf("make %d virtual functions of %s: %w", total, pf, err)
	}
	return nil
}
