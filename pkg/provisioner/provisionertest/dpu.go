package provisionertest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// DPUUnderTest is a DPU and the way to a device to expose.
type DPUUnderTest struct {
	DPU provisioner.DPU
	// Prepare makes a device, and returns how to expose it. The name is
	// unique within a case.
	Prepare func(t *testing.T, name string) provisioner.ExposeSpec
}

// TestDPU checks the contract of provisioner.DPU. Each case calls open for a
// DPU of its own which exposes nothing and has at least 3 free functions of the
// type that Prepare asks for.
func TestDPU(t *testing.T, open func(t *testing.T) DPUUnderTest) {
	t.Helper()
	cases := map[string]func(*testing.T, DPUUnderTest){
		"expose repeated":      dpuExposeRepeated,
		"expose wrongly":       dpuExposeWrongly,
		"expose until no more": dpuExhaust,
		"withdraw":             dpuWithdraw,
		"tidy up":              dpuTidy,
		"list":                 dpuList,
		"expose at once":       dpuExposeAtOnce,
		"hide and show":        dpuHideAndShow,
		"size":                 dpuSize,
		"paths":                dpuPaths,
		"ask the storage":      dpuProbePath,
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(t, open(t)) })
	}
}

// dpuFree returns how many functions are free of the type that spec asks for.
func dpuFree(t *testing.T, d provisioner.DPU, spec provisioner.ExposeSpec) int {
	t.Helper()
	ft := spec.FunctionType
	if spec.Hotplug {
		ft = provisioner.Hotplug
	}
	counts, err := d.Functions(suiteContext(t))
	wantNil(t, "count functions", err)
	for _, c := range counts {
		if c.Free < 0 || c.Free > c.Total {
			t.Fatalf("%d of %d %s functions are free", c.Free, c.Total, c.Type)
		}
		if c.Type == ft {
			return c.Free
		}
	}
	return 0
}

func dpuExposeRepeated(t *testing.T, d DPUUnderTest) {
	ctx, spec := suiteContext(t), d.Prepare(t, "one")
	free := dpuFree(t, d.DPU, spec)
	first, err := d.DPU.Expose(ctx, spec)
	wantNil(t, "expose", err)
	if first.Device != spec.Device || first.PCIAddress == "" || !identified(first) || !first.Visible {
		t.Fatalf("got exposure %+v of device %q, want all of its identity, and visible", first, spec.Device)
	}
	second, err := d.DPU.Expose(ctx, spec)
	wantNil(t, "expose again", err)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Fatalf("repeated expose differs (-first +second):\n%s", diff)
	}
	if left := dpuFree(t, d.DPU, spec); left != free-1 {
		t.Fatalf("%d functions are free after one of %d was taken", left, free)
	}
}

// identified reports whether the exposure has what the host finds it by.
func identified(e provisioner.Exposure) bool {
	return e.Tag != "" || e.NamespaceID >= 1 && e.UUID != ""
}

func dpuExposeWrongly(t *testing.T, d DPUUnderTest) {
	spec := d.Prepare(t, "one")
	spec.Device = "no-such-device"
	_, err := d.DPU.Expose(suiteContext(t), spec)
	wantError(t, "expose what never was", err, provisioner.ErrNotFound)
}

// dpuExhaust takes every function (up to a bound) and expects a plain refusal.
func dpuExhaust(t *testing.T, d DPUUnderTest) {
	ctx, first := suiteContext(t), d.Prepare(t, "first")
	free := dpuFree(t, d.DPU, first)
	if free < 3 || free > 300 {
		t.Skipf("%d free functions: nothing to exhaust within reason", free)
	}
	seen := map[string]bool{}
	for i := range free {
		e, err := d.DPU.Expose(ctx, d.Prepare(t, fmt.Sprintf("n%d", i)))
		wantNil(t, "expose", err)
		at := fmt.Sprintf("%s/%d", e.PCIAddress, e.NamespaceID)
		if seen[at] {
			t.Fatalf("two devices are exposed at %s", at)
		}
		seen[at] = true
	}
	_, err := d.DPU.Expose(ctx, first)
	wantError(t, "expose with no function left", err, provisioner.ErrExhausted)
}

// dpuTidy: what is exposed stays; of what was withdrawn nothing is left once the host has let go.
func dpuTidy(t *testing.T, d DPUUnderTest) {
	ctx, spec := suiteContext(t), d.Prepare(t, "tidied")
	free := dpuFree(t, d.DPU, spec)
	_, err := d.DPU.Expose(ctx, spec)
	wantNil(t, "expose", err)
	removed, left, err := d.DPU.Tidy(ctx)
	wantNil(t, "tidy up", err)
	all, err := d.DPU.List(ctx)
	wantNil(t, "list", err)
	if removed != 0 || left != 0 || !slices.ContainsFunc(all, func(e provisioner.Exposure) bool { return e.Device == spec.Device && e.Visible }) {
		t.Fatalf("%d are removed and %d left while one is exposed: %+v", removed, left, all)
	}
	wantNil(t, "withdraw", d.DPU.Withdraw(ctx, spec.Device))
	for left = 1; left > 0; {
		_, left, err = d.DPU.Tidy(ctx)
		wantNil(t, "tidy up", err)
	}
	if now := dpuFree(t, d.DPU, spec); now != free {
		t.Errorf("%d functions are free, %d were before", now, free)
	}
}

func dpuWithdraw(t *testing.T, d DPUUnderTest) {
	ctx, spec := suiteContext(t), d.Prepare(t, "one")
	free := dpuFree(t, d.DPU, spec)
	wantNil(t, "withdraw what never was", d.DPU.Withdraw(ctx, "no-such-device"))
	first, err := d.DPU.Expose(ctx, spec)
	wantNil(t, "expose", err)
	wantNil(t, "withdraw", d.DPU.Withdraw(ctx, spec.Device))
	wantNil(t, "withdraw again", d.DPU.Withdraw(ctx, spec.Device))
	left, err := d.DPU.List(ctx)
	wantNil(t, "list", err)
	if len(left) != 0 || dpuFree(t, d.DPU, spec) != free {
		t.Fatalf("after withdraw the DPU still exposes %+v, or kept a function", left)
	}
	spec.PCIAddress, spec.NamespaceID, spec.UUID, spec.VUID = first.PCIAddress, first.NamespaceID, first.UUID, first.VUID
	second, err := d.DPU.Expose(ctx, spec)
	wantNil(t, "expose with the recorded identity", err)
	if diff := cmp.Diff(first, second); diff != "" {
		t.Fatalf("the host sees another namespace than before (-first +second):\n%s", diff)
	}
}

func dpuList(t *testing.T, d DPUUnderTest) {
	ctx, want := suiteContext(t), map[string]provisioner.Exposure{}
	for _, name := range []string{"c", "a", "b"} {
		e, err := d.DPU.Expose(ctx, d.Prepare(t, name))
		wantNil(t, "expose", err)
		want[e.Device] = e
	}
	got, err := d.DPU.List(ctx)
	wantNil(t, "list", err)
	have := map[string]provisioner.Exposure{}
	for i, e := range got {
		have[e.Device] = e
		if i > 0 && got[i-1].Device >= e.Device {
			t.Fatalf("list is not ordered by device: %q before %q", got[i-1].Device, e.Device)
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Fatalf("list differs (-want +got):\n%s", diff)
	}
}

// dpuHideAndShow takes a device through what a replica goes through: ready but
// hidden, shown, hidden again, gone; its identity stays the same, but for the
// address of a file system, which has one while it is shown.
func dpuHideAndShow(t *testing.T, d DPUUnderTest) {
	ctx, spec := suiteContext(t), d.Prepare(t, "one")
	free := dpuFree(t, d.DPU, spec)
	var first provisioner.Exposure
	for i, hidden := range []bool{true, true, false, false, true, false, true} {
		spec.Hidden = hidden
		e, err := d.DPU.Expose(ctx, spec)
		wantNil(t, fmt.Sprintf("expose, hidden is %v", hidden), err)
		if i == 0 {
			first = e
		}
		want := first
		want.Visible, want.Hidden = !hidden, hidden
		shared := spec.Mode == provisioner.Filesystem
		if shared && !hidden {
			want.PCIAddress = e.PCIAddress
		}
		if diff := cmp.Diff(want, e); diff != "" || (e.PCIAddress == "") != (shared && hidden) || !identified(e) {
			t.Fatalf("step %d, hidden is %v (-want +got):\n%s", i, hidden, diff)
		}
		all, err := d.DPU.List(ctx)
		wantNil(t, "list", err)
		if diff := cmp.Diff([]provisioner.Exposure{want}, all); diff != "" {
			t.Fatalf("list at step %d, hidden is %v (-want +got):\n%s", i, hidden, diff)
		}
		if left := dpuFree(t, d.DPU, spec); left != free-1 {
			t.Fatalf("%d functions are free after one of %d was taken", left, free)
		}
	}
	wantNil(t, "withdraw what is hidden", d.DPU.Withdraw(ctx, spec.Device))
	if left := dpuFree(t, d.DPU, spec); left != free {
		t.Fatalf("%d functions are free after a withdrawal, of %d", left, free)
	}
}

func dpuExposeAtOnce(t *testing.T, d DPUUnderTest) {
	ctx, spec := suiteContext(t), d.Prepare(t, "one")
	got, errs := atOnce(func(int) (e provisioner.Exposure, err error) {
		err = untilCertain(ctx, func() error {
			e, err = d.DPU.Expose(ctx, spec)
			return err
		})
		return e, err
	})
	for i := range got {
		wantNil(t, "expose at once", errs[i])
		if diff := cmp.Diff(got[0], got[i]); diff != "" {
			t.Fatalf("one device got two exposures:\n%s", diff)
		}
	}
}

func dpuSize(t *testing.T, d DPUUnderTest) {
	ctx, spec := suiteContext(t), d.Prepare(t, "one")
	if spec.Mode == provisioner.Filesystem {
		t.Skip("an fsdev has no size of its own")
	}
	before, err := d.DPU.Size(ctx, spec.Device)
	wantNil(t, "size", err)
	_, err = d.DPU.Expose(ctx, spec)
	wantNil(t, "expose", err)
	after, err := d.DPU.Size(ctx, spec.Device)
	wantNil(t, "size of what is exposed", err)
	if before <= 0 || before != after {
		t.Fatalf("%d bytes before it is exposed, %d after", before, after)
	}
	_, err = d.DPU.Size(ctx, "no-such-device")
	wantError(t, "an unknown device", err, provisioner.ErrNotFound)
}

// dpuPaths: what is healthy is not reported as lost, shown or not, and what does not
// exist is left out.
func dpuPaths(t *testing.T, d DPUUnderTest) {
	ctx, b, a := suiteContext(t), d.Prepare(t, "b"), d.Prepare(t, "a")
	none, err := d.DPU.Paths(ctx, nil)
	wantNil(t, "paths of nothing", err)
	unknown, err := d.DPU.Paths(ctx, []string{"no-such-device"})
	wantNil(t, "paths of an unknown device", err)
	if len(none) != 0 || len(unknown) != 0 {
		t.Fatalf("paths of nothing: %+v, %+v", none, unknown)
	}
	_, err = d.DPU.Expose(ctx, b)
	wantNil(t, "expose", err)
	want := slices.Sorted(slices.Values([]string{a.Device, b.Device}))
	for range 3 { // the first call may know less than the next
		all, err := d.DPU.Paths(ctx, []string{b.Device, "no-such-device", a.Device, b.Device})
		wantNil(t, "paths", err)
		var got []string
		for _, p := range all {
			got = append(got, p.Device)
			if p.State != provisioner.PathUnknown && p.State != provisioner.PathConnected || p.InFlight < -1 || p.Completed < 0 {
				t.Fatalf("a healthy device has the path %+v", p)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("paths of devices (-want +got):\n%s", diff)
		}
	}
}

// dpuProbePath: storage in reach answers, where it can be asked.
func dpuProbePath(t *testing.T, d DPUUnderTest) {
	ctx, spec := suiteContext(t), d.Prepare(t, "one")
	_, err := d.DPU.Expose(ctx, spec)
	wantNil(t, "expose", err)
	for range 2 {
		if err := d.DPU.ProbePath(ctx, spec.Device); err != nil {
			wantError(t, "ask healthy storage", err, provisioner.ErrUnsupported)
		}
	}
	err = d.DPU.ProbePath(ctx, "no-such-device")
	wantError(t, "ask the storage of an unknown device", err, provisioner.ErrNotFound, provisioner.ErrUnsupported)
}
