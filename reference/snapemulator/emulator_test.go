package snapemulator_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/showlog"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/datapath"
	"github.com/moor-storage/moor/reference/snapemulator/fault"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

// expose shows a file of size bytes at bdf under the bdev's name and returns
// the controller.
func expose(t *testing.T, s *snapemulatortest.Service, name, bdf string, size int64) string {
	t.Helper()
	ctx, nqn := t.Context(), "nqn.2022-10.io.nvda.nvme:dpf-"+name
	_, err := s.BdevAioCreate(ctx, snaprpc.AIOSpec{Name: name, Filename: snapemulatortest.File(t, size)})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.NvmeSubsystemCreate(ctx, nqn),
		s.NvmeNamespaceCreate(ctx, snaprpc.NamespaceSpec{NQN: nqn, NSID: 1, BdevName: name})); err != nil {
		t.Fatal(err)
	}
	ctrl, err := s.NvmeControllerCreate(ctx, snaprpc.ControllerSpec{NQN: nqn, PCIBDF: bdf, Suspended: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.NvmeControllerAttachNS(ctx, ctrl, 1), s.NvmeControllerResume(ctx, ctrl)); err != nil {
		t.Fatal(err)
	}
	return ctrl
}

func nsDir(s *snapemulatortest.Service) string {
	return filepath.Join(s.Options.SysfsRoot, "bus/pci/drivers/nvme/0000:26:00.2/nvme/nvme1/nvme1n1")
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// eventually polls for cond to come true within a minute.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	tick, deadline := time.NewTicker(2*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within a minute", what)
		case <-tick.C:
		}
	}
}

func TestHostView(t *testing.T) {
	s := snapemulatortest.Start(t, snapemulator.Options{})
	ctrl := expose(t, s, "vol", "26:00.2", 1<<20)
	pci := filepath.Join(s.Options.SysfsRoot, "bus/pci/devices/0000:26:00.2")
	got := map[string]string{}
	for _, path := range []string{
		pci + "/vendor", pci + "/device", pci + "/class", pci + "/physfn/sriov_numvfs",
		nsDir(s) + "/nsid", nsDir(s) + "/size", nsDir(s) + "/queue/logical_block_size",
		filepath.Join(s.Options.SysfsRoot, "class/block/nvme1n1/wwid"),
	} {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		got[filepath.Base(path)] = strings.TrimSpace(string(raw))
	}
	want := map[string]string{
		"vendor": "0x15b3", "device": "0x6001", "class": "0x010802", "sriov_numvfs": "4", "nsid": "1",
		"size": "2048", "logical_block_size": "512", "wwid": "uuid.00000000-0000-4000-8000-000000000002",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if driver, err := os.Readlink(pci + "/driver"); err != nil || filepath.Base(driver) != "nvme" {
		t.Errorf("driver is %q, %v", driver, err)
	}
	node := filepath.Join(s.Options.DevRoot, "nvme1n1")
	if st, err := os.Stat(node); err != nil || st.Size() != 1<<20 {
		t.Errorf("device file: %v, %v", st, err)
	}
	finder := hostdev.Finder{Roots: hostdev.Roots{Sysfs: s.Options.SysfsRoot, Dev: s.Options.DevRoot}}
	if b, err := finder.Find("26:00.2", 1); err != nil || b.Path != node || b.SizeBytes != 1<<20 {
		t.Errorf("the host plugin finds %+v, %v", b, err)
	}
	if err := s.NvmeControllerDetachNS(t.Context(), ctrl, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := finder.Find("26:00.2", 1); !errors.Is(err, hostdev.ErrAbsent) {
		t.Errorf("the host plugin finds a detached namespace: %v", err)
	}
	if exists(nsDir(s)) || exists(node) || !exists(filepath.Dir(nsDir(s))) {
		t.Error("after the detach, the namespace is there or the controller is not")
	}
	if err := s.NvmeControllerDestroy(t.Context(), ctrl, false); err != nil {
		t.Fatal(err)
	}
	if exists(filepath.Dir(nsDir(s))) {
		t.Error("the controller is there after it was destroyed")
	}
}

func TestUnbindAndBind(t *testing.T) {
	s := snapemulatortest.Start(t, snapemulator.Options{})
	expose(t, s, "vol", "26:00.2", 1<<20)
	driver := filepath.Join(s.Options.SysfsRoot, "bus/pci/drivers/nvme")
	device := filepath.Join(s.Options.SysfsRoot, "bus/pci/devices/0000:26:00.2")
	write := func(path, text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(device, "driver/unbind"), "0000:26:00.2")
	eventually(t, "unbound", func() bool {
		return !exists(nsDir(s)) && !exists(filepath.Join(device, "driver")) && !exists(filepath.Join(s.Options.DevRoot, "nvme1n1"))
	})
	write(filepath.Join(device, "driver_override"), "nvme\n")
	write(filepath.Join(driver, "bind"), "0000:26:00.2\n")
	eventually(t, "bound again", func() bool {
		return exists(nsDir(s)) && exists(filepath.Join(device, "driver")) && exists(filepath.Join(s.Options.DevRoot, "nvme1n1"))
	})
	write(filepath.Join(driver, "unbind"), "../../../../etc 0000:ff:00.0")
	eventually(t, "foreign addresses taken", func() bool {
		raw, err := os.ReadFile(filepath.Join(driver, "unbind"))
		return err == nil && len(raw) == 0
	})
	if !exists(nsDir(s)) {
		t.Error("an unknown address unbound a known one")
	}
}

func TestLinkCut(t *testing.T) {
	s := snapemulatortest.Start(t, snapemulator.Options{})
	expose(t, s, "vol", "26:00.2", 1<<20)
	link := func(up bool) {
		t.Helper()
		if err := s.Call(t.Context(), "moor_link", map[string]any{"up": up}, nil); err != nil {
			t.Fatal(err)
		}
	}
	link(false)
	if exists(nsDir(s)) {
		t.Error("the host sees the namespace through a cut link")
	}
	subs, err := s.NvmeSubsystemList(t.Context())
	if err != nil || len(subs) != 2 || len(subs[1].Namespaces[0].Controllers) != 1 {
		t.Errorf("the service forgot what it exposes: %+v, %v", subs, err)
	}
	link(true)
	if !exists(nsDir(s)) {
		t.Error("the namespace is not back after the link is")
	}
}

func TestPendingFunction(t *testing.T) {
	s := snapemulatortest.Start(t, snapemulator.Options{})
	pf, err := s.EmulationFunctionList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	vf := pf[0].VFs[0]
	if err := s.Call(t.Context(), "moor_pending", map[string]any{"vuid": vf.VUID, "pending": true}, nil); err != nil {
		t.Fatal(err)
	}
	pf, err = s.EmulationFunctionList(t.Context())
	if err != nil || pf[0].VFs[0].PCIBDF != snaprpc.PendingBDF {
		t.Errorf("got %+v, %v", pf[0].VFs[0], err)
	}
	_, err = s.NvmeControllerCreate(t.Context(), snaprpc.ControllerSpec{NQN: "nqn.2022-10.io.nvda.nvme:0", PCIBDF: vf.PCIBDF})
	if !snaprpc.IsNotFound(err) {
		t.Errorf("a controller at the address it had: %v", err)
	}
}

func TestRestartForgetsAllButFunctions(t *testing.T) {
	s := snapemulatortest.Start(t, snapemulator.Options{})
	before, err := s.EmulationFunctionList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	expose(t, s, "vol", "26:00.2", 1<<20)
	s.Restart()
	after, err := s.EmulationFunctionList(t.Context())
	if err != nil || !cmp.Equal(before, after) {
		t.Errorf("functions differ (%v):\n%s", err, cmp.Diff(before, after))
	}
	bdevs, err := s.BdevGetBdevs(t.Context(), "")
	if err != nil || len(bdevs) != 0 {
		t.Errorf("bdevs %v, %v", bdevs, err)
	}
	if exists(nsDir(s)) {
		t.Error("the namespace outlived the service")
	}
}

func TestFaults(t *testing.T) {
	// What is not answered in time is given up early; all else may take as long as a busy machine needs.
	create := func(s *snapemulatortest.Service, f fault.Fault) error {
		patience := time.Minute
		if f.Hang || f.DelayMS >= 300 {
			patience = 100 * time.Millisecond
		}
		return snaprpc.New(s.Socket, patience).NvmeSubsystemCreate(context.Background(), "nqn.a")
	}
	for _, tc := range []struct {
		name        string
		fault       fault.Fault
		unavailable bool
		code        int
		done        bool // the effect is there
	}{
		{"error before", fault.Fault{Error: &snaprpc.Error{Code: -5, Message: "Input/output error"}}, false, -5, false},
		{"error after", fault.Fault{When: "after", Error: &snaprpc.Error{Code: -5, Message: "Input/output error"}}, false, -5, true},
		{"drop before", fault.Fault{Drop: true}, true, 0, false},
		{"drop after", fault.Fault{When: "after", Drop: true}, true, 0, true},
		{"garbage after", fault.Fault{When: "after", Garbage: true}, true, 0, true},
		{"half after", fault.Fault{When: "after", Half: true}, true, 0, true},
		{"hang before", fault.Fault{Hang: true}, true, 0, false},
		{"hang after", fault.Fault{When: "after", Hang: true}, true, 0, true},
		{"delay", fault.Fault{DelayMS: 1}, false, 0, true},
		{"answer twice", fault.Fault{Twice: true}, false, 0, true},
		{"too long a delay after", fault.Fault{When: "after", DelayMS: 300}, true, 0, true},
		{"any method", fault.Fault{Method: "*", Drop: true}, true, 0, false},
		{"another method", fault.Fault{Method: "bdev_get_bdevs", Drop: true}, false, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := snapemulatortest.Start(t, snapemulator.Options{})
			if tc.fault.Method == "" {
				tc.fault.Method = "nvme_subsystem_create"
			}
			s.Inject(tc.fault)
			err := create(s, tc.fault)
			code, _ := snaprpc.Code(err)
			if errors.Is(err, snaprpc.ErrUnavailable) != tc.unavailable || code != tc.code {
				t.Errorf("got %v", err)
			}
			is := func() bool {
				subs, err := s.NvmeSubsystemList(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return len(subs) == 2
			}
			if tc.done {
				eventually(t, "it is done, if late", is) // the caller may have given up before
			} else if is() {
				t.Error("it is done")
			}
		})
	}
}

func TestAnswerTwice(t *testing.T) {
	s := snapemulatortest.Start(t, snapemulator.Options{})
	s.Inject(fault.Fault{Method: "nvme_subsystem_list", Twice: true})
	conn, err := net.Dial("unix", s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(`{"jsonrpc":"2.0","id":7,"method":"nvme_subsystem_list"}`)); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(conn)
	if !answers.Scan() {
		t.Fatal(answers.Err())
	}
	first := answers.Text()
	if !answers.Scan() || answers.Text() != first || !strings.Contains(first, `"id":7`) {
		t.Errorf("answers %q and %q, %v", first, answers.Text(), answers.Err())
	}
}

func TestFaultCountsAndState(t *testing.T) {
	s := snapemulatortest.Start(t, snapemulator.Options{})
	refusal := &snaprpc.Error{Code: -12, Message: "Cannot allocate memory"}
	s.Inject(fault.Fault{Method: "nvme_subsystem_list", Error: refusal, Count: 2})
	var seen []int
	for range 3 {
		_, err := s.NvmeSubsystemList(t.Context())
		code, _ := snaprpc.Code(err)
		seen = append(seen, code)
	}
	if !cmp.Equal(seen, []int{-12, -12, 0}) {
		t.Errorf("codes %v", seen)
	}
	var state struct {
		Name  string         `json:"name"`
		Calls map[string]int `json:"calls"`
	}
	if err := s.Call(t.Context(), "moor_state", nil, &state); err != nil || state.Calls["nvme_subsystem_list"] != 3 || state.Name != "dpu-1" {
		t.Errorf("state %+v, %v", state, err)
	}
	err := s.Call(t.Context(), "moor_inject", map[string]any{"method": "nope"}, nil)
	if code, _ := snaprpc.Code(err); code != -22 {
		t.Errorf("a fault of an unknown method: %v", err)
	}
}

// TestConcurrentClients: many clients fight over few functions and bdevs; the
// rules hold, and all is free in the end.
func TestConcurrentClients(t *testing.T) {
	s := snapemulatortest.Start(t, snapemulator.Options{VFs: 2, MediumLogDir: t.TempDir()})
	files := []string{snapemulatortest.File(t, 1<<20), snapemulatortest.File(t, 1<<20)}
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			c, ctx := snaprpc.New(s.Socket, 20*time.Second), context.Background()
			for round := range 20 {
				name, nqn := fmt.Sprintf("b%d", (i+round)%3), fmt.Sprintf("nqn.%d", i%3)
				// Another client may have been quicker with each of these, or have it in use.
				_, _ = c.BdevAioCreate(ctx, snaprpc.AIOSpec{Name: name, Filename: files[i%2]})
				_ = c.NvmeSubsystemCreate(ctx, nqn)
				_ = c.NvmeNamespaceCreate(ctx, snaprpc.NamespaceSpec{NQN: nqn, NSID: 1, BdevName: name})
				ctrl, err := c.NvmeControllerCreate(ctx, snaprpc.ControllerSpec{NQN: nqn, PCIBDF: "26:00." + fmt.Sprint(2+round%2)})
				if err == nil {
					_ = c.NvmeControllerAttachNS(ctx, ctrl, 1)
					if err := c.NvmeControllerDestroy(ctx, ctrl, true); err != nil && !snaprpc.IsNotFound(err) {
						t.Errorf("destroy %s: %v", ctrl, err)
					}
				}
				_ = c.NvmeSubsystemDestroy(ctx, nqn, true)
				_ = c.BdevAioDelete(ctx, name)
			}
		})
	}
	clients.Wait()
	for i := range 3 {
		if err := s.NvmeSubsystemDestroy(t.Context(), fmt.Sprintf("nqn.%d", i), true); err != nil && !snaprpc.IsNotFound(err) {
			t.Error(err)
		}
		if err := s.BdevAioDelete(t.Context(), fmt.Sprintf("b%d", i)); err != nil && !snaprpc.IsNotFound(err) {
			t.Error(err)
		}
	}
	functions, err := s.EmulationFunctionList(t.Context())
	if err != nil || functions[0].VFs[0].CtrlID+functions[0].VFs[1].CtrlID != "" {
		t.Errorf("functions are held: %+v, %v", functions, err)
	}
}

// brokenPath cannot make devices.
type brokenPath struct{}

func (brokenPath) Attach(context.Context, datapath.Target) (datapath.Device, error) {
	return nil, errors.New("no loop device is free")
}
func (brokenPath) Close() error { return nil }

func TestAttachThatFailsLeavesNothing(t *testing.T) {
	file, logs := snapemulatortest.File(t, 4096), t.TempDir()
	s := snapemulatortest.Start(t, snapemulator.Options{DataPath: brokenPath{}, MediumLogDir: logs})
	ctx, nqn := t.Context(), "nqn.a"
	_, err := s.BdevAioCreate(ctx, snaprpc.AIOSpec{Name: "b", Filename: file})
	err = errors.Join(err, s.NvmeSubsystemCreate(ctx, nqn), s.NvmeNamespaceCreate(ctx, snaprpc.NamespaceSpec{NQN: nqn, NSID: 1, BdevName: "b"}))
	if err != nil {
		t.Fatal(err)
	}
	ctrl, err := s.NvmeControllerCreate(ctx, snaprpc.ControllerSpec{NQN: nqn, PCIBDF: "26:00.2"})
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := snaprpc.Code(s.NvmeControllerAttachNS(ctx, ctrl, 1)); code != snaprpc.CodeInternal {
		t.Errorf("code %d", code)
	}
	if err := s.NvmeNamespaceDestroy(ctx, nqn, 1); err != nil {
		t.Errorf("the namespace is held: %v", err)
	}
	if shown, err := showlog.Read(logs, filepath.Base(file)); err != nil || slices.ContainsFunc(shown, func(x showlog.Exposure) bool { return !x.Ended }) {
		t.Errorf("on record as shown: %+v, %v", shown, err)
	}
}
