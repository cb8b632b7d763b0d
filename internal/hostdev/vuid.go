package hostdev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// virtioVendor is Red Hat in the PCI id list, for virtio (virtio 1.3, 4.1.2).
const virtioVendor = "1af4"

// vuidOf is the VUID of a PCI function, for a virtual one that of its physical
// one, as SNAP tells it; "" if it has none that can be read.
func (f *Finder) vuidOf(addr string) string {
	path := f.device(addr, "vpd")
	if _, err := os.Lstat(f.device(addr, "physfn")); err == nil {
		path = f.device(addr, "physfn", "vpd")
	}
	r, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer r.Close()
	vuid, err := vpdVUID(r)
	if err != nil {
		return ""
	}
	return vuid
}

// locate returns the address on this host of the function that the DPU calls
// address. The DPU does not know the host's PCI domains: with a VUID it is the
// one function at that bus, device and function of any domain that has it.
// Without one, or where none can be read, the address counts as it is.
//
// ErrAbsent if the function there has another VUID, ErrAmbiguous if several
// functions could be meant: then none is touched.
func (f *Finder) locate(address, vuid string) (string, error) {
	addr, err := NormalizeAddress(address)
	if err != nil || vuid == "" {
		return addr, err
	}
	at, err := f.functions(func(a string) bool { return slot(a) == slot(addr) })
	if err != nil || len(at) == 0 {
		return addr, err
	}
	with, unread := f.claimants(at, vuid)
	switch {
	case len(with) == 1:
		return with[0], nil
	case len(with) > 1:
		return "", twice(with, vuid)
	case len(unread) > 1:
		return "", fmt.Errorf("PCI functions %s have no VUID that can be read, and the DPU shows the volume on one of them (VUID %s): %w",
			strings.Join(unread, ", "), vuid, ErrAmbiguous)
	case slices.Contains(unread, addr):
		return addr, nil
	}
	return "", fmt.Errorf("PCI function %s is not the one with VUID %s, on which the DPU shows the volume: %w", strings.Join(at, ", "), vuid, ErrAbsent)
}

// locateShared is locate for a function of virtio-fs, which is a physical one: its
// VUID names it alone, so that it is found also where a power cycle gave it
// another address.
func (f *Finder) locateShared(id Identity) (string, error) {
	addr, err := f.locate(id.Address, id.VUID)
	if id.VUID == "" || (err != nil && !errors.Is(err, ErrAbsent)) || (err == nil && f.vuidOf(addr) == id.VUID) {
		return addr, err
	}
	all, listErr := f.functions(func(a string) bool {
		vendor, err := readTrimmed(f.device(a, "vendor"))
		return err == nil && strings.TrimPrefix(vendor, "0x") == virtioVendor
	})
	if listErr != nil {
		return "", listErr
	}
	switch with, _ := f.claimants(all, id.VUID); {
	case len(with) == 1:
		return with[0], nil
	case len(with) > 1:
		return "", twice(with, id.VUID)
	}
	return addr, err
}

func twice(with []string, vuid string) error {
	return fmt.Errorf("PCI functions %s have the same VUID %s, on which the DPU shows the volume: %w", strings.Join(with, ", "), vuid, ErrAmbiguous)
}

// claimants returns which of the functions have the VUID, and which have none
// that can be read.
func (f *Finder) claimants(functions []string, vuid string) (with, unread []string) {
	for _, a := range functions {
		switch f.vuidOf(a) {
		case vuid:
			with = append(with, a)
		case "":
			unread = append(unread, a)
		}
	}
	return with, unread
}

// functions returns the addresses of the PCI functions that are meant, in order.
func (f *Finder) functions(meant func(addr string) bool) ([]string, error) {
	entries, err := os.ReadDir(f.Roots.sys("bus/pci/devices"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list PCI functions: %w", err)
	}
	var out []string
	for _, e := range entries {
		if meant(e.Name()) {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out, nil
}

// slot is an address in the kernel's form without its domain.
func slot(addr string) string {
	_, rest, _ := strings.Cut(addr, ":")
	return rest
}
