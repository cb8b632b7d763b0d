package snap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/moor-storage/moor/internal/snapemu"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is an emulated SNAP service that can be restarted.
type service struct {
	t      *testing.T
	socket string
	rpc    *snaprpc.Client
	stop   func()
	// options are those of the emulator.
	options snapemu.Options
}

func newService(t *testing.T) *service { t.Helper(); return serviceWith(t, snapemu.Options{VFs: 4}) }

func serviceWith(t *testing.T, o snapemu.Options) *service {
	t.Helper()
	dir, err := os.MkdirTemp("", "snap") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	o.Name, o.Socket, o.Log = "dpu-1", filepath.Join(dir, "s"), logr.Discard()
	if o.Hotplug.Slots > 0 {
		o.Hotplug.StateFile = filepath.Join(dir, "functions.json")
	}
	s := &service{t: t, socket: o.Socket, options: o}
	s.rpc = snaprpc.New(s.socket, 10*time.Second)
	s.start()
	t.Cleanup(func() {
		s.stop()
		os.RemoveAll(dir)
	})
	return s
}

func (s *service) start() {
	s.t.Helper()
	e, err := snapemu.New(s.options)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	s.stop = func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("emulator: %v", err)
		}
		s.stop = func() {}
	}
}

func (s *service) restart() { s.stop(); s.start() }

func (s *service) call(method string, params any) json.RawMessage {
	s.t.Helper()
	var out json.RawMessage
	if err := s.rpc.Call(context.Background(), method, params, &out); err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *service) addDevice(name string) {
	s.t.Helper()
	s.call("bdev_null_create", map[string]any{"name": name, "num_blocks": 2048, "block_size": 512})
}

// wantEmpty fails if anything of a volume is left, or a function is taken.
func (s *service) wantEmpty() {
	s.t.Helper()
	subsystems, err := s.rpc.NvmeSubsystemList(context.Background())
	if err != nil || len(subsystems) != 1 || len(subsystems[0].Controllers) != 1 || len(subsystems[0].Namespaces) != 0 {
		s.t.Fatalf("left behind: %+v, %v", subsystems, err)
	}
}

func vfOf(device string) provisioner.ExposeSpec {
	return provisioner.ExposeSpec{Device: device, FunctionType: provisioner.VF}
}

func TestContract(t *testing.T) {
	provisionertest.TestDPU(t, func(t *testing.T) provisionertest.DPUUnderTest {
		s := newService(t)
		return provisionertest.DPUUnderTest{DPU: New(s.rpc, Options{}), Prepare: func(_ *testing.T, name string) provisioner.ExposeSpec {
			s.addDevice(name)
			return vfOf(name)
		}}
	})
}

func TestExposeNames(t *testing.T) {
	s := newService(t)
	s.addDevice("nvme_a")
	e, err := New(s.rpc, Options{}).Expose(t.Context(), vfOf("nvme_a"))
	if err != nil {
		t.Fatal(err)
	}
	id, err := uuid.Parse(e.UUID)
	if err != nil || id.Version() != 4 || e.NamespaceID != 1 || e.PCIAddress != "26:00.2" {
		t.Fatalf("got %+v", e)
	}
	subsystems, err := s.rpc.NvmeSubsystemList(t.Context())
	if err != nil || len(subsystems) != 2 || subsystems[1].NQN != NQN("nvme_a") {
		t.Fatalf("got %+v, %v", subsystems, err)
	}
}

// TestOrder holds the calls that change something to DPF's order, both ways.
func TestOrder(t *testing.T) {
	s := newService(t)
	s.addDevice("d")
	d := New(s.rpc, Options{})
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

func (s *service) inject(fault map[string]any) { s.t.Helper(); s.call("moor_inject", fault) }

func (s *service) calls() map[string]int {
	s.t.Helper()
	var state struct {
		Calls map[string]int `json:"calls"`
	}
	if err := json.Unmarshal(s.call("moor_state", nil), &state); err != nil {
		s.t.Fatal(err)
	}
	return state.Calls
}

// faultKinds are the ways in which a call goes wrong.
var faultKinds = map[string]map[string]any{
	"error before":      {"error": map[string]any{"code": -5, "message": "Input/output error"}},
	"error after":       {"when": "after", "error": map[string]any{"code": -5, "message": "Input/output error"}},
	"refused before":    {"error": map[string]any{"code": -22, "message": "Invalid parameters"}},
	"refused after":     {"when": "after", "error": map[string]any{"code": -22, "message": "Invalid parameters"}},
	"exists after":      {"when": "after", "error": map[string]any{"code": -17, "message": "File exists"}},
	"not found before":  {"error": map[string]any{"code": -2, "message": "No such file or directory"}},
	"hang before":       {"hang": true},
	"hang after":        {"when": "after", "hang": true},
	"garbage":           {"when": "after", "garbage": true},
	"half an answer":    {"when": "after", "half": true},
	"drop before":       {"drop": true},
	"drop after":        {"when": "after", "drop": true},
	"error three times": {"count": 3, "error": map[string]any{"code": -5, "message": "Input/output error"}},
}

var methods = []string{
	"nvme_subsystem_list", "nvme_subsystem_create", "nvme_namespace_create", "emulation_function_list", "nvme_controller_create",
	"nvme_controller_attach_ns", "nvme_controller_resume", "nvme_controller_detach_ns", "nvme_controller_destroy",
	"nvme_namespace_destroy", "nvme_subsystem_destroy",
}

// TestFaults lets every call go wrong in every way, while exposing and while
// withdrawing: the repeated call converges and nothing is left behind.
func TestFaults(t *testing.T) {
	for _, method := range methods {
		for kind, fault := range faultKinds {
			t.Run(method+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s := newService(t)
				s.addDevice("d")
				d := New(snaprpc.New(s.socket, 300*time.Millisecond), Options{})
				full := map[string]any{"method": method}
				for k, v := range fault {
					full[k] = v
				}
				s.inject(full)
				exposed := true
				for _, hidden := range []bool{true, false, true, false} {
					spec := vfOf("d")
					spec.Hidden = hidden
					exposed = exposed && s.untilDone(func() error {
						e, err := d.Expose(t.Context(), spec)
						if err != nil && !provisioner.Uncertain(err) {
							s.wantEmpty()
						}
						if err == nil && (e.Hidden != hidden || e.Visible == hidden) {
							t.Errorf("hidden is %v, got %+v", hidden, e)
						}
						return err
					})
					s.call("moor_clear", nil)
					s.inject(full)
				}
				s.call("moor_clear", nil)
				s.inject(full)
				s.untilDone(func() error { return d.Withdraw(t.Context(), "d") })
				s.call("moor_clear", nil)
				s.wantEmpty()
				if !exposed {
					t.Fatal("never exposed")
				}
			})
		}
	}
}

// untilDone repeats act, as a controller does, a few times.
func (s *service) untilDone(act func() error) bool {
	s.t.Helper()
	var err error
	for range 6 {
		if err = act(); err == nil {
			return true
		}
	}
	s.t.Fatalf("does not converge: %v", err)
	return false
}

// TestAdopt starts an exposure at every half-made state that a crash leaves.
func TestAdopt(t *testing.T) {
	for made := range 5 {
		t.Run(fmt.Sprintf("%d steps", made), func(t *testing.T) {
			s := newService(t)
			s.addDevice("d")
			const id = "8d6c8ff0-6f0a-4a5e-9a39-000000000001"
			ctrl := ""
			steps := []func() error{
				func() error { return s.rpc.NvmeSubsystemCreate(t.Context(), NQN("d")) },
				func() error {
					return s.rpc.NvmeNamespaceCreate(t.Context(), snaprpc.NamespaceSpec{NQN: NQN("d"), NSID: 1, UUID: id, BdevName: "d"})
				},
				func() (err error) {
					ctrl, err = s.rpc.NvmeControllerCreate(t.Context(), snaprpc.ControllerSpec{NQN: NQN("d"), PCIBDF: "26:00.4", Suspended: true})
					return err
				},
				func() error { return s.rpc.NvmeControllerAttachNS(t.Context(), ctrl, 1) },
			}
			for _, step := range steps[:made] {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			d := New(s.rpc, Options{})
			partial, err := d.List(t.Context())
			if err != nil || len(partial) != min(made, 1) || (made > 0 && partial[0].Visible) {
				t.Fatalf("list: %+v, %v", partial, err)
			}
			e, err := d.Expose(t.Context(), vfOf("d"))
			if err != nil || !e.Visible || (made >= 2 && e.UUID != id) || (made >= 3 && e.PCIAddress != "26:00.4") {
				t.Fatalf("expose: %+v, %v", e, err)
			}
		})
	}
}

func TestWithdrawWhatListNames(t *testing.T) {
	s := newService(t)
	if err := s.rpc.NvmeSubsystemCreate(t.Context(), NQN("d")); err != nil {
		t.Fatal(err)
	}
	d := New(s.rpc, Options{})
	got, err := d.List(t.Context())
	if err != nil || len(got) != 1 || got[0].Device != NQN("d") {
		t.Fatalf("list: %+v, %v", got, err)
	}
	if err := d.Withdraw(t.Context(), got[0].Device); err != nil {
		t.Fatal(err)
	}
	s.wantEmpty()
}

func TestIdentityOverRestart(t *testing.T) {
	s := newService(t)
	d := New(s.rpc, Options{})
	var specs []provisioner.ExposeSpec
	var want []provisioner.Exposure
	for _, name := range []string{"a", "b", "c"} {
		s.addDevice(name)
		e, err := d.Expose(t.Context(), vfOf(name))
		if err != nil {
			t.Fatal(err)
		}
		spec := vfOf(name)
		spec.PCIAddress, spec.NamespaceID, spec.UUID = e.PCIAddress, e.NamespaceID, e.UUID
		specs, want = append(specs, spec), append(want, e)
	}
	s.restart()
	slices.Reverse(specs)
	for _, spec := range specs {
		s.addDevice(spec.Device)
		if _, err := d.Expose(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	got, err := d.List(t.Context())
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Fatalf("%v, (-before +after):\n%s", err, diff)
	}
}

func TestRecordedIdentityInTheWay(t *testing.T) {
	s := newService(t)
	d := New(s.rpc, Options{})
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
	if err := s.rpc.NvmeSubsystemCreate(t.Context(), NQN("d")); err != nil {
		t.Fatal(err)
	}
	if err := s.rpc.NvmeNamespaceCreate(t.Context(), snaprpc.NamespaceSpec{NQN: NQN("d"), NSID: 7, UUID: uuid.NewString(), BdevName: "d"}); err != nil {
		t.Fatal(err)
	}
	spec := vfOf("d")
	spec.PCIAddress, spec.NamespaceID, spec.UUID = "26:00.5", 1, uuid.NewString()
	e, err := New(s.rpc, Options{}).Expose(t.Context(), spec)
	want := provisioner.Exposure{Device: "d", PCIAddress: "26:00.5", NamespaceID: 1, UUID: spec.UUID, Visible: true}
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
	d := New(s.rpc, Options{})
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

func TestParameters(t *testing.T) {
	s := newService(t)
	s.addDevice("d")
	d := New(s.rpc, Options{})
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
	d := New(s.rpc, Options{})
	cases := map[string]struct {
		spec provisioner.ExposeSpec
		err  error
	}{
		"no device":   {provisioner.ExposeSpec{FunctionType: provisioner.VF}, provisioner.ErrInvalid},
		"no type":     {provisioner.ExposeSpec{Device: "d"}, provisioner.ErrInvalid},
		"hot-plug VF": {provisioner.ExposeSpec{Device: "d", FunctionType: provisioner.VF, Hotplug: true}, provisioner.ErrInvalid},
		"hot-plug PF": {provisioner.ExposeSpec{Device: "d", FunctionType: provisioner.PF, Hotplug: true}, provisioner.ErrNotFound},
		"a function":  {vfOf("function:MT1"), provisioner.ErrInvalid},
		"an NQN":      {vfOf(NQN("d")), provisioner.ErrInvalid},
	}
	for name, c := range cases {
		if _, err := d.Expose(t.Context(), c.spec); !errors.Is(err, c.err) {
			t.Errorf("%s: got %v, want %v", name, err, c.err)
		}
	}
	s.stop()
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
	d := New(s.rpc, Options{})
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
			if errors.Is(err, provisioner.ErrExhausted) {
				refused++
			} else if err != nil || seen[e.PCIAddress] != "" {
				t.Errorf("%s: %+v, %v; %s has it", device, e, err, seen[e.PCIAddress])
			} else {
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
