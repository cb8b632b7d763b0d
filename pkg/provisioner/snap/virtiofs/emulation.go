// Package virtiofs shows fsdevs to the host as virtio-fs devices on hot-plugged
// functions, and takes them away. The service does not tell which function a
// device has: that is remembered, or on record, and a device of which it is not
// known is made anew.
package virtiofs

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

// Emulation is the emulation of virtio-fs by one service.
type Emulation struct {
	*service.Service
	// given is which function this process gave each device.
	given given
}

// New makes it.
func New(s *service.Service) *Emulation { return &Emulation{Service: s} }

// Functions counts the functions that there are.
func (d *Emulation) Functions(ctx context.Context) (int, error) {
	s, err := d.sharing(ctx)
	return len(s.functions), err
}

// The names of what is made for a file system are DPF's, so that either finds
// what the other left.
const (
	transport  = "DOCA"
	devicePart = "dev_"
	tagPart    = "tag"
)

// maxName is the longest name of an fsdev in bytes: the service names memory
// pools for the device, and names over 21 bytes are cut there.
const maxName = 21 - len(devicePart)

// SparePrefix begins the name under which List tells of a virtio-fs function
// that no device has; its VUID follows.
const SparePrefix = "virtiofs-function:"

// given remembers which function each virtio-fs device was given. What it says
// may be over: it is believed of functions that the service lists.
type given struct {
	mu   sync.Mutex
	vuid map[string]string
}

func (g *given) get(device string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.vuid[device]
}

// set remembers the function of a device; "" forgets it.
func (g *given) set(device, vuid string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.vuid == nil {
		g.vuid = map[string]string{}
	}
	if g.vuid[device] = vuid; vuid == "" {
		delete(g.vuid, device)
	}
}

// sharing is what the service lists of virtio-fs.
type sharing struct {
	devices   []snaprpc.FSDevice
	functions []snaprpc.FSFunction
}

// sharing reads it; a service without virtio-fs has nothing.
func (d *Emulation) sharing(ctx context.Context) (s sharing, err error) {
	s.devices, err = d.RPC.VirtioFSDevices(ctx)
	if snaprpc.IsMethodNotFound(err) {
		return sharing{}, nil
	}
	if err != nil {
		return s, service.Explain(err, service.Unread, "list the virtio-fs devices")
	}
	s.functions, err = d.RPC.VirtioFSFunctions(ctx)
	return s, service.Explain(err, service.Unread, "list the virtio-fs functions")
}

// device returns the virtio-fs device of an fsdev: the one made here, or else
// whichever shows it.
func (s sharing) device(fsdev string) *snaprpc.FSDevice {
	var found *snaprpc.FSDevice
	for i := range s.devices {
		if v := &s.devices[i]; v.FSDev == fsdev && (found == nil || v.Name == devicePart+fsdev) {
			found = v
		}
	}
	return found
}

func (s sharing) function(vuid string) (snaprpc.FSFunction, bool) {
	for _, f := range s.functions {
		if vuid != "" && f.VUID == vuid {
			return f, true
		}
	}
	return snaprpc.FSFunction{}, false
}

// functionAt returns the function that the host has at a PCI address.
func (s sharing) functionAt(address string) (snaprpc.FSFunction, bool) {
	for _, f := range s.functions {
		if address != "" && !pending(f) && service.Bare(f.PCIAddress) == service.Bare(address) {
			return f, true
		}
	}
	return snaprpc.FSFunction{}, false
}

// functionFor returns the function that a device was given, as far as that is
// known: by this process, or on record by VUID or, from before VUIDs were
// recorded, by PCI address.
func (d *Emulation) functionFor(s sharing, device, vuid, address string) (snaprpc.FSFunction, bool) {
	if mine := d.given.get(device); mine != "" {
		return s.function(mine)
	}
	if vuid != "" {
		return s.function(vuid)
	}
	return s.functionAt(address)
}

func pending(f snaprpc.FSFunction) bool {
	return f.PCIAddress == "" || strings.HasSuffix(f.PCIAddress, snaprpc.PendingBDF)
}

func running(v *snaprpc.FSDevice) bool {
	return v != nil && strings.EqualFold(v.State, snaprpc.FSDeviceRunning)
}

// madeHere reports whether the device was made here.
func madeHere(v *snaprpc.FSDevice) bool { return v.Name == devicePart+v.FSDev }

// exposure describes a device on the function that it is known to have.
func exposure(v *snaprpc.FSDevice, f snaprpc.FSFunction, known bool) provisioner.Exposure {
	e := provisioner.Exposure{Device: v.FSDev, Tag: v.Tag}
	if !known {
		return e
	}
	e.VUID = f.VUID
	if !pending(f) {
		e.PCIAddress = f.PCIAddress
	}
	e.Visible = running(v) && e.PCIAddress != ""
	e.Hidden = running(v) && e.PCIAddress == ""
	return e
}

// List returns the virtio-fs devices made here, and the functions that none of
// them has and the host neither: those that it has may be another's.
func (d *Emulation) List(ctx context.Context) ([]provisioner.Exposure, error) {
	s, err := d.sharing(ctx)
	if err != nil || len(s.devices)+len(s.functions) == 0 {
		return nil, err
	}
	recorded, addresses := d.Recorded(ctx), map[string]string{}
	for address, device := range d.Reserved(ctx) {
		addresses[device] = address
	}
	var out []provisioner.Exposure
	taken := map[string]bool{}
	for i := range s.devices {
		v := &s.devices[i]
		if !madeHere(v) {
			continue
		}
		f, known := d.functionFor(s, v.FSDev, recorded[v.FSDev], addresses[v.FSDev])
		taken[f.VUID] = known
		out = append(out, exposure(v, f, known))
	}
	for _, f := range s.functions {
		if pending(f) && !taken[f.VUID] {
			out = append(out, provisioner.Exposure{Device: SparePrefix + f.VUID})
		}
	}
	return out, nil
}

// RemoveSpare removes a function that no device has. The service refuses to
// remove one that is in use, so a function that was taken for a spare one by
// mistake stays.
func (d *Emulation) RemoveSpare(ctx context.Context, name string) error {
	unlock, err := d.LockFunctions(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := d.sharing(ctx)
	if err != nil {
		return err
	}
	_, err = d.destroySpare(ctx, s, name)
	return err
}

// destroySpare removes the function that List tells of under name, and reports
// whether it was there. The caller keeps others from taking functions meanwhile.
func (d *Emulation) destroySpare(ctx context.Context, s sharing, name string) (bool, error) {
	vuid, spare := strings.CutPrefix(name, SparePrefix)
	f, found := s.function(vuid)
	if !spare || !found {
		return false, nil
	}
	err := d.RPC.VirtioFSFunctionDestroy(ctx, f.Manager, f.VUID)
	return err == nil, service.Explain(err, service.Absent, "destroy virtio-fs function %s", f.VUID)
}

// Tidy removes the spare functions, and returns of how many.
func (d *Emulation) Tidy(ctx context.Context) int {
	all, err := d.List(ctx)
	if err != nil {
		return 0
	}
	s, err := d.sharing(ctx)
	if err != nil {
		return 0
	}
	removed := 0
	for _, e := range all {
		if gone, _ := d.destroySpare(ctx, s, e.Device); gone {
			removed++
		}
	}
	return removed
}

// check refuses what cannot be shown by virtio-fs.
func check(spec provisioner.ExposeSpec) error {
	switch {
	case spec.FunctionType != provisioner.PF || !spec.Hotplug:
		return fmt.Errorf("virtio-fs is shown on hot-plugged physical functions alone, not on %s with hotplug %t: %w", spec.FunctionType, spec.Hotplug, provisioner.ErrInvalid)
	case len(spec.Device) > maxName:
		return fmt.Errorf("the name of an fsdev has at most %d bytes, and this one %d: the vendor's plugin has to give it a shorter one: %w",
			maxName, len(spec.Device), provisioner.ErrInvalid)
	}
	return nil
}
