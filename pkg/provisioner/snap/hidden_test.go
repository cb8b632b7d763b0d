package snap

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap/nvme"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

// changes returns the calls of methods that change something.
func (s *testService) changes() map[string]int {
	out := s.calls()
	maps.DeleteFunc(out, func(method string, _ int) bool {
		return strings.HasPrefix(method, "moor_") || strings.HasSuffix(method, "_list") || strings.HasPrefix(method, "bdev_")
	})
	return out
}

// TestPromotionIsOneCall: what is hidden is shown, and hidden again, by one
// call each that changes something.
func TestPromotionIsOneCall(t *testing.T) {
	s := newService(t)
	s.addDevice("d")
	d := New(s.rpc, service.Options{})
	spec := vfOf("d")
	spec.Hidden = true
	e, err := d.Expose(t.Context(), spec)
	if err != nil || !e.Hidden || e.Visible {
		t.Fatalf("got %+v, %v", e, err)
	}
	before := s.changes()
	if before["nvme_controller_attach_ns"] != 0 || before["nvme_controller_resume"] != 1 {
		t.Fatalf("to make it ready took %v", before)
	}
	spec.PCIAddress, spec.NamespaceID, spec.UUID = e.PCIAddress, e.NamespaceID, e.UUID
	for _, step := range []struct {
		hidden bool
		method string
	}{{false, "nvme_controller_attach_ns"}, {true, "nvme_controller_detach_ns"}, {false, "nvme_controller_attach_ns"}} {
		spec.Hidden = step.hidden
		if e, err = d.Expose(t.Context(), spec); err != nil || e.Visible == step.hidden || e.Hidden != step.hidden {
			t.Fatalf("got %+v, %v", e, err)
		}
		before[step.method]++
		if diff := cmp.Diff(before, s.changes()); diff != "" {
			t.Fatalf("hidden is %v (-want +made):\n%s", step.hidden, diff)
		}
	}
}

// TestHiddenAdoptsHalfMade: whatever a crash left is made ready, and never
// shown on the way.
func TestHiddenAdoptsHalfMade(t *testing.T) {
	for _, attached := range []bool{false, true} {
		s := newService(t)
		s.addDevice("d")
		id, ctx := uuid.NewString(), t.Context()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(s.rpc.NvmeSubsystemCreate(ctx, nvme.NQN("d")))
		must(s.rpc.NvmeNamespaceCreate(ctx, snaprpc.NamespaceSpec{NQN: nvme.NQN("d"), NSID: 1, UUID: id, BdevName: "d"}))
		ctrl, err := s.rpc.NvmeControllerCreate(ctx, snaprpc.ControllerSpec{NQN: nvme.NQN("d"), PCIBDF: "26:00.4", Suspended: true})
		must(err)
		if attached {
			must(s.rpc.NvmeControllerAttachNS(ctx, ctrl, 1))
		}
		d := New(s.rpc, service.Options{})
		// Half-made is neither visible nor hidden.
		if all, err := d.List(ctx); err != nil || len(all) != 1 || all[0].Visible || all[0].Hidden {
			t.Fatalf("list: %+v, %v", all, err)
		}
		spec := vfOf("d")
		spec.Hidden = true
		e, err := d.Expose(ctx, spec)
		// The controller has not served: it is made anew, without what its function may keep.
		want := provisioner.Exposure{Device: "d", PCIAddress: "26:00.2", NamespaceID: 1, UUID: e.UUID, VUID: s.vuid("d"), Hidden: true}
		if e.UUID == id {
			t.Errorf("attached is %v: the controller that was there is used", attached)
		}
		if diff := cmp.Diff(want, e); err != nil || diff != "" {
			t.Fatalf("attached is %v: %v (-want +got):\n%s", attached, err, diff)
		}
	}
}

// TestHiddenLeavesForeignAlone: what is not ours is not hidden either.
func TestHiddenLeavesForeignAlone(t *testing.T) {
	s := newService(t)
	s.addDevice("d")
	const nqn = "nqn.2022-10.io.nvda.nvme:0"
	if err := s.rpc.NvmeNamespaceCreate(t.Context(), snaprpc.NamespaceSpec{NQN: nqn, NSID: 9, BdevName: "d"}); err != nil {
		t.Fatal(err)
	}
	spec := vfOf("d")
	spec.Hidden = true
	if _, err := New(s.rpc, service.Options{}).Expose(t.Context(), spec); !errors.Is(err, provisioner.ErrPrecondition) || !strings.Contains(err.Error(), nqn) {
		t.Fatalf("got %v", err)
	}
	if s.changes()["nvme_controller_detach_ns"] != 0 {
		t.Fatal("a foreign namespace was detached")
	}
}
