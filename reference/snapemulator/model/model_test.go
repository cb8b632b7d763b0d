package model

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const testUUID = "0d9f6f3e-1111-4222-8333-444455556666"

// fixture is a service with two subsystems A and B, bdevs b0..b3, namespace 1
// of A over b0 attached to controller c1 on VF 0, namespace 2 of A over b1
// unattached, and a second controller c2 of A on VF 1.
func fixture(t *testing.T) *Model {
	t.Helper()
	n := 0
	m, err := New(Config{Name: "dpu-1", VFs: 4}, func() string { n++; return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) })
	if err != nil {
		t.Fatal(err)
	}
	steps := []error{m.CreateSubsystem(SubsystemSpec{NQN: "nqn.a", MNAN: 3}), m.CreateSubsystem(SubsystemSpec{NQN: "nqn.b"})}
	for i := range 5 {
		steps = append(steps, m.CreateBdev(Bdev{Name: fmt.Sprintf("b%d", i), Product: AIO, BlockSize: 512, NumBlocks: 8}))
	}
	steps = append(steps, m.CreateNamespace(NamespaceSpec{NQN: "nqn.a", Bdev: "b0", NSID: 1, UUID: testUUID}),
		m.CreateNamespace(NamespaceSpec{NQN: "nqn.a", Bdev: "b1", NSID: 2}))
	_, err1 := m.CreateController(ControllerSpec{NQN: "nqn.a", Name: "c1", BDF: "26:00.2"})
	_, err2 := m.CreateController(ControllerSpec{NQN: "nqn.a", Name: "c2", BDF: "26:00.3", Suspended: true})
	steps = append(steps, err1, err2, m.AttachNamespace("c1", 1))
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	return m
}

// dump writes the state as text, to show that a refusal changed nothing.
func dump(m *Model) string {
	var b strings.Builder
	for _, f := range m.AllFunctions() {
		fmt.Fprintln(&b, f.BDF, f.VUID, f.Pending, f.Controller != nil)
	}
	for _, s := range m.Subsystems {
		fmt.Fprintln(&b, s.NQN, s.NN, s.MNAN)
		for _, ns := range s.Namespaces {
			fmt.Fprintln(&b, " ns", ns.NSID, ns.UUID, ns.Bdev.Name, ns.Controller != nil)
		}
		for _, c := range s.Controllers {
			fmt.Fprintln(&b, " ctrl", c.ID, c.Function.BDF, c.State, c.Resumed, len(c.Namespaces()))
		}
	}
	for _, d := range m.Bdevs {
		fmt.Fprintln(&b, d.Name, d.UUID, d.Claim != nil)
	}
	return b.String()
}

func TestConstraints(t *testing.T) {
	zero, nine := 0, 9
	sub := func(s SubsystemSpec) func(*Model) error { return func(m *Model) error { return m.CreateSubsystem(s) } }
	ns := func(s NamespaceSpec) func(*Model) error { return func(m *Model) error { return m.CreateNamespace(s) } }
	ctrl := func(s ControllerSpec) func(*Model) error {
		return func(m *Model) error { _, err := m.CreateController(s); return err }
	}
	bdev := func(b Bdev) func(*Model) error { return func(m *Model) error { return m.CreateBdev(b) } }
	for _, tc := range []struct {
		name string
		do   func(*Model) error
		want syscall.Errno
	}{
		{"subsystem", sub(SubsystemSpec{NQN: "nqn.c"}), 0},
		{"subsystem, longest NQN", sub(SubsystemSpec{NQN: "nqn." + strings.Repeat("x", 219)}), 0},
		{"subsystem, NQN too long", sub(SubsystemSpec{NQN: "nqn." + strings.Repeat("x", 220)}), syscall.EINVAL},
		{"subsystem without an NQN", sub(SubsystemSpec{}), syscall.EINVAL},
		{"subsystem, no nqn. before", sub(SubsystemSpec{NQN: "x"}), syscall.EINVAL},
		{"subsystem twice", sub(SubsystemSpec{NQN: "nqn.a"}), syscall.EEXIST},
		{"subsystem, nn too large", sub(SubsystemSpec{NQN: "nqn.c", NN: 1 << 32}), syscall.EINVAL},
		{"subsystem, mnan above nn", sub(SubsystemSpec{NQN: "nqn.c", NN: 2, MNAN: 3}), syscall.EINVAL},
		{"destroy an empty subsystem", func(m *Model) error { return m.DestroySubsystem("nqn.b", false) }, 0},
		{"destroy a full subsystem", func(m *Model) error { return m.DestroySubsystem("nqn.a", false) }, syscall.EBUSY},
		{"destroy a full subsystem by force", func(m *Model) error { return m.DestroySubsystem("nqn.a", true) }, 0},
		{"destroy no subsystem", func(m *Model) error { return m.DestroySubsystem("nqn.z", true) }, syscall.ENOENT},

		{"namespace", ns(NamespaceSpec{NQN: "nqn.b", Bdev: "b2", NSID: 1, Type: "spdk", UUID: testUUID}), 0},
		{"namespace, no subsystem", ns(NamespaceSpec{NQN: "nqn.z", Bdev: "b2", NSID: 1}), syscall.ENOENT},
		{"namespace, no bdev", ns(NamespaceSpec{NQN: "nqn.b", Bdev: "zz", NSID: 1}), syscall.ENODEV},
		{"namespace, bdev claimed", ns(NamespaceSpec{NQN: "nqn.b", Bdev: "b0", NSID: 1}), syscall.EBUSY},
		{"namespace, nsid taken", ns(NamespaceSpec{NQN: "nqn.a", Bdev: "b2", NSID: 2}), syscall.EEXIST},
		{"namespace, nsid 0", ns(NamespaceSpec{NQN: "nqn.a", Bdev: "b2"}), syscall.EINVAL},
		{"namespace, nsid broadcast", ns(NamespaceSpec{NQN: "nqn.a", Bdev: "b2", NSID: 0xFFFFFFFF}), syscall.EINVAL},
		{"namespace, other type", ns(NamespaceSpec{NQN: "nqn.b", Bdev: "b2", NSID: 1, Type: "linux"}), syscall.EINVAL},
		{"namespace, bad uuid", ns(NamespaceSpec{NQN: "nqn.b", Bdev: "b2", NSID: 1, UUID: "x"}), syscall.EINVAL},
		{"namespace beyond mnan", func(m *Model) error {
			return errors.Join(m.CreateNamespace(NamespaceSpec{NQN: "nqn.a", Bdev: "b2", NSID: 3}),
				m.CreateNamespace(NamespaceSpec{NQN: "nqn.a", Bdev: "b3", NSID: 4}))
		}, syscall.ENOSPC},
		{"destroy a namespace", func(m *Model) error { return m.DestroyNamespace("nqn.a", 2) }, 0},
		{"destroy an attached namespace", func(m *Model) error { return m.DestroyNamespace("nqn.a", 1) }, syscall.EBUSY},
		{"destroy no namespace", func(m *Model) error { return m.DestroyNamespace("nqn.a", 9) }, syscall.ENOENT},
		{"destroy a namespace of none", func(m *Model) error { return m.DestroyNamespace("nqn.z", 1) }, syscall.ENOENT},

		{"controller by bdf", ctrl(ControllerSpec{NQN: "nqn.b", BDF: "26:00.4"}), 0},
		{"controller by vuid", ctrl(ControllerSpec{NQN: "nqn.b", VUID: newPF("dpu-1", 4).VFs[3].VUID}), 0},
		{"controller by pf and vf", ctrl(ControllerSpec{NQN: "nqn.b", PFID: &zero, VFID: new(int)}), syscall.EBUSY},
		{"controller on a busy pf", ctrl(ControllerSpec{NQN: "nqn.b", PFID: &zero}), syscall.EBUSY},
		{"controller, no such vf", ctrl(ControllerSpec{NQN: "nqn.b", PFID: &zero, VFID: &nine}), syscall.ENODEV},
		{"controller, no such bdf", ctrl(ControllerSpec{NQN: "nqn.b", BDF: "00:00.0"}), syscall.ENODEV},
		{"controller, bdf with a domain", ctrl(ControllerSpec{NQN: "nqn.b", BDF: "0000:26:00.4"}), syscall.ENODEV},
		{"controller, no function named", ctrl(ControllerSpec{NQN: "nqn.b"}), syscall.EINVAL},
		{"controller, function named twice", ctrl(ControllerSpec{NQN: "nqn.b", BDF: "26:00.4", PFID: &zero}), syscall.EINVAL},
		{"controller, vf without pf", ctrl(ControllerSpec{NQN: "nqn.b", BDF: "26:00.4", VFID: &zero}), syscall.EINVAL},
		{"controller, function busy", ctrl(ControllerSpec{NQN: "nqn.b", BDF: "26:00.2"}), syscall.EBUSY},
		{"controller, no subsystem", ctrl(ControllerSpec{NQN: "nqn.z", BDF: "26:00.4"}), syscall.ENOENT},
		{"controller, name taken", ctrl(ControllerSpec{NQN: "nqn.b", BDF: "26:00.4", Name: "c1"}), syscall.EEXIST},
		{"controller, too many queues", ctrl(ControllerSpec{NQN: "nqn.b", BDF: "26:00.4", NumQueues: MaxQueues + 1}), syscall.EINVAL},
		{"controller, bad mdts", ctrl(ControllerSpec{NQN: "nqn.b", BDF: "26:00.4", MDTS: 8}), syscall.EINVAL},
		{"destroy a controller", func(m *Model) error { return m.DestroyController("c2", false) }, 0},
		{"destroy a used controller", func(m *Model) error { return m.DestroyController("c1", false) }, syscall.EBUSY},
		{"destroy a used controller by force", func(m *Model) error { return m.DestroyController("c1", true) }, 0},
		{"destroy no controller", func(m *Model) error { return m.DestroyController("zz", true) }, syscall.ENOENT},

		{"attach", func(m *Model) error { return m.AttachNamespace("c1", 2) }, 0},
		{"attach twice", func(m *Model) error { return m.AttachNamespace("c1", 1) }, syscall.EEXIST},
		{"attach to a second controller", func(m *Model) error { return m.AttachNamespace("c2", 1) }, syscall.EBUSY},
		{"attach no namespace", func(m *Model) error { return m.AttachNamespace("c1", 9) }, syscall.ENOENT},
		{"attach to no controller", func(m *Model) error { return m.AttachNamespace("zz", 1) }, syscall.ENOENT},
		{"attach to admin-only, of another subsystem", func(m *Model) error { return m.AttachNamespace("NVMeCtrl1", 1) }, syscall.ENOENT},
		{"detach", func(m *Model) error { return m.DetachNamespace("c1", 1) }, 0},
		{"detach from the wrong controller", func(m *Model) error { return m.DetachNamespace("c2", 1) }, syscall.ENOENT},
		{"detach what is not attached", func(m *Model) error { return m.DetachNamespace("c1", 2) }, syscall.ENOENT},
		{"resume", func(m *Model) error { return m.Resume("c2") }, 0},
		{"resume again", func(m *Model) error { return m.Resume("c1") }, 0},
		{"resume none", func(m *Model) error { return m.Resume("zz") }, syscall.ENOENT},
		{"suspend none", func(m *Model) error { return m.Suspend("zz") }, syscall.ENOENT},

		{"bdev", bdev(Bdev{Name: "n", BlockSize: 4096, NumBlocks: 1}), 0},
		{"bdev twice", bdev(Bdev{Name: "b0", BlockSize: 512, NumBlocks: 1}), syscall.EEXIST},
		{"bdev without a name", bdev(Bdev{BlockSize: 512, NumBlocks: 1}), syscall.EINVAL},
		{"bdev, odd block size", bdev(Bdev{Name: "n", BlockSize: 520, NumBlocks: 1}), syscall.EINVAL},
		{"bdev, empty", bdev(Bdev{Name: "n", BlockSize: 512}), syscall.EINVAL},
		{"bdev, too large", bdev(Bdev{Name: "n", BlockSize: 512, NumBlocks: 1 << 60}), syscall.EINVAL},
		{"bdev, bad uuid", bdev(Bdev{Name: "n", BlockSize: 512, NumBlocks: 1, UUID: "x"}), syscall.EINVAL},
		{"delete a bdev", func(m *Model) error { return m.DeleteBdev("b3", AIO) }, 0},
		{"delete a claimed bdev", func(m *Model) error { return m.DeleteBdev("b0", AIO) }, syscall.EBUSY},
		{"delete a bdev of another kind", func(m *Model) error { return m.DeleteBdev("b3", Null) }, syscall.ENODEV},
		{"delete no bdev", func(m *Model) error { return m.DeleteBdev("zz", AIO) }, syscall.ENODEV},
		{"pending function", func(m *Model) error { return m.SetPending(m.Functions[0].VFs[3].VUID, true) }, 0},
		{"pending function, none", func(m *Model) error { return m.SetPending("zz", true) }, syscall.ENODEV},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := fixture(t)
			was := dump(m)
			err := tc.do(m)
			if tc.want == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if tc.want != syscall.ENOSPC && !cmp.Equal(was, dump(m)) {
				t.Errorf("a refusal changed the state:\n%s", cmp.Diff(was, dump(m)))
			}
		})
	}
}

func TestAdminOnlyControllerTakesNoNamespace(t *testing.T) {
	m := fixture(t)
	if err := m.CreateNamespace(NamespaceSpec{NQN: InitNQN, Bdev: "b2", NSID: 1}); err != nil {
		t.Fatal(err)
	}
	if err := m.AttachNamespace("NVMeCtrl1", 1); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("got %v", err)
	}
}

func TestVisible(t *testing.T) {
	seen := func(m *Model) string {
		var out []string
		for _, v := range m.Visible() {
			out = append(out, fmt.Sprint(v.Function.BDF, " ", v.Namespace.Bdev.Name, " ", v.Paused))
		}
		return strings.Join(out, ",")
	}
	m := fixture(t)
	step := func(what string, err error, want string) {
		t.Helper()
		if err != nil || seen(m) != want {
			t.Fatalf("%s: %v; visible %q, want %q", what, err, seen(m), want)
		}
	}
	step("start", nil, "26:00.2 b0 false")
	step("attach to a suspended controller", m.AttachNamespace("c2", 2), "26:00.2 b0 false")
	step("resume it", m.Resume("c2"), "26:00.2 b0 false,26:00.3 b1 false")
	step("suspend it", m.Suspend("c2"), "26:00.2 b0 false,26:00.3 b1 true")
	step("detach", m.DetachNamespace("c1", 1), "26:00.3 b1 true")
	step("destroy", m.DestroyController("c2", true), "")
	step("attach again", m.AttachNamespace("c1", 1), "26:00.2 b0 false")
	step("without the admin controller", m.DestroyController("NVMeCtrl1", false), "")
}

func TestDestroyBySubsystemFreesAll(t *testing.T) {
	m := fixture(t)
	if err := m.DestroySubsystem("nqn.a", true); err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Functions[0].VFs {
		if f.Controller != nil {
			t.Errorf("function %s is still held", f.BDF)
		}
	}
	for _, b := range m.Bdevs {
		if b.Claim != nil {
			t.Errorf("bdev %s is still claimed", b.Name)
		}
	}
}

func TestFunctionNames(t *testing.T) {
	m, err := New(Config{Name: "dpu-1", VFs: MaxVFs}, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range m.AllFunctions() {
		if seen[f.BDF] || seen[f.VUID] {
			t.Errorf("%s or %s is there twice", f.BDF, f.VUID)
		}
		seen[f.BDF], seen[f.VUID] = true, true
		var dev, fn int
		if _, err := fmt.Sscanf(f.BDF, "26:%02x.%d", &dev, &fn); err != nil || dev > 31 || fn > 7 {
			t.Errorf("%s is no PCI address (%v)", f.BDF, err)
		}
	}
	vfs := m.Functions[0].VFs
	if vfs[0].BDF != "26:00.2" || vfs[5].BDF != "26:00.7" || vfs[6].BDF != "26:01.0" || vfs[0].VUID != m.Functions[0].VUID+"VF1" {
		t.Errorf("got %s %s %s %s", vfs[0].BDF, vfs[5].BDF, vfs[6].BDF, vfs[0].VUID)
	}
	for _, n := range []int{-1, MaxVFs + 1} {
		if _, err := New(Config{Name: "x", VFs: n}, nil); err == nil {
			t.Errorf("%d VFs are allowed", n)
		}
	}
}

func TestWordsThatClientsLookFor(t *testing.T) {
	for errno, words := range map[syscall.Errno]string{syscall.ENODEV: "no such device", syscall.ENOSPC: "no space left", syscall.EINVAL: "invalid parameters"} {
		if got := Refuse(errno, "x").Error(); !strings.Contains(strings.ToLower(got), words) {
			t.Errorf("%q does not say %q", got, words)
		}
	}
}

// wantErrno fails unless err is the refusal wanted; 0 wants none.
func wantErrno(t *testing.T, err error, want syscall.Errno) {
	t.Helper()
	if (want == 0 && err != nil) || (want != 0 && !errors.Is(err, want)) {
		t.Fatalf("got %v, want %v", err, want)
	}
}
