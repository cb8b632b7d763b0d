package snapemulator_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/moor-storage/moor/internal/hostdev"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/reference/showlog"
	"github.com/moor-storage/moor/reference/snapemulator"
	"github.com/moor-storage/moor/reference/snapemulator/snapemulatortest"
)

// TestShownIsRecorded: the log tells each time in which the host sees a volume, however that begins and
// ends.
func TestShownIsRecorded(t *testing.T) {
	logs, file := t.TempDir(), snapemulatortest.File(t, 1<<20)
	s := snapemulatortest.Start(t, snapemulator.Options{MediumLogDir: logs})
	ctx, nqn := t.Context(), "nqn.2022-10.io.nvda.nvme:dpf-vol"
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	prepare := func() string {
		t.Helper()
		_, err := s.BdevAioCreate(ctx, snaprpc.AIOSpec{Name: "vol", Filename: file})
		do(errors.Join(err, s.NvmeSubsystemCreate(ctx, nqn), s.NvmeNamespaceCreate(ctx, snaprpc.NamespaceSpec{NQN: nqn, NSID: 1, BdevName: "vol"})))
		ctrl, err := s.NvmeControllerCreate(ctx, snaprpc.ControllerSpec{NQN: nqn, PCIBDF: "26:00.2"})
		do(err)
		return ctrl
	}
	is := func(when string, times int, on bool) {
		t.Helper()
		got, err := showlog.Read(logs, filepath.Base(file))
		do(err)
		if len(got) != times || times > 0 && got[times-1].Ended == on {
			t.Errorf("%s: %+v, want %d times, and that it goes on: %t", when, got, times, on)
		}
	}
	ctrl := prepare()
	is("with no namespace attached", 0, false)
	do(s.NvmeControllerAttachNS(ctx, ctrl, 1))
	is("attached", 1, true)
	do(s.NvmeControllerDetachNS(ctx, ctrl, 1))
	is("detached", 1, false)
	do(s.NvmeControllerAttachNS(ctx, ctrl, 1))
	do(s.Call(ctx, "moor_link", map[string]any{"up": false}, nil))
	is("with the link cut", 2, false)
	do(s.Call(ctx, "moor_link", map[string]any{"up": true}, nil))
	is("with the link back", 3, true)
	s.Restart()
	is("after a restart, which forgets it", 3, false)
	do(s.NvmeControllerAttachNS(ctx, prepare(), 1))
	is("attached once more", 4, true)
}

// TestHostKnowsTheFunction: the host reads in the Vital Product Data of a virtual
// function what SNAP tells of its physical one.
func TestHostKnowsTheFunction(t *testing.T) {
	s := snapemulatortest.Start(t, snapemulator.Options{})
	expose(t, s, "vol", "26:00.2", 1<<20)
	finder := hostdev.Finder{Roots: hostdev.Roots{Sysfs: s.Options.SysfsRoot, Dev: s.Options.DevRoot}}
	functions, err := s.EmulationFunctionList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := hostdev.Identity{Address: "26:00.2", NamespaceID: 1, VUID: functions[0].VUID}
	if b, err := finder.Seek(at); err != nil || b.Name != "nvme1n1" {
		t.Errorf("by the VUID of its physical function the host plugin finds %+v, %v", b, err)
	}
	at.VUID = functions[0].VFs[0].VUID
	if b, err := finder.Seek(at); !errors.Is(err, hostdev.ErrAbsent) {
		t.Errorf("by a VUID that no function's vital product data has the host plugin finds %+v, %v", b, err)
	}
}
