package snapemulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

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
