package snap

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/pkg/provisioner/snap/nvme"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

func TestContract(t *testing.T) {
	provisionertest.TestDPU(t, func(t *testing.T) provisionertest.DPUUnderTest {
		s := newService(t)
		return provisionertest.DPUUnderTest{DPU: New(s.rpc, service.Options{}), Prepare: func(_ *testing.T, name string) provisioner.ExposeSpec {
			s.addDevice(name)
			return vfOf(name)
		}}
	})
}

func TestExposeNames(t *testing.T) {
	s := newService(t)
	s.addDevice("nvme_a")
	e, err := New(s.rpc, service.Options{}).Expose(t.Context(), vfOf("nvme_a"))
	if err != nil {
		t.Fatal(err)
	}
	id, err := uuid.Parse(e.UUID)
	if err != nil || id.Version() != 4 || e.NamespaceID != 1 || e.PCIAddress != "26:00.2" {
		t.Fatalf("got %+v", e)
	}
	subsystems, err := s.rpc.NvmeSubsystemList(t.Context())
	if err != nil || len(subsystems) != 2 || subsystems[1].NQN != nvme.NQN("nvme_a") {
		t.Fatalf("got %+v, %v", subsystems, err)
	}
}

// TestOrder holds the calls that change something to DPF's order, both ways.
func TestOrder(t *testing.T) {
	s := newService(t)
	s.addDevice("d")
	d := New(s.rpc, service.Options{})
	up := []string{"nvme_subsystem_create", "nvme_namespace_create", "nvme_controller_create", "nvme_controller_attach_ns", "nvme_controller_resume"}
	for i, method := range up {
		// With the method failing for good, exactly those before it have
		// been called once more.
		s.inject(map[string]any{"method": method, "count": -1, "error": map[string]any{"code": -16, "message": "busy"}})
		if _, err := d.Expose(t.Context(), vfOf("d")); err == nil || !provisioner.Uncertain(err) {
			if method != "nvme_namespace_create" { // claimed by others: final
				t.Fatalf("expose with %s failing: %v", method, err)
			}
		}
		calls := s.calls()
		for _, later := range up[i+1:] {
			if calls[later] != 0 {
				t.Fatalf("%s was called before %s", later, method)
			}
		}
		s.call("moor_clear", nil)
	}
	if _, err := d.Expose(t.Context(), vfOf("d")); err != nil {
		t.Fatal(err)
	}
	before := s.calls()
	down := []string{"nvme_controller_detach_ns", "nvme_controller_destroy", "nvme_namespace_destroy", "nvme_subsystem_destroy"}
	for i, method := range down {
		s.inject(map[string]any{"method": method, "count": -1, "error": map[string]any{"code": -16, "message": "busy"}})
		if err := d.Withdraw(t.Context(), "d"); err == nil {
			t.Fatalf("withdraw with %s failing is success", method)
		}
		calls := s.calls()
		for _, later := range down[i+1:] {
			if calls[later] != before[later] {
				t.Fatalf("%s was called before %s", later, method)
			}
		}
		s.call("moor_clear", nil)
	}
	if err := d.Withdraw(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	s.wantEmpty()
}

func TestWithdrawWhatListNames(t *testing.T) {
	s := newService(t)
	if err := s.rpc.NvmeSubsystemCreate(t.Context(), nvme.NQN("d")); err != nil {
		t.Fatal(err)
	}
	d := New(s.rpc, service.Options{})
	got, err := d.List(t.Context())
	if err != nil || len(got) != 1 || got[0].Device != nvme.NQN("d") {
		t.Fatalf("list: %+v, %v", got, err)
	}
	if err := d.Withdraw(t.Context(), got[0].Device); err != nil {
		t.Fatal(err)
	}
	s.wantEmpty()
}

func TestParameters(t *testing.T) {
	s := newService(t)
	s.addDevice("d")
	d := New(s.rpc, service.Options{})
	spec := vfOf("d")
	spec.Parameters = map[string]string{"num_queues": "4", "no_such_thing": "1"}
	_, err := d.Expose(t.Context(), spec)
	if !errors.Is(err, provisioner.ErrInvalid) || !strings.Contains(err.Error(), "no_such_thing, num_queues") {
		t.Fatalf("unknown parameter: %v", err)
	}
	s.wantEmpty()
	delete(spec.Parameters, "no_such_thing")
	if _, err = d.Expose(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	subsystems, err := s.rpc.NvmeSubsystemList(t.Context())
	if err != nil || subsystems[1].Controllers[0].NumQueues != 4 {
		t.Fatalf("num_queues did not arrive: %+v, %v", subsystems, err)
	}
}

func TestRefusedSpecs(t *testing.T) {
	s := newService(t)
	d := New(s.rpc, service.Options{})
	cases := map[string]struct {
		spec provisioner.ExposeSpec
		err  error
	}{
		"no device":   {provisioner.ExposeSpec{FunctionType: provisioner.VF}, provisioner.ErrInvalid},
		"no type":     {provisioner.ExposeSpec{Device: "d"}, provisioner.ErrInvalid},
		"hot-plug VF": {provisioner.ExposeSpec{Device: "d", FunctionType: provisioner.VF, Hotplug: true}, provisioner.ErrInvalid},
		"hot-plug PF": {provisioner.ExposeSpec{Device: "d", FunctionType: provisioner.PF, Hotplug: true}, provisioner.ErrNotFound},
		"a function":  {vfOf("function:MT1"), provisioner.ErrInvalid},
		"an NQN":      {vfOf(nvme.NQN("d")), provisioner.ErrInvalid},
	}
	for name, c := range cases {
		if _, err := d.Expose(t.Context(), c.spec); !errors.Is(err, c.err) {
			t.Errorf("%s: got %v, want %v", name, err, c.err)
		}
	}
	s.emu.Stop()
	if _, err := d.Expose(t.Context(), vfOf("d")); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Errorf("expose without a service: %v", err)
	}
	if err := d.Withdraw(t.Context(), "d"); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Errorf("withdraw without a service: %v", err)
	}
}

// TestManyAtOnce lets exposures compete for functions: no two get the same,
// and those beyond the last are refused and leave nothing.
func TestManyAtOnce(t *testing.T) {
	s := newService(t)
	d := New(s.rpc, service.Options{})
	const n = 8 // of 4 functions
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen, refused := map[string]string{}, 0
	for i := range n {
		device := fmt.Sprintf("d%d", i)
		s.addDevice(device)
		wg.Go(func() {
			e, err := d.Expose(t.Context(), vfOf(device))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, provisioner.ErrExhausted):
				refused++
			case err != nil || seen[e.PCIAddress] != "":
				t.Errorf("%s: %+v, %v; %s has it", device, e, err, seen[e.PCIAddress])
			default:
				seen[e.PCIAddress] = device
			}
		})
	}
	wg.Wait()
	left, err := d.List(t.Context())
	if err != nil || len(left) != 4 || len(seen) != 4 || refused != 4 {
		t.Fatalf("%d exposed, %d refused, %d listed: %v", len(seen), refused, len(left), err)
	}
}
