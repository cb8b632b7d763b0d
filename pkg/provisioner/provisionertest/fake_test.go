package provisionertest

import (
	"context"
	"errors"
	"testing"

	"github.com/moor-storage/moor/pkg/provisioner"
)

func TestFakeKeepsTheContract(t *testing.T) {
	t.Run("Volumes", func(t *testing.T) {
		TestVolumes(t, func(*testing.T) provisioner.Volumes { return NewFake().Platform().Volumes })
	})
	t.Run("Attachments", func(t *testing.T) {
		TestAttachments(t, func(*testing.T) (provisioner.Volumes, provisioner.Attachments) {
			p := NewFake().Platform()
			return p.Volumes, p.Attachments
		})
	})
	t.Run("Host", func(t *testing.T) {
		TestHost(t, func(*testing.T) HostUnderTest {
			return HostUnderTest{Host: NewFake().Platform().Host, Prepare: func(_ *testing.T, name string) provisioner.OpenSpec {
				return provisioner.OpenSpec{VolumeID: name, Mode: provisioner.Block}
			}}
		})
	})
	t.Run("DPU", func(t *testing.T) {
		TestDPU(t, func(*testing.T) DPUUnderTest {
			f := NewFake()
			return DPUUnderTest{DPU: f.Platform().DPU, Prepare: func(_ *testing.T, name string) provisioner.ExposeSpec {
				f.AddDevice(name)
				return provisioner.ExposeSpec{Device: name, FunctionType: provisioner.VF}
			}}
		})
	})
}

func TestFakeInjectsErrors(t *testing.T) {
	f := NewFake()
	v, boom := f.Platform().Volumes, errors.New("boom")
	f.FailNext(FaceVolumes, "Create", boom, nil)
	f.LoseNext(FaceVolumes, "Create", provisioner.ErrUnavailable)
	_, err := v.Create(t.Context(), blockSpec("one"))
	wantError(t, "first create", err, boom)
	_, err = v.Create(t.Context(), blockSpec("one"))
	wantError(t, "second create", err, provisioner.ErrUnavailable)
	made, err := v.Create(t.Context(), blockSpec("one"))
	wantNil(t, "third create", err)
	if made.ID != "vol-1" {
		t.Fatalf("the lost answer made no volume: the third create made %q", made.ID)
	}
	calls := f.CallsTo(FaceVolumes, "Create")
	if len(calls) != 3 || !errors.Is(calls[0].Err, boom) || calls[2].Err != nil {
		t.Fatalf("call log %v", calls)
	}
	if got := calls[0].String(); got != "Volumes.Create(one)" {
		t.Fatalf("call reads %q", got)
	}
	f.ClearCalls()
	if left := f.Calls(); len(left) != 0 {
		t.Fatalf("cleared log holds %v", left)
	}
}

func TestFakeHookEndsACall(t *testing.T) {
	f, boom := NewFake(), errors.New("boom")
	f.Hook = func(_ context.Context, c Call) error {
		if c.Verb == "Open" {
			return boom
		}
		return nil
	}
	_, err := f.Platform().Host.Open(t.Context(), provisioner.OpenSpec{VolumeID: "one"})
	wantError(t, "open", err, boom)
	got, err := f.Platform().Host.List(t.Context())
	wantNil(t, "list", err)
	if len(got) != 0 {
		t.Fatalf("a call ended by the hook had an effect: %v", got)
	}
}

func TestFakePaths(t *testing.T) {
	f := NewFake()
	f.AddDevice("one")
	d := f.Platform().DPU
	for state, probe := range map[provisioner.PathState]error{
		provisioner.PathConnected: nil, provisioner.PathUnknown: provisioner.ErrUnsupported,
		provisioner.PathReconnecting: provisioner.ErrUnavailable, provisioner.PathFailed: provisioner.ErrUnavailable,
	} {
		want := provisioner.Path{Device: "one", State: state, InFlight: 3, Completed: 7}
		f.SetPath(want)
		got, err := d.Paths(t.Context(), []string{"one"})
		wantNil(t, "paths", err)
		if len(got) != 1 || got[0] != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
		if err := d.ProbePath(t.Context(), "one"); !errors.Is(err, probe) {
			t.Errorf("ask over a path that is %q: %v, want %v", state, err, probe)
		}
	}
}
