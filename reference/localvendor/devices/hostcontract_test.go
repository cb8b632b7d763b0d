package devices

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/provisionertest"
	"github.com/moor-storage/moor/reference/blocktarget"
	"github.com/moor-storage/moor/reference/localvendor"
	"github.com/moor-storage/moor/reference/localvendor/records"
)

// willingTarget revokes what it is asked to.
type willingTarget struct{}

func (willingTarget) Revoke(context.Context, string, string) error { return nil }

func TestKeepsTheHostContract(t *testing.T) {
	for name, silent := range map[string]bool{"Host": false, "Host of a service that tells no file names": true} {
		t.Run(name, func(t *testing.T) {
			provisionertest.TestHost(t, func(t *testing.T) provisionertest.HostUnderTest {
				s, snap := openVendor(t, localvendor.Options{}), newFakeSNAP()
				snap.silent = silent
				return provisionertest.HostUnderTest{
					Host:    NewHost(snap, s.dir, t.TempDir()),
					Prepare: func(t *testing.T, name string) provisioner.OpenSpec { return attachedImage(t, s, name) },
				}
			})
		})
	}
}

func TestKeepsTheHostContractThroughATarget(t *testing.T) {
	provisionertest.TestHost(t, func(t *testing.T) provisionertest.HostUnderTest {
		s := openVendor(t, localvendor.Options{Target: &localvendor.Target{Address: "target:10809", Revoker: willingTarget{}}})
		return provisionertest.HostUnderTest{
			Host:    NewHost(newFakeSNAP(), t.TempDir(), t.TempDir()),
			Prepare: func(t *testing.T, name string) provisioner.OpenSpec { return attachedImage(t, s, name) },
		}
	})
}

func TestHostThroughATarget(t *testing.T) {
	s, snap := openVendor(t, localvendor.Options{Target: &localvendor.Target{Address: "target:10809", Revoker: willingTarget{}}}), newFakeSNAP()
	h, ctx := NewHost(snap, t.TempDir(), t.TempDir()), t.Context()
	o := attachedImage(t, s, "one")
	d, err := h.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	want := []snaprpc.TargetSpec{{Name: d.Name, Address: "target:10809", Export: o.PublishContext[records.ContextTargetExport]}}
	if diff := cmp.Diff(want, snap.targets); diff != "" || len(snap.specs) != 0 {
		t.Fatal(diff, snap.specs)
	}
	if err := s.Detach(ctx, "one", "dpu-1"); err != nil {
		t.Fatal(err)
	}
	again, err := s.Attach(ctx, provisioner.AttachSpec{VolumeID: "one", Node: "dpu-1"})
	if err != nil {
		t.Fatal(err)
	}
	anew, err := blocktarget.ParseExport(again.PublishContext[records.ContextTargetExport])
	if err != nil {
		t.Fatal(err)
	}
	o.PublishContext[records.ContextTargetExport] = anew.String()
	if _, err := h.Open(ctx, o); err != nil || snap.bdevs[d.Name].DriverSpecific.MoorTarget.Fingerprint != anew.Fingerprint() {
		t.Fatalf("open by the new right: %v, %+v", err, snap.bdevs)
	}
	byFile := o
	byFile.PublishContext = nil
	if _, err := h.Open(ctx, byFile); !errors.Is(err, provisioner.ErrExists) {
		t.Fatalf("open by its file what is open through the target: %v", err)
	}
	snap.fail["delete"] = []error{&snaprpc.Error{Code: snaprpc.CodeUnreachable, Message: "a write is in doubt"}}
	if err := h.Close(ctx, o.VolumeID, d.Name); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Fatalf("close with a write in doubt: %v", err)
	}
	if err := h.Close(ctx, o.VolumeID, d.Name); err != nil || len(snap.bdevs) != 0 {
		t.Fatalf("close: %v, left %+v", err, snap.bdevs)
	}
	o.PublishContext = map[string]string{records.ContextTargetExport: "v@n#t"}
	if _, err := h.Open(ctx, o); !errors.Is(err, provisioner.ErrInvalid) || strings.Contains(err.Error(), "#t") {
		t.Fatalf("open without an address: %v", err)
	}
}

func TestKeepsTheContractOfEpochs(t *testing.T) {
	provisionertest.TestEpochs(t, func(t *testing.T) provisionertest.EpochsUnderTest {
		s := openVendor(t, localvendor.Options{Target: &localvendor.Target{Address: "target:10809", Revoker: willingTarget{}}})
		h := NewHost(newFakeSNAP(), t.TempDir(), t.TempDir())
		return provisionertest.EpochsUnderTest{Epochs: h, HostUnderTest: provisionertest.HostUnderTest{
			Host:    h,
			Prepare: func(t *testing.T, name string) provisioner.OpenSpec { return attachedImage(t, s, name) },
		}}
	})
}

// TestOnlyATargetKnowsEpochs: a device over a file, and a directory, take none.
func TestOnlyATargetKnowsEpochs(t *testing.T) {
	s, snap := openVendor(t, localvendor.Options{}), newFakeSNAP()
	h, ctx := NewHost(snap, s.dir, t.TempDir()), t.Context()
	spec := attachedImage(t, s, "one")
	d, err := h.Open(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	for volume, device := range map[string]string{spec.VolumeID: d.Name, "two": snaprpc.FSDevName("two")} {
		if err := h.OpenAtEpoch(ctx, volume, device, 1); !errors.Is(err, provisioner.ErrUnsupported) {
			t.Errorf("open %s at an epoch: %v", device, err)
		}
	}
	snap.fail["list"] = []error{snaprpc.ErrUnavailable}
	if err := h.OpenAtEpoch(ctx, spec.VolumeID, d.Name, 1); !errors.Is(err, provisioner.ErrUnavailable) {
		t.Errorf("without SNAP: %v", err)
	}
}
