package snapemulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/moor-storage/moor/reference/snapemulator/datapath"
	"github.com/moor-storage/moor/reference/snapemulator/model"
)

// DefaultHotplugSlots is how many functions can be plugged in by default.
const DefaultHotplugSlots = model.MaxHotplug

// The families of methods for hot-plug. A service offers one, or both.
const (
	FamilyBoth   = "both"
	FamilySNAP   = "snap"
	FamilyLegacy = "legacy"
)

// Hotplug is what a service offers of functions that are plugged in at run
// time.
type Hotplug struct {
	// Slots is how many there can be at a time; 0 offers none.
	Slots int
	// Family is one of FamilyBoth (also if empty), FamilySNAP, FamilyLegacy.
	Family string
	// Delay is how long the host takes to enumerate a function, or to let go
	// of it.
	Delay time.Duration
	// StateFile keeps the functions over a restart of the service, as hardware
	// does; empty keeps none. It must not outlive a power failure of the DPU.
	StateFile string
}

func (h Hotplug) validate() error {
	switch h.Family {
	case "", FamilyBoth, FamilySNAP, FamilyLegacy:
		return nil
	}
	return fmt.Errorf("hot-plug family %q: %s, %s and %s are known", h.Family, FamilyBoth, FamilySNAP, FamilyLegacy)
}

// newModel makes the functions, and those that an earlier service plugged in.
func (o *Options) newModel() (*model.Model, error) {
	c := model.Config{Name: o.Name, PFs: o.PFs, VFs: o.VFs, HotplugSlots: o.Hotplug.Slots}
	m, err := model.New(c, o.NewUUID)
	if err != nil || o.Hotplug.StateFile == "" {
		return m, err
	}
	raw, err := os.ReadFile(o.Hotplug.StateFile)
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	var left []model.PluggedFunction
	if err == nil {
		err = json.Unmarshal(raw, &left)
	}
	if err == nil {
		err = m.Restore(left)
	}
	if err != nil {
		return nil, fmt.Errorf("read the hot-plugged functions in %s: %w", o.Hotplug.StateFile, err)
	}
	return m, nil
}

// replugged applies a change of the hot-plugged functions: it is written down,
// shown, and the host set to work on it. The lock is held.
func (e *Emulator) replugged(ctx context.Context) (any, error) {
	e.startSettling(context.WithoutCancel(ctx))
	return true, errors.Join(e.savePlugged(), e.apply(ctx))
}

func (e *Emulator) savePlugged() error {
	path := e.opts.Hotplug.StateFile
	if path == "" {
		return nil
	}
	raw, err := json.Marshal(e.model.Plugged())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("keep the hot-plugged functions: %w", err)
	}
	if err := errors.Join(os.WriteFile(path+".new", raw, 0o644), os.Rename(path+".new", path)); err != nil {
		return fmt.Errorf("keep the hot-plugged functions: %w", err)
	}
	return nil
}

// startSettling has the host look at the switch: at once, or after its delay.
// The lock is held.
func (e *Emulator) startSettling(ctx context.Context) {
	if e.settling || e.closed || e.linkDown || e.deaf || !e.model.Unsettled() {
		return
	}
	if e.opts.Hotplug.Delay <= 0 {
		e.model.Settle(true)
		e.wakePlugWaiters()
		return
	}
	e.settling = true
	e.opts.Clock.AfterFunc(e.opts.Hotplug.Delay, func() { e.settle(ctx) })
}

// settle is the host's look at the switch.
func (e *Emulator) settle(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.settling = false
	if e.closed || !e.model.Settle(!e.linkDown && !e.deaf) {
		return
	}
	e.wakePlugWaiters()
	if err := errors.Join(e.savePlugged(), e.apply(ctx)); err != nil {
		e.log.Error(err, "apply what the host did at its PCI switch")
	}
	e.startSettling(ctx)
}

// resettle goes on with what an earlier service left undone.
func (e *Emulator) resettle(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.replugged(ctx); err != nil {
		e.log.Error(err, "apply the hot-plugged functions that were there")
	}
}

func (e *Emulator) wakePlugWaiters() {
	close(e.plugged)
	e.plugged = make(chan struct{})
}

// kept is a device that an earlier service has left with the host, at a function without a
// controller. It is known by function and namespace id alone: a controller that is resumed there
// serves what the host has asked for, whatever stands behind the namespace now. SNAP promises
// that only for a controller that is made as it was; this is the worst that can come of others.
type kept struct {
	datapath.Kept
	function *model.Function
}

// findKept finds what an earlier service has left.
func (o *Options) findKept(m *model.Model) ([]*kept, error) {
	keeper, keeps := o.DataPath.(datapath.Keeper)
	if !keeps {
		return nil, nil
	}
	all, err := keeper.Kept()
	if err != nil {
		return nil, fmt.Errorf("find what the functions have kept: %w", err)
	}
	var out []*kept
	for _, k := range all {
		i := slices.IndexFunc(m.AllFunctions(), func(f *model.Function) bool { return f.VUID == k.Function })
		if i < 0 {
			k.Device.Fence()
			_ = k.Device.Detach()
			continue
		}
		out = append(out, &kept{Kept: k, function: m.AllFunctions()[i]})
	}
	return out, nil
}

// held are the functions of what is kept.
func held(all []*kept) map[*model.Function]bool {
	out := map[*model.Function]bool{}
	for _, k := range all {
		out[k.function] = true
	}
	return out
}

// waits reports whether the function keeps what it has: no controller was made there, or one
// that has not been resumed.
func (k *kept) waits() bool {
	if c := k.function.Controller; c != nil {
		return !c.Resumed
	}
	return !k.function.Taken
}

// sortKept ends the devices that are kept for none any more: the host has lost its power or
// taken the driver away, the function is gone, its controller was destroyed, or resumed without
// the namespace. The lock is held.
func (e *Emulator) sortKept(wanted map[*model.Namespace]model.Visible) {
	var stay []*kept
	for _, k := range e.kept {
		there := !e.linkDown && e.tree.IsBound(k.function) && slices.Contains(e.model.AllFunctions(), k.function)
		if there && (k.waits() || k.among(wanted)) {
			stay = append(stay, k)
			continue
		}
		k.Device.Fence()
		e.log.Info("kept namespace fenced", "function", k.function.BDF, "nsid", k.NSID)
		if err := k.Device.Detach(); err != nil {
			e.log.Error(err, "give back a fenced device", "function", k.function.BDF)
		}
	}
	e.kept = stay
	e.tree.Hold(held(slices.DeleteFunc(slices.Clone(stay), func(k *kept) bool { return !k.waits() })))
}

func (k *kept) among(wanted map[*model.Namespace]model.Visible) bool {
	for ns, v := range wanted {
		if v.Function == k.function && ns.NSID == k.NSID {
			return true
		}
	}
	return false
}

// device makes the device of a namespace, or goes on with the one that was kept.
func (e *Emulator) device(ctx context.Context, v model.Visible, t datapath.Target) (datapath.Device, error) {
	i := slices.IndexFunc(e.kept, func(k *kept) bool { return k.function == v.Function && k.NSID == v.Namespace.NSID })
	if i < 0 {
		return e.opts.DataPath.Attach(ctx, t)
	}
	k := e.kept[i]
	e.kept = slices.Delete(e.kept, i, i+1)
	e.log.Info("kept namespace served", "device", t.Name, "function", v.Function.BDF, "nsid", k.NSID)
	return k.Device, k.Device.Adopt(t.Backing)
}
