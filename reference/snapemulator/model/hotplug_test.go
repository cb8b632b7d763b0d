package model

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plugFixture has room for 3 hot-plugged functions: one is in the host with
// controller c1, one is made and off, and one port is free.
func plugFixture(t *testing.T) (m *Model, on, off *Function) {
	t.Helper()
	m, err := New(Config{Name: "dpu-1", PFs: 2, VFs: 2, HotplugSlots: 3}, func() string { return testUUID })
	if err != nil {
		t.Fatal(err)
	}
	on, err1 := m.CreateFunction(false)
	off, err2 := m.CreateFunction(false)
	_, err3 := m.CreateController(ControllerSpec{NQN: InitNQN, Name: "c1", VUID: on.VUID})
	_, err4 := m.PlugController("c1")
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if on.OnHost() || !m.Settle(true) || !on.OnHost() {
		t.Fatalf("plugged in, and enumerated: %+v", on)
	}
	return m, on, off
}

func TestHotplugConstraints(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(m *Model, on, off *Function) error
		want syscall.Errno
	}{
		{"make one", func(m *Model, _, _ *Function) error { _, err := m.CreateFunction(false); return err }, 0},
		{"plug in a second time", func(m *Model, _, _ *Function) error { _, err := m.PlugController("c1"); return err }, syscall.EEXIST},
		{"plug in without a controller", func(m *Model, _, _ *Function) error { _, err := m.PlugController("c9"); return err }, syscall.ENOENT},
		{"plug in a static function", func(m *Model, _, _ *Function) error { _, err := m.PlugController("NVMeCtrl1"); return err }, syscall.EINVAL},
		{"unplug", func(m *Model, _, _ *Function) error { _, err := m.UnplugController("c1"); return err }, 0},
		{"unplug what is out", func(m *Model, _, off *Function) error {
			if _, err := m.CreateController(ControllerSpec{NQN: InitNQN, Name: "c2", VUID: off.VUID}); err != nil {
				return err
			}
			_, err := m.UnplugController("c2")
			return err
		}, syscall.EINVAL},
		{"controller by an address not enumerated", func(m *Model, _, off *Function) error {
			_, err := m.CreateController(ControllerSpec{NQN: InitNQN, BDF: off.BDF})
			return err
		}, syscall.ENODEV},
		{"destroy the controller of a function in the host", func(m *Model, _, _ *Function) error { return m.DestroyController("c1", true) }, syscall.EBUSY},
		{"destroy a function", func(m *Model, _, off *Function) error { return m.DestroyFunction(off.VUID, false) }, 0},
		{"destroy a function with a controller", func(m *Model, on, _ *Function) error { return m.DestroyFunction(on.VUID, true) }, syscall.EBUSY},
		{"destroy a static function", func(m *Model, _, _ *Function) error { return m.DestroyFunction(m.Functions[0].VUID, true) }, syscall.ENODEV},
		{"pull a static function", func(m *Model, _, _ *Function) error { return m.PullFunction(m.Functions[0].VUID) }, syscall.ENODEV},
		{"restore in a port that is taken", func(m *Model, _, _ *Function) error { return m.Restore([]PluggedFunction{{Slot: 0, Plug: PlugOn}}) }, syscall.EINVAL},
		{"restore in no port", func(m *Model, _, _ *Function) error { return m.Restore([]PluggedFunction{{Slot: 3, Plug: PlugOn}}) }, syscall.EINVAL},
		{"restore nonsense", func(m *Model, _, _ *Function) error { return m.Restore([]PluggedFunction{{Slot: 2, Plug: "?"}}) }, syscall.EINVAL},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, on, off := plugFixture(t)
			wantErrno(t, tc.do(m, on, off), tc.want)
		})
	}
}

// TestHotplugLimit: 31 functions and no more; a port that becomes free is taken
// again, with the address it had.
func TestHotplugLimit(t *testing.T) {
	m, err := New(Config{Name: "dpu-1", HotplugSlots: MaxHotplug}, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range MaxHotplug {
		f, err := m.CreateFunction(true)
		if err != nil || seen[f.BDF] || seen[f.VUID] || seen[fmt.Sprint(f.Index)] {
			t.Fatalf("function %+v, %v", f, err)
		}
		seen[f.BDF], seen[f.VUID], seen[fmt.Sprint(f.Index)] = true, true, true
	}
	_, err = m.CreateFunction(true)
	wantErrno(t, err, syscall.ENOSPC)
	gone := m.inSlot(7)
	if err := m.DestroyFunction(gone.VUID, true); err != nil {
		t.Fatal(err)
	}
	if again, err := m.CreateFunction(true); err != nil || again.BDF != gone.BDF {
		t.Fatalf("got %+v, %v", again, err)
	}
	if _, err := New(Config{Name: "x", HotplugSlots: MaxHotplug + 1}, nil); err == nil {
		t.Error("32 ports are more than there are")
	}
}

// TestHostAndSwitch: what the host does, and does not, at its PCI switch.
func TestHostAndSwitch(t *testing.T) {
	m, on, _ := plugFixture(t)
	if m.Unsettled() || m.Settle(true) {
		t.Fatal("nothing is to be done, and yet")
	}
	m.LoseHost()
	if on.Plug != PlugComing || m.Settle(false) {
		t.Fatalf("a host that is off: %s", on.Plug)
	}
	m.Settle(true)
	if _, err := m.UnplugController("c1"); err != nil || on.Plug != PlugGoing || !on.OnHost() {
		t.Fatalf("to go: %s, %v", on.Plug, err)
	}
	if m.Settle(false); on.Plug != PlugGoing {
		t.Fatalf("a host that hangs let go: %s", on.Plug)
	}
	left := m.Plugged()
	if diff := cmp.Diff([]PluggedFunction{{Slot: 0, Plug: PlugGoing}, {Slot: 1, Plug: PlugOff}}, left); diff != "" {
		t.Fatal(diff)
	}
	if m.LoseHost(); on.Plug != PlugOff || !on.Unlisted() {
		t.Fatalf("a host without power has let go: %s", on.Plug)
	}
}
