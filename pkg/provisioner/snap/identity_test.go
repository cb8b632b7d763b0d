package snap

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap/nvme"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
	"github.com/moor-storage/moor/reference/snapemulator"
)

// TestAdopt starts an exposure at every half-made state that a crash leaves.
func TestAdopt(t *testing.T) {
	for made := range 5 {
		t.Run(fmt.Sprintf("%d steps", made), func(t *testing.T) {
			s := newService(t)
			s.addDevice("d")
			const id = "8d6c8ff0-6f0a-4a5e-9a39-000000000001"
			ctrl := ""
			steps := []func() error{
				func() error { return s.rpc.NvmeSubsystemCreate(t.Context(), nvme.NQN("d")) },
				func() error {
					return s.rpc.NvmeNamespaceCreate(t.Context(), snaprpc.NamespaceSpec{NQN: nvme.NQN("d"), NSID: 1, UUID: id, BdevName: "d"})
				},
				func() (err error) {
					ctrl, err = s.rpc.NvmeControllerCreate(t.Context(), snaprpc.ControllerSpec{NQN: nvme.NQN("d"), PCIBDF: "26:00.4", Suspended: true})
					return err
				},
				func() error { return s.rpc.NvmeControllerAttachNS(t.Context(), ctrl, 1) },
			}
			for _, step := range steps[:made] {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			d := New(s.rpc, service.Options{})
			partial, err := d.List(t.Context())
			if err != nil || len(partial) != min(made, 1) || (made > 0 && partial[0].Visible) {
				t.Fatalf("list: %+v, %v", partial, err)
			}
			e, err := d.Expose(t.Context(), vfOf("d"))
			anew := made >= 3 // a controller that has not served may have a function that keeps something
			if err != nil || !e.Visible || (made >= 2 && (e.UUID == id) == anew) || (anew && e.PCIAddress != "26:00.2") {
				t.Fatalf("expose: %+v, %v", e, err)
			}
		})
	}
}

func TestIdentityOverRestart(t *testing.T) {
	s := newService(t)
	d := New(s.rpc, service.Options{})
	specs, want := s.exposeAll(d, vfOf, "a", "b", "c")
	s.emu.Restart()
	s.exposeAgain(d, specs)
	got, err := d.List(t.Context())
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("%v, (-before +after):\n%s", err, diff)
	}
}

func TestRecordedIdentityInTheWay(t *testing.T) {
	s := newService(t)
	d := New(s.rpc, service.Options{})
	s.addDevice("a")
	s.addDevice("b")
	a, err := d.Expose(t.Context(), vfOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	spec := vfOf("b")
	spec.PCIAddress = "0000:" + a.PCIAddress
	_, err = d.Expose(t.Context(), spec)
	if !errors.Is(err, provisioner.ErrInUse) || !strings.Contains(err.Error(), a.PCIAddress) {
		t.Fatalf("the function of a for b: %v", err)
	}
	spec = vfOf("a")
	spec.UUID = uuid.NewString()
	if _, err = d.Expose(t.Context(), spec); !errors.Is(err, provisioner.ErrExists) {
		t.Fatalf("another UUID for a shown device: %v", err)
	}
	left, err := d.List(t.Context())
	if diff := cmp.Diff([]provisioner.Exposure{a}, left); err != nil || diff != "" {
		t.Fatalf("%v, (-want +got):\n%s", err, diff)
	}
}

func TestHalfMadeWithAnotherIdentityIsMadeAnew(t *testing.T) {
	s := newService(t)
	s.addDevice("d")
	if err := s.rpc.NvmeSubsystemCreate(t.Context(), nvme.NQN("d")); err != nil {
		t.Fatal(err)
	}
	if err := s.rpc.NvmeNamespaceCreate(t.Context(), snaprpc.NamespaceSpec{NQN: nvme.NQN("d"), NSID: 7, UUID: uuid.NewString(), BdevName: "d"}); err != nil {
		t.Fatal(err)
	}
	spec := vfOf("d")
	spec.PCIAddress, spec.NamespaceID, spec.UUID = "26:00.5", 1, uuid.NewString()
	e, err := New(s.rpc, service.Options{}).Expose(t.Context(), spec)
	want := provisioner.Exposure{Device: "d", PCIAddress: "26:00.5", NamespaceID: 1, UUID: spec.UUID, VUID: s.vuid("d"), Visible: true}
	if diff := cmp.Diff(want, e); err != nil || diff != "" {
		t.Fatalf("%v, (-want +got):\n%s", err, diff)
	}
}

func TestForeignSubsystem(t *testing.T) {
	s := newService(t)
	s.addDevice("d")
	const nqn = "nqn.2022-10.io.nvda.nvme:0"
	if err := s.rpc.NvmeNamespaceCreate(t.Context(), snaprpc.NamespaceSpec{NQN: nqn, NSID: 9, BdevName: "d"}); err != nil {
		t.Fatal(err)
	}
	d := New(s.rpc, service.Options{})
	if _, err := d.Expose(t.Context(), vfOf("d")); !errors.Is(err, provisioner.ErrPrecondition) || !strings.Contains(err.Error(), nqn) {
		t.Fatalf("expose: %v", err)
	}
	if listed, err := d.List(t.Context()); err != nil || len(listed) != 0 {
		t.Fatalf("list: %+v, %v", listed, err)
	}
	subsystems, err := s.rpc.NvmeSubsystemList(t.Context())
	if err != nil || len(subsystems[0].Namespaces) != 1 {
		t.Fatalf("a refused expose removed the foreign namespace: %+v, %v", subsystems, err)
	}
	if err := d.Withdraw(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	s.wantEmpty()
}

// TestVUID: an exposure tells what the host reads in the Vital Product Data of
// its function. A virtual function has none of its own.
func TestVUID(t *testing.T) {
	s := hotplugService(t, snapemulator.FamilySNAP, 0)
	for _, device := range []string{"vf", "pf", "plugged"} {
		s.addDevice(device)
	}
	d := New(s.rpc, service.Options{})
	got := map[string]string{}
	for _, spec := range []provisioner.ExposeSpec{vfOf("vf"), {Device: "pf", FunctionType: provisioner.PF}, plugged("plugged")} {
		e, err := d.Expose(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		got[spec.Device] = e.VUID
	}
	want := map[string]string{"vf": s.vuid("vf"), "pf": s.vuid("pf"), "plugged": s.hotplugged()[0].VUID}
	if diff := cmp.Diff(want, got); diff != "" || want["vf"] == "" || want["vf"] == want["pf"] || want["pf"] == want["plugged"] {
		t.Fatalf("VUIDs (-functions +exposures):\n%s", diff)
	}
}
