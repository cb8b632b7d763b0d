package snap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/pkg/provisioner/snap/nvme"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
	"github.com/moor-storage/moor/reference/snapemulator"
)

func TestContractStaticPF(t *testing.T) {
	s := hotplugService(t, snapemulator.FamilyBoth, 0)
	s.addDevice("d")
	d := New(s.rpc, service.Options{})
	spec := provisioner.ExposeSpec{Device: "d", FunctionType: provisioner.PF}
	e, err := d.Expose(t.Context(), spec)
	// 26:00.0 carries the admin controller of the virtual functions.
	if err != nil || e.PCIAddress != "26:00.1" || !e.Visible {
		t.Fatalf("got %+v, %v", e, err)
	}
	s.addDevice("e")
	spec.Device = "e"
	if _, err := d.Expose(t.Context(), spec); !errors.Is(err, provisioner.ErrExhausted) {
		t.Fatalf("a second volume on the only free PF: %v", err)
	}
	if err := d.Withdraw(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	if e, err = d.Expose(t.Context(), spec); err != nil || e.PCIAddress != "26:00.1" {
		t.Fatalf("the static PF did not become free: %+v, %v", e, err)
	}
}

func TestContractHotplug(t *testing.T) {
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			provisionertest.TestDPU(t, func(t *testing.T) provisionertest.DPUUnderTest {
				s := hotplugService(t, family, 0)
				return provisionertest.DPUUnderTest{
					DPU: New(s.rpc, service.Options{HotplugLimit: 4}),
					Prepare: func(_ *testing.T, name string) provisioner.ExposeSpec {
						s.addDevice(name)
						return plugged(name)
					},
				}
			})
		})
	}
}

// TestHotplugFaults lets every call go wrong in every way: the repeated call
// converges, and what is left at the end can be swept.
func TestHotplugFaults(t *testing.T) {
	more := map[string][]string{
		snapemulator.FamilySNAP:   {"nvme_function_create", "nvme_controller_hotplug", "nvme_controller_hotunplug", "nvme_function_destroy"},
		snapemulator.FamilyLegacy: {"nvme_emulation_device_attach", "emulation_device_detach_prepare", "emulation_device_detach"},
	}
	for family, own := range more {
		for _, method := range append(own, methods...) {
			for kind, fault := range faultKinds {
				t.Run(family+"/"+method+"/"+kind, func(t *testing.T) {
					t.Parallel()
					s := hotplugService(t, family, 0)
					full := map[string]any{"method": method}
					maps.Copy(full, fault)
					hotplugLife(t, s, full)
				})
			}
		}
	}
}

// hotplugLife takes a device through all of its life, and strikes each part of
// it with the fault.
func hotplugLife(t *testing.T, s *testService, fault map[string]any) {
	t.Helper()
	s.addDevice("d")
	d := New(s.clientFor(fault), service.Options{})
	spec := plugged("d")
	spec.UUID = uuid.NewString()
	for _, hidden := range []bool{true, false, true, false} {
		spec.Hidden = hidden
		s.inject(fault)
		s.untilDone(func() error {
			e, err := d.Expose(t.Context(), spec)
			if err == nil && (e.Hidden != hidden || e.Visible == hidden || e.PCIAddress == "" || e.UUID != spec.UUID) {
				t.Errorf("hidden is %v, got %+v", hidden, e)
			}
			return err
		})
		s.call("moor_clear", nil)
	}
	s.inject(fault)
	s.untilDone(func() error { return d.Withdraw(t.Context(), "d") })
	s.call("moor_clear", nil)
	s.sweep(d)
}

// TestHotplugWaitsForTheHost: an exposure is done when the host has the
// function and not before; a host that is off is told of.
func TestHotplugWaitsForTheHost(t *testing.T) {
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			s := hotplugService(t, family, 30*time.Millisecond)
			s.addDevice("d")
			d := New(s.rpc, service.Options{PlugWait: 30 * time.Second})
			if e, err := d.Expose(t.Context(), plugged("d")); err != nil || e.PCIAddress != "30:00.0" || !e.Visible {
				t.Fatalf("got %+v, %v", e, err)
			}
			s.addDevice("e")
			s.call("moor_link", map[string]any{"up": false})
			d = New(s.rpc, service.Options{PlugWait: time.Millisecond})
			_, err := d.Expose(t.Context(), plugged("e"))
			if !errors.Is(err, provisioner.ErrUnavailable) || !strings.Contains(err.Error(), "has not enumerated") {
				t.Fatalf("a host that is off: %v", err)
			}
			all, err := d.List(t.Context())
			if err != nil || len(all) != 2 || all[0].Visible || all[1].Visible {
				t.Fatalf("a host that is off sees %+v, %v", all, err)
			}
			s.call("moor_link", map[string]any{"up": true})
			d = New(s.rpc, service.Options{PlugWait: 30 * time.Second})
			for device, at := range map[string]string{"d": "30:00.0", "e": "31:00.0"} {
				if e, err := d.Expose(t.Context(), plugged(device)); err != nil || e.PCIAddress != at {
					t.Fatalf("after the host is up: %+v, %v", e, err)
				}
			}
		})
	}
}

// TestHotplugFence: a host that hangs cannot hold up a withdrawal. What it does
// not let go of is listed, and goes when it does.
func TestHotplugFence(t *testing.T) {
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			s := hotplugService(t, family, 0)
			s.addDevice("d")
			d := New(s.rpc, service.Options{PlugWait: time.Hour, HotplugLimit: 4}) // to wait at all would show
			first, err := d.Expose(t.Context(), plugged("d"))
			if err != nil {
				t.Fatal(err)
			}
			s.call("moor_host", map[string]any{"answers": false})
			if err := d.Withdraw(t.Context(), "d"); err != nil {
				t.Fatal(err)
			}
			subsystems, err := s.rpc.NvmeSubsystemList(t.Context())
			if err != nil || len(subsystems) != 2 || len(subsystems[1].Namespaces) != 0 {
				t.Fatalf("the device is not withdrawn: %+v, %v", subsystems, err)
			}
			all, err := d.List(t.Context())
			if err != nil || len(all) != 1 || all[0].Device != nvme.NQN("d") || all[0].Visible || all[0].Hidden {
				t.Fatalf("what is left is not listed: %+v, %v", all, err)
			}
			d = New(s.rpc, service.Options{PlugWait: time.Millisecond})
			if _, err := d.Expose(t.Context(), plugged("d")); !errors.Is(err, provisioner.ErrUnavailable) {
				t.Fatalf("shown on a function that is on its way out: %v", err)
			}
			s.call("moor_host", map[string]any{"answers": true})
			again := plugged("d")
			again.PCIAddress, again.NamespaceID, again.UUID = first.PCIAddress, first.NamespaceID, first.UUID
			second, err := d.Expose(t.Context(), again)
			if diff := cmp.Diff(first, second); err != nil || diff != "" {
				t.Fatalf("%v, (-first +second):\n%s", err, diff)
			}
			s.sweep(d)
		})
	}
}

// TestHotplugRoomIsMade: functions that the host has let go of since do not
// stand in the way of the next volume.
func TestHotplugRoomIsMade(t *testing.T) {
	s := hotplugService(t, snapemulator.FamilySNAP, 0)
	d := New(s.rpc, service.Options{})
	s.call("moor_host", map[string]any{"answers": true})
	for i := range 4 {
		name := fmt.Sprintf("d%d", i)
		s.addDevice(name)
		if _, err := d.Expose(t.Context(), plugged(name)); err != nil {
			t.Fatal(err)
		}
	}
	s.call("moor_host", map[string]any{"answers": false})
	if err := d.Withdraw(t.Context(), "d2"); err != nil {
		t.Fatal(err)
	}
	s.addDevice("e")
	_, err := d.Expose(t.Context(), plugged("e"))
	if !errors.Is(err, provisioner.ErrExhausted) || !strings.Contains(err.Error(), "31") {
		t.Fatalf("no port is free: %v", err)
	}
	s.call("moor_host", map[string]any{"answers": true})
	if _, err := d.Expose(t.Context(), plugged("e")); err != nil {
		t.Fatal(err)
	}
}

// TestSpareFunctions: a function that belongs to no device is listed by its VUID
// and can be withdrawn, whether the host has it or not.
func TestSpareFunctions(t *testing.T) {
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			s := hotplugService(t, family, 0)
			d := New(s.rpc, service.Options{})
			s.addDevice("d")
			if _, err := d.Expose(t.Context(), plugged("d")); err != nil {
				t.Fatal(err)
			}
			s.emu.Restart()
			all, err := d.List(t.Context())
			if err != nil || len(all) != 1 || !strings.HasPrefix(all[0].Device, "function:MT") {
				t.Fatalf("got %+v, %v", all, err)
			}
			s.sweep(d)
		})
	}
}

func TestNoHotplug(t *testing.T) {
	s := newService(t)
	s.addDevice("d")
	d := New(s.rpc, service.Options{})
	if _, err := d.Expose(t.Context(), plugged("d")); !errors.Is(err, provisioner.ErrUnsupported) {
		t.Fatalf("got %v", err)
	}
	s.wantEmpty()
	counts, err := d.Functions(t.Context())
	want := []provisioner.FunctionCount{{Type: provisioner.PF, Total: 1}, {Type: provisioner.VF, Total: 4, Free: 4}}
	if diff := cmp.Diff(want, counts); err != nil || diff != "" {
		t.Fatalf("%v, (-want +got):\n%s", err, diff)
	}
}

// TestHotplugAllAtOnce plugs a function into every port at the same time; one
// more is refused with the reason, and leaves nothing.
func TestHotplugAllAtOnce(t *testing.T) {
	const slots = snapemulator.DefaultHotplugSlots
	s := serviceWith(t, snapemulator.Options{Hotplug: snapemulator.Hotplug{Slots: slots, Delay: 100 * time.Millisecond}})
	d := New(snaprpc.New(s.socket, time.Minute), service.Options{PlugWait: time.Minute})
	type outcome struct {
		e   provisioner.Exposure
		err error
	}
	outcomes := make(chan outcome, slots)
	for i := range slots {
		device := fmt.Sprintf("d%d", i)
		s.addDevice(device)
		go func() {
			e, err := d.Expose(t.Context(), plugged(device))
			outcomes <- outcome{e, err}
		}()
	}
	at := map[string]string{}
	for range slots {
		o := <-outcomes
		if o.err != nil || !o.e.Visible || at[o.e.PCIAddress] != "" {
			t.Fatalf("%+v, %v; %s has the address", o.e, o.err, at[o.e.PCIAddress])
		}
		at[o.e.PCIAddress] = o.e.Device
	}
	counts, err := d.Functions(t.Context())
	if err != nil || counts[2] != (provisioner.FunctionCount{Type: provisioner.Hotplug, Total: slots}) {
		t.Fatalf("got %+v, %v", counts, err)
	}
	s.addDevice("one-more")
	if _, err := d.Expose(t.Context(), plugged("one-more")); !errors.Is(err, provisioner.ErrExhausted) || !strings.Contains(err.Error(), "detach a volume") {
		t.Fatalf("one more: %v", err)
	}
	all, err := d.List(t.Context())
	if err != nil || len(all) != slots || len(s.hotplugged()) != slots {
		t.Fatalf("%d exposures, %v", len(all), err)
	}
}

// TestTidySparesWhatIsShownAgain: a device is shown again while another call makes room, and
// had listed it among what the host has let go of. It stays.
func TestTidySparesWhatIsShownAgain(t *testing.T) {
	s := hotplugService(t, snapemulator.FamilySNAP, 0)
	d := New(s.rpc, service.Options{})
	s.call("moor_host", map[string]any{"answers": true})
	s.exposeAll(d, plugged, "a", "b")
	s.call("moor_host", map[string]any{"answers": false})
	for _, name := range []string{"a", "b"} {
		if err := d.Withdraw(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	s.call("moor_host", map[string]any{"answers": true})
	s.inject(map[string]any{"method": "nvme_controller_destroy", "hang": true})
	left := make(chan int)
	go func() {
		_, n, err := d.Tidy(context.Background())
		if err != nil {
			t.Error(err)
		}
		left <- n
	}()
	for s.calls()["nvme_controller_destroy"] == 0 { // until it has listed both
	}
	if _, err := d.Expose(t.Context(), plugged("b")); err != nil {
		t.Fatal(err)
	}
	s.call("moor_clear", nil)
	if n := <-left; n != 1 {
		t.Errorf("%d are left, want a", n)
	}
	all, err := d.List(t.Context())
	if i := slices.IndexFunc(all, func(e provisioner.Exposure) bool { return e.Device == "b" }); err != nil || i < 0 || !all[i].Visible {
		t.Errorf("got %+v, %v", all, err)
	}
}
