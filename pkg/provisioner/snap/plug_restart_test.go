package snap

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap/nvme"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
	"github.com/moor-storage/moor/reference/snapemulator"
)

// TestHotplugIdentityOverRestart: the functions outlive the service, and each
// volume finds its own again, however the exposures are ordered.
func TestHotplugIdentityOverRestart(t *testing.T) {
	for _, family := range families {
		t.Run(family, func(t *testing.T) {
			s := hotplugService(t, family, 0)
			reserved := map[string]string{}
			d := New(s.rpc, service.Options{Reserved: func(context.Context) map[string]string { return reserved }})
			specs, want := s.exposeAll(d, plugged, "a", "b", "c")
			for _, e := range want {
				reserved[e.PCIAddress] = e.Device
			}
			s.emu.Restart()
			if got := s.hotplugged(); len(got) != 3 || got[0].CtrlID != "" || got[0].PCIBDF != "30:00.0" {
				t.Fatalf("after a restart: %+v", got)
			}
			if all, err := d.List(t.Context()); err != nil || len(all) != 0 {
				t.Fatalf("functions that are promised are listed as spare: %+v, %v", all, err)
			}
			s.addDevice("new") // must not take what is promised
			if e, err := d.Expose(t.Context(), plugged("new")); err != nil || e.PCIAddress != "33:00.0" {
				t.Fatalf("new: %+v, %v", e, err)
			}
			s.exposeAgain(d, specs)
			got, err := d.List(t.Context())
			if diff := cmp.Diff(want, got[:min(3, len(got))]); err != nil || diff != "" {
				t.Fatalf("%v, (-before +after):\n%s", err, diff)
			}
		})
	}
}

// TestHotplugAfterPowerCycle: with the functions gone too, the volumes come
// back with namespace id and UUID, at whatever address the host gives.
func TestHotplugAfterPowerCycle(t *testing.T) {
	s := hotplugService(t, snapemulator.FamilySNAP, 0)
	d := New(s.rpc, service.Options{})
	specs, _ := s.exposeAll(d, plugged, "a", "b")
	s.emu.Stop()
	if err := os.Remove(s.emu.Options.Hotplug.StateFile); err != nil {
		t.Fatal(err)
	}
	s.emu.Restart()
	slices.Reverse(specs)
	for i, spec := range specs {
		s.addDevice(spec.Device)
		e, err := d.Expose(t.Context(), spec)
		want := provisioner.Exposure{Device: spec.Device, PCIAddress: fmt.Sprintf("3%d:00.0", i), NamespaceID: 1, UUID: spec.UUID, VUID: s.vuid(spec.Device), Visible: true}
		if diff := cmp.Diff(want, e); err != nil || diff != "" {
			t.Fatalf("%v, (-want +got):\n%s", err, diff)
		}
	}
}

// TestHotplugAdopts starts an exposure at every half-made state that a crash
// leaves: nothing is made twice, and no function is lost.
func TestHotplugAdopts(t *testing.T) {
	const id = "8d6c8ff0-6f0a-4a5e-9a39-000000000001"
	for made := range 7 {
		t.Run(fmt.Sprintf("%d steps", made), func(t *testing.T) {
			s := hotplugService(t, snapemulator.FamilySNAP, 0)
			s.addDevice("d")
			var vuid, ctrl string
			steps := []func() error{
				func() error { return s.rpc.NvmeSubsystemCreate(t.Context(), nvme.NQN("d")) },
				func() error {
					return s.rpc.NvmeNamespaceCreate(t.Context(), snaprpc.NamespaceSpec{NQN: nvme.NQN("d"), NSID: 1, UUID: id, BdevName: "d"})
				},
				func() (err error) { vuid, err = s.rpc.NvmeFunctionCreate(t.Context()); return err },
				func() (err error) {
					ctrl, err = s.rpc.NvmeControllerCreate(t.Context(), snaprpc.ControllerSpec{NQN: nvme.NQN("d"), VUID: vuid, Suspended: true})
					return err
				},
				func() error { return s.rpc.NvmeControllerAttachNS(t.Context(), ctrl, 1) },
				func() error { return s.rpc.NvmeControllerResume(t.Context(), ctrl) },
			}
			for _, step := range steps[:made] {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			d := New(s.rpc, service.Options{})
			e, err := d.Expose(t.Context(), plugged("d"))
			suspended := made == 4 || made == 5 // it is made anew: its function may keep something
			if err != nil || !e.Visible || e.PCIAddress != "30:00.0" || (made >= 2 && (e.UUID == id) == suspended) || len(s.hotplugged()) != 1 {
				t.Fatalf("expose: %+v, %v", e, err)
			}
			s.sweep(d)
		})
	}
}
