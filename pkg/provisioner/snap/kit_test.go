package snap

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap/nvme"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Most of the time is that of answers that never come.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// testService is an emulated SNAP service that can be restarted.
type testService struct {
	t      *testing.T
	emu    *snapemulatortest.Service
	rpc    *snaprpc.Client
	socket string
	// hasty: calls are given up early.
	hasty bool
}

func newService(t *testing.T) *testService { t.Helper(); return serviceWith(t, snapemulator.Options{}) }

func serviceWith(t *testing.T, o snapemulator.Options) *testService {
	t.Helper()
	o.NewUUID = uuid.NewString
	if o.Hotplug.Slots > 0 {
		o.Hotplug.StateFile = filepath.Join(t.TempDir(), "functions.json")
	}
	emu := snapemulatortest.Start(t, o)
	return &testService{t: t, emu: emu, rpc: emu.Client, socket: emu.Options.Socket}
}

// exposeAll shows new devices, and returns what was asked for, with the identity
// that each was given, and what is shown.
func (s *testService) exposeAll(d *DPU, spec func(string) provisioner.ExposeSpec, names ...string) (specs []provisioner.ExposeSpec, shown []provisioner.Exposure) {
	s.t.Helper()
	for _, name := range names {
		s.addDevice(name)
		spec := spec(name)
		e, err := d.Expose(s.t.Context(), spec)
		if err != nil {
			s.t.Fatal(err)
		}
		spec.PCIAddress, spec.NamespaceID, spec.UUID = e.PCIAddress, e.NamespaceID, e.UUID
		specs, shown = append(specs, spec), append(shown, e)
	}
	return specs, shown
}

// exposeAgain shows devices that a restart has taken, in the order turned round, where they were.
func (s *testService) exposeAgain(d *DPU, specs []provisioner.ExposeSpec) {
	s.t.Helper()
	for _, spec := range slices.Backward(specs) {
		s.addDevice(spec.Device)
		spec.Recover = func(context.Context) error { return nil }
		if _, err := d.Expose(s.t.Context(), spec); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *testService) call(method string, params any) json.RawMessage {
	s.t.Helper()
	var out json.RawMessage
	if err := s.rpc.Call(context.Background(), method, params, &out); err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *testService) addDevice(name string) {
	s.t.Helper()
	s.call("bdev_null_create", map[string]any{"name": name, "num_blocks": 2048, "block_size": 512})
}

// wantEmpty fails if anything of a volume is left, or a function is taken.
func (s *testService) wantEmpty() {
	s.t.Helper()
	subsystems, err := s.rpc.NvmeSubsystemList(context.Background())
	if err != nil || len(subsystems) != 1 || len(subsystems[0].Controllers) != 1 || len(subsystems[0].Namespaces) != 0 {
		s.t.Fatalf("left behind: %+v, %v", subsystems, err)
	}
}

func vfOf(device string) provisioner.ExposeSpec {
	return provisioner.ExposeSpec{Device: device, FunctionType: provisioner.VF}
}

func (s *testService) inject(fault map[string]any) { s.t.Helper(); s.call("moor_inject", fault) }

func (s *testService) calls() map[string]int {
	s.t.Helper()
	var state struct {
		Calls map[string]int `json:"calls"`
	}
	if err := json.Unmarshal(s.call("moor_state", nil), &state); err != nil {
		s.t.Fatal(err)
	}
	return state.Calls
}

var methods = []string{
	"nvme_subsystem_list", "nvme_subsystem_create", "nvme_namespace_create", "emulation_function_list", "nvme_controller_create",
	"nvme_controller_attach_ns", "nvme_controller_resume", "nvme_controller_detach_ns", "nvme_controller_destroy",
	"nvme_namespace_destroy", "nvme_subsystem_destroy",
}

// untilDone repeats act, as a controller does, a few times: as often as it takes within a minute if calls
// are given up early, which a busy machine has happen to those too that would be answered.
func (s *testService) untilDone(act func() error) bool {
	s.t.Helper()
	var err error
	end := time.Now().Add(time.Minute)
	for n := 0; n < 6 || s.hasty && time.Now().Before(end); n++ {
		if err = act(); err == nil {
			return true
		}
	}
	s.t.Fatalf("does not converge: %v", err)
	return false
}

// clientFor calls a service that has a fault: what never answers is not waited for long, and all else as long
// as a busy machine needs.
func (s *testService) clientFor(fault map[string]any) *snaprpc.Client {
	if s.hasty = fault["hang"] == true; s.hasty {
		return snaprpc.New(s.socket, 300*time.Millisecond)
	}
	return snaprpc.New(s.socket, time.Minute)
}

func plugged(device string) provisioner.ExposeSpec {
	return provisioner.ExposeSpec{Device: device, FunctionType: provisioner.PF, Hotplug: true}
}

// families are the two ways to plug in, and the service that has both.
var families = []string{snapemulator.FamilySNAP, snapemulator.FamilyLegacy, snapemulator.FamilyBoth}

func hotplugService(t *testing.T, family string, delay time.Duration) *testService {
	t.Helper()
	return serviceWith(t, snapemulator.Options{VFs: 4, PFs: 2, Hotplug: snapemulator.Hotplug{Slots: 4, Family: family, Delay: delay}})
}

// hotplugged returns the hot-plugged functions there are.
func (s *testService) hotplugged() []snaprpc.Function {
	s.t.Helper()
	all, err := s.rpc.EmulationFunctionList(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	var out []snaprpc.Function
	for _, f := range all {
		if f.Hotplugged {
			out = append(out, f)
		}
	}
	return out
}

// sweep withdraws what is listed until nothing is, as the node driver does with
// what belongs to no attachment.
func (s *testService) sweep(d *DPU) {
	s.t.Helper()
	s.untilDone(func() error {
		all, err := d.List(s.t.Context())
		for _, e := range all {
			err = errors.Join(err, d.Withdraw(s.t.Context(), e.Device))
		}
		if left, listErr := d.List(s.t.Context()); err == nil && (listErr != nil || len(left) > 0) {
			return fmt.Errorf("left: %+v, %v", left, listErr)
		}
		return err
	})
	s.wantEmpty()
	if left := s.hotplugged(); len(left) != 0 {
		s.t.Fatalf("functions left: %+v", left)
	}
}

// vuid is that of the physical function which has the device's controller, or of
// whose virtual functions one has it.
func (s *testService) vuid(device string) string {
	s.t.Helper()
	functions, err := s.rpc.EmulationFunctionList(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	subsystems, err := s.rpc.NvmeSubsystemList(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, sub := range subsystems {
		if sub.NQN != nvme.NQN(device) || len(sub.Controllers) == 0 {
			continue
		}
		for _, pf := range functions {
			for _, f := range append([]snaprpc.Function{pf}, pf.VFs...) {
				if f.CtrlID == sub.Controllers[0].CtrlID {
					return pf.VUID
				}
			}
		}
	}
	s.t.Fatalf("no function has the controller of %s", device)
	return ""
}
