package provisionertest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/pkg/provisioner"
)

// HostUnderTest is a Host and the way to an attached volume to open.
type HostUnderTest struct {
	Host provisioner.Host
	// Prepare makes and attaches a volume, and returns how to open it. The
	// name is unique within a case.
	Prepare func(t *testing.T, name string) provisioner.OpenSpec
	// Restart returns the Host of a process that began anew on the same machine;
	// nil: its devices end with the process.
	Restart func(t *testing.T) provisioner.Host
}

// TestHost checks the contract of provisioner.Host. Each case calls open for a
// machine of its own without open devices.
func TestHost(t *testing.T, open func(t *testing.T) HostUnderTest) {
	t.Helper()
	cases := map[string]func(*testing.T, HostUnderTest){
		"open repeated":     hostOpenRepeated,
		"open wrongly":      hostOpenWrongly,
		"close is tolerant": hostClose,
		"list":              hostList,
		"open at once":      hostOpenAtOnce,
		"one sort":          hostOneSort,
		"directory":         hostDirectory,
		"restart":           hostRestart,
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(t, open(t)) })
	}
}

func hostOpenRepeated(t *testing.T, h HostUnderTest) {
	ctx, spec := suiteContext(t), h.Prepare(t, "one")
	_, err := h.Host.Lookup(ctx, spec.VolumeID)
	wantError(t, "lookup before open", err, provisioner.ErrNotFound)
	first, err := h.Host.Open(ctx, spec)
	wantNil(t, "open", err)
	if first.Name == "" || first.VolumeID != spec.VolumeID {
		t.Fatalf("got device %+v of volume %q", first, spec.VolumeID)
	}
	second, err := h.Host.Open(ctx, spec)
	wantNil(t, "open again", err)
	found, err := h.Host.Lookup(ctx, spec.VolumeID)
	wantNil(t, "lookup", err)
	for what, got := range map[string]provisioner.Device{"open again": second, "lookup": found} {
		if diff := cmp.Diff(first, got); diff != "" {
			t.Fatalf("%s differs (-open +got):\n%s", what, diff)
		}
	}
}

func hostOpenWrongly(t *testing.T, h HostUnderTest) {
	spec := h.Prepare(t, "one")
	spec.VolumeID = ""
	_, err := h.Host.Open(suiteContext(t), spec)
	wantError(t, "open no volume", err, provisioner.ErrInvalid)
}

func hostClose(t *testing.T, h HostUnderTest) {
	ctx, spec, keep := suiteContext(t), h.Prepare(t, "one"), h.Prepare(t, "two")
	wantNil(t, "close what never was", h.Host.Close(ctx, "no-such-volume", "no-such-device"))
	d, err := h.Host.Open(ctx, spec)
	wantNil(t, "open", err)
	_, err = h.Host.Open(ctx, keep)
	wantNil(t, "open another", err)
	wantNil(t, "close", h.Host.Close(ctx, spec.VolumeID, d.Name))
	wantNil(t, "close again", h.Host.Close(ctx, spec.VolumeID, d.Name))
	_, err = h.Host.Lookup(ctx, spec.VolumeID)
	wantError(t, "lookup after close", err, provisioner.ErrNotFound)
	_, err = h.Host.Lookup(ctx, keep.VolumeID)
	wantNil(t, "lookup the other", err)
	again, err := h.Host.Open(ctx, spec)
	wantNil(t, "open after close", err)
	if again.VolumeID != spec.VolumeID {
		t.Fatalf("got device %+v", again)
	}
}

func hostList(t *testing.T, h HostUnderTest) {
	ctx := suiteContext(t)
	got, err := h.Host.List(ctx)
	wantNil(t, "list nothing", err)
	if len(got) != 0 {
		t.Fatalf("a machine without devices lists %+v", got)
	}
	want := map[string]provisioner.Device{}
	for i := range 5 {
		d, err := h.Host.Open(ctx, h.Prepare(t, fmt.Sprintf("n%d", 4-i)))
		wantNil(t, "open", err)
		want[d.VolumeID] = d
	}
	got, err = h.Host.List(ctx)
	wantNil(t, "list", err)
	have := map[string]provisioner.Device{}
	for i, d := range got {
		have[d.VolumeID] = d
		if i > 0 && got[i-1].VolumeID >= d.VolumeID {
			t.Fatalf("list is not ordered by volume: %q before %q", got[i-1].VolumeID, d.VolumeID)
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Fatalf("list differs (-want +got):\n%s", diff)
	}
}

func hostOpenAtOnce(t *testing.T, h HostUnderTest) {
	ctx, spec := suiteContext(t), h.Prepare(t, "one")
	got, errs := atOnce(func(int) (d provisioner.Device, err error) {
		err = untilCertain(ctx, func() error {
			d, err = h.Host.Open(ctx, spec)
			return err
		})
		return d, err
	})
	for i := range got {
		wantNil(t, "open at once", errs[i])
		if diff := cmp.Diff(got[0], got[i]); diff != "" {
			t.Fatalf("one volume got two devices:\n%s", diff)
		}
	}
}
