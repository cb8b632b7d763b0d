package snapemulator_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

const hotplugAddress = "0000:30:00.0"

func startHotplug(t *testing.T, delay time.Duration) *snapemulatortest.Service {
	t.Helper()
	h := snapemulator.Hotplug{Slots: 31, Delay: delay, StateFile: filepath.Join(t.TempDir(), "functions.json")}
	return snapemulatortest.Start(t, snapemulator.Options{Hotplug: h})
}

// plugIn shows a bdev called vol on a hot-plugged function, and returns its
// controller and VUID.
func plugIn(t *testing.T, s *snapemulatortest.Service, wait bool) (ctrl, vuid string) {
	t.Helper()
	ctx := t.Context()
	if _, err := s.BdevAioCreate(ctx, snaprpc.AIOSpec{Name: "vol", Filename: snapemulatortest.File(t, 1<<20)}); err != nil {
		t.Fatal(err)
	}
	vuid, err := s.NvmeFunctionCreate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	steps := []func() error{
		func() error { return s.NvmeSubsystemCreate(ctx, "nqn.vol") },
		func() error {
			return s.NvmeNamespaceCreate(ctx, snaprpc.NamespaceSpec{NQN: "nqn.vol", NSID: 1, BdevName: "vol"})
		},
		func() (err error) {
			ctrl, err = s.NvmeControllerCreate(ctx, snaprpc.ControllerSpec{NQN: "nqn.vol", VUID: vuid})
			return err
		},
		func() error { return s.NvmeControllerAttachNS(ctx, ctrl, 1) },
		func() error {
			return s.Call(ctx, "nvme_controller_hotplug", map[string]any{"ctrl_id": ctrl, "wait_for_done": wait}, nil)
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return ctrl, vuid
}

func pciDir(s *snapemulatortest.Service) string {
	return filepath.Join(s.Options.SysfsRoot, "bus/pci/devices", hotplugAddress)
}

// TestHostSeesWhatIsPlugged: the function is in the host's sysfs, with its
// driver and namespace, for as long as it is plugged in.
func TestHostSeesWhatIsPlugged(t *testing.T) {
	s := startHotplug(t, 20*time.Millisecond)
	ctrl, vuid := plugIn(t, s, true)
	ns := filepath.Join(pciDir(s), "nvme/nvme129/nvme129n1")
	for _, path := range []string{ns, filepath.Join(s.Options.DevRoot, "nvme129n1"), filepath.Join(s.Options.SysfsRoot, "bus/pci/drivers/nvme", hotplugAddress)} {
		if !exists(path) {
			t.Errorf("the host does not see %s", path)
		}
	}
	if exists(filepath.Join(pciDir(s), "sriov_totalvfs")) {
		t.Error("a hot-plugged function has no virtual ones")
	}
	if err := s.Call(t.Context(), "nvme_controller_hotunplug", map[string]any{"ctrl_id": ctrl, "wait_for_done": true}, nil); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(s.Options.SysfsRoot, "*/pci/*/*"+hotplugAddress))
	blocks, err2 := filepath.Glob(filepath.Join(s.Options.SysfsRoot, "*/nvme*"))
	nodes, err3 := filepath.Glob(filepath.Join(s.Options.DevRoot, "nvme*"))
	if all := append(append(left, blocks...), nodes...); len(all) != 0 || err != nil || err2 != nil || err3 != nil {
		t.Errorf("after it is unplugged the host sees %v", all)
	}
	if err := s.NvmeControllerDestroy(t.Context(), ctrl, true); err != nil {
		t.Fatal(err)
	}
	if err := s.NvmeFunctionDestroy(t.Context(), vuid); err != nil {
		t.Fatal(err)
	}
}

// TestUnplugWaitsForTheHostAlone: a caller that waits for a host that hangs
// does not hold up the service.
func TestUnplugWaitsForTheHostAlone(t *testing.T) {
	s := startHotplug(t, 0)
	ctrl, _ := plugIn(t, s, false)
	if err := s.Call(t.Context(), "moor_host", map[string]any{"answers": false}, nil); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		done <- s.Call(ctx, "nvme_controller_hotunplug", map[string]any{"ctrl_id": ctrl, "wait_for_done": true}, nil)
	}()
	if err := s.NvmeControllerDetachNS(t.Context(), ctrl, 1); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		t.Fatalf("answered before the host did: %v", err)
	default:
	}
	if err := s.Call(t.Context(), "moor_host", map[string]any{"answers": true}, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	params := map[string]any{"ctrl_id": ctrl, "wait_for_done": true, "timeout": 10}
	for _, answers := range []bool{false, true} {
		if err := s.Call(t.Context(), "moor_host", map[string]any{"answers": answers}, nil); err != nil {
			t.Fatal(err)
		}
		if answers {
			break
		}
		if err := s.Call(t.Context(), "nvme_controller_hotplug", params, nil); err == nil {
			t.Fatal("plugged into a host that hangs")
		}
	}
}

// TestRestartKeepsHotplugged: after a restart the functions are where they
// were, in the host too, and controllers and namespaces are gone.
func TestRestartKeepsHotplugged(t *testing.T) {
	s := startHotplug(t, 0)
	plugIn(t, s, true)
	before, err := s.EmulationFunctionList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Restart()
	after, err := s.EmulationFunctionList(t.Context())
	before[1].CtrlID = ""
	if diff := cmp.Diff(before, after); err != nil || diff != "" {
		t.Fatalf("%v, (-before +after):\n%s", err, diff)
	}
	if !exists(pciDir(s)) || exists(filepath.Join(pciDir(s), "nvme")) {
		t.Error("the host sees no function, or a controller that is gone")
	}
	s.Stop()
	if err := os.WriteFile(s.Options.Hotplug.StateFile, []byte("[{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := snapemulator.New(s.Options); err == nil {
		t.Error("starts over a broken state file")
	}
}

// TestVolumesAreFoundByUUID: after a power cycle the functions come back in
// another order, and the host finds each volume all the same, never another.
func TestVolumesAreFoundByUUID(t *testing.T) {
	s := startHotplug(t, 0)
	ids := []string{"aaaaaaaa-0000-4000-8000-00000000000a", "bbbbbbbb-0000-4000-8000-00000000000b"}
	show := func(uuid string) {
		t.Helper()
		ctx, name := t.Context(), "vol-"+uuid[:1]
		vuid, err := s.NvmeFunctionCreate(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.BdevAioCreate(ctx, snaprpc.AIOSpec{Name: name, Filename: snapemulatortest.File(t, 1<<20)}); err != nil {
			t.Fatal(err)
		}
		nqn := "nqn." + name
		if err := errors.Join(s.NvmeSubsystemCreate(ctx, nqn), s.NvmeNamespaceCreate(ctx, snaprpc.NamespaceSpec{NQN: nqn, NSID: 1, UUID: uuid, BdevName: name})); err != nil {
			t.Fatal(err)
		}
		ctrl, err := s.NvmeControllerCreate(ctx, snaprpc.ControllerSpec{NQN: nqn, VUID: vuid})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.NvmeControllerAttachNS(ctx, ctrl, 1), s.NvmeControllerHotplug(ctx, ctrl)); err != nil {
			t.Fatal(err)
		}
	}
	finder := hostdev.Finder{Roots: hostdev.Roots{Sysfs: s.Options.SysfsRoot, Dev: s.Options.DevRoot}}
	at := func(uuid, recorded string) string {
		t.Helper()
		b, err := finder.Seek(hostdev.Identity{Address: recorded, NamespaceID: 1, UUID: uuid})
		if err != nil {
			t.Fatal(err)
		}
		return b.Address
	}
	show(ids[0])
	show(ids[1])
	was := []string{at(ids[0], "30:00.0"), at(ids[1], "31:00.0")}
	s.Stop()
	if err := os.Remove(s.Options.Hotplug.StateFile); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	show(ids[1])
	if b, err := finder.Seek(hostdev.Identity{Address: was[0], NamespaceID: 1, UUID: ids[0]}); !errors.Is(err, hostdev.ErrAbsent) {
		t.Fatalf("the volume of another was found: %+v, %v", b, err)
	}
	show(ids[0])
	if now := []string{at(ids[0], was[0]), at(ids[1], was[1])}; now[0] != was[1] || now[1] != was[0] {
		t.Fatalf("before at %v, after at %v", was, now)
	}
}
