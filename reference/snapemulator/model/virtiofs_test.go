package model

import (
	"strings"
	"syscall"
	"testing"
)

// fsFixture has a device "dev" with tag "tag" over fsdev "a" on function f,
// which runs and is not plugged in, and another fsdev "b".
func fsFixture(t *testing.T) (m *Model, f *Function) {
	t.Helper()
	m, err := New(Config{Name: "dpu-1", VFs: 2, HotplugSlots: 2}, func() string { return testUUID })
	if err != nil {
		t.Fatal(err)
	}
	steps := []func() error{
		func() error { return m.CreateTransport(Transport) },
		func() error { return m.SetTransport(Transport, true) },
		func() error { return m.CreateManager(Manager) },
		func() error { return m.CreateFSDev("a", "/a") },
		func() error { return m.CreateFSDev("b", "/b") },
		func() error {
			return m.CreateFSDevice(FSDeviceSpec{Transport: Transport, Name: "dev", Tag: "tag", FSDev: "a"})
		},
		func() (err error) { f, err = m.CreateFSFunction(Manager); return err },
		func() error { return m.ModifyFSDevice("dev", Manager, f.VUID) },
		func() error { return m.StartFSDevice("dev") },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return m, f
}

func TestVirtioFSConstraints(t *testing.T) {
	device := func(change func(*FSDeviceSpec)) func(*Model, *Function) error {
		return func(m *Model, _ *Function) error {
			spec := FSDeviceSpec{Transport: Transport, Name: "two", Tag: "two", FSDev: "b"}
			change(&spec)
			return m.CreateFSDevice(spec)
		}
	}
	for _, tc := range []struct {
		name string
		do   func(*Model, *Function) error
		want syscall.Errno
	}{
		{"fsdev, longest name", func(m *Model, _ *Function) error { return m.CreateFSDev(strings.Repeat("x", MaxFSDevName), "/") }, 0},
		{"fsdev, name too long", func(m *Model, _ *Function) error { return m.CreateFSDev(strings.Repeat("x", MaxFSDevName+1), "/") }, syscall.EINVAL},
		{"fsdev twice", func(m *Model, _ *Function) error { return m.CreateFSDev("a", "/") }, syscall.EEXIST},
		{"delete an fsdev that is shown", func(m *Model, _ *Function) error { return m.DeleteFSDev("a") }, syscall.EBUSY},
		{"another transport", func(m *Model, _ *Function) error { return m.CreateTransport("TCP") }, syscall.EINVAL},
		{"destroy a transport that is started", func(m *Model, _ *Function) error { return m.DestroyTransport(Transport) }, syscall.EBUSY},
		{"another manager", func(m *Model, _ *Function) error { return m.CreateManager("mlx5_9") }, syscall.ENODEV},
		{"destroy a manager in use", func(m *Model, _ *Function) error { return m.DestroyManager(Manager) }, syscall.EBUSY},
		{"device, longest tag", device(func(s *FSDeviceSpec) { s.Tag = strings.Repeat("x", MaxTag) }), 0},
		{"device, tag too long", device(func(s *FSDeviceSpec) { s.Tag = strings.Repeat("x", MaxTag+1) }), syscall.EINVAL},
		{"device, tag taken", device(func(s *FSDeviceSpec) { s.Tag = "tag" }), syscall.EEXIST},
		{"device, no such fsdev", device(func(s *FSDeviceSpec) { s.FSDev = "z" }), syscall.ENODEV},
		{"device, fsdev shown already", device(func(s *FSDeviceSpec) { s.FSDev = "a" }), syscall.EBUSY},
		{"device, odd queue size", device(func(s *FSDeviceSpec) { s.QueueSize = 100 }), syscall.EINVAL},
		{"device, no such transport", device(func(s *FSDeviceSpec) { s.Transport = "x" }), syscall.ENODEV},
		{"modify a device that runs", func(m *Model, f *Function) error { return m.ModifyFSDevice("dev", Manager, f.VUID) }, syscall.EBUSY},
		{"destroy a device that runs", func(m *Model, _ *Function) error { return m.DestroyFSDevice("dev") }, syscall.EBUSY},
		{"destroy the function of a device", func(m *Model, f *Function) error { return m.DestroyFSFunction(Manager, f.VUID) }, syscall.EBUSY},
		{"unplug what is not in", func(m *Model, _ *Function) error { _, err := m.UnplugFSDevice("dev"); return err }, syscall.EINVAL},
		{"an NVMe controller on the function", func(m *Model, f *Function) error {
			_, err := m.CreateController(ControllerSpec{NQN: InitNQN, VUID: f.VUID})
			return err
		}, syscall.ENODEV},
		{"stop a device that is in the host", func(m *Model, _ *Function) error {
			if _, err := m.PlugFSDevice("dev"); err != nil {
				return err
			}
			m.Settle(true)
			return m.StopFSDevice("dev")
		}, syscall.EBUSY},
		{"a third function, with NVMe's", func(m *Model, _ *Function) error {
			if _, err := m.CreateFunction(false); err != nil {
				return err
			}
			_, err := m.CreateFSFunction(Manager)
			return err
		}, syscall.ENOSPC},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, f := fsFixture(t)
			wantErrno(t, tc.do(m, f), tc.want)
		})
	}
}

// TestVirtioFSFunctionsAreRestored: a restart keeps the function, of its kind,
// and nothing else.
func TestVirtioFSFunctionsAreRestored(t *testing.T) {
	m, f := fsFixture(t)
	again, err := New(Config{Name: "dpu-1", VFs: 2, HotplugSlots: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Restore(m.Plugged()); err != nil {
		t.Fatal(err)
	}
	if back := again.FSFunction(f.VUID); back == nil || back.BDF != f.BDF || len(again.FS.Devices) != 0 {
		t.Fatalf("got %+v", back)
	}
}
