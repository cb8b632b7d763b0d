package snap

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/snap/nvme"
	"github.com/moor-storage/moor/pkg/provisioner/snap/service"
)

// TestRecoverAsksLast: when it is asked, all is made and nothing serves. What it refuses is
// removed if that is final, and else stays as it is, suspended.
func TestRecoverAsksLast(t *testing.T) {
	for name, c := range map[string]struct {
		says error
		left int
	}{
		"allowed": {nil, 1}, "over": {provisioner.ErrPrecondition, 0}, "not known": {provisioner.ErrUnavailable, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			d := New(s.rpc, service.Options{})
			specs, _ := s.exposeAll(d, vfOf, "a")
			s.emu.Restart()
			s.addDevice("a")
			spec, asked := specs[0], 0
			spec.Recover = func(ctx context.Context) error {
				asked++
				all, err := d.nvme.List(ctx)
				if err != nil || len(all) != 1 || all[0].Visible || all[0].UUID != spec.UUID || all[0].PCIAddress != spec.PCIAddress || s.calls()["nvme_controller_attach_ns"] != 1 {
					t.Errorf("asked too early or too late: %+v, %v", all, err)
				}
				return c.says
			}
			_, err := d.Expose(t.Context(), spec)
			if (err == nil) != (c.says == nil) || asked == 0 {
				t.Fatalf("asked %d times: %v", asked, err)
			}
			resumed := s.calls()["nvme_controller_resume"]
			if all, err := d.List(t.Context()); err != nil || len(all) != c.left || (resumed > 0) != (c.says == nil) {
				t.Fatalf("left %+v, %v, resumed %d times", all, err, resumed)
			}
		})
	}
}

// TestDiscard: a function is rid of what it has kept by a controller that never serves, and nothing
// is left of that; one that has a controller is let alone.
func TestDiscard(t *testing.T) {
	s := newService(t)
	d := New(s.rpc, service.Options{})
	specs, _ := s.exposeAll(d, vfOf, "a")
	if err := d.Discard(t.Context(), "b", specs[0].PCIAddress); err != nil || s.calls()["nvme_controller_destroy"] != 1 {
		t.Fatalf("%v, %d controllers destroyed", err, s.calls()["nvme_controller_destroy"])
	}
	s.emu.Restart()
	if err := d.Discard(t.Context(), "a", specs[0].PCIAddress); err != nil {
		t.Fatal(err)
	}
	if c := s.calls(); c["nvme_controller_create"] != 1 || c["nvme_controller_destroy"] != 1 || c["nvme_controller_resume"] != 0 {
		t.Fatalf("calls %v", c)
	}
	s.wantEmpty()
	if err := d.Discard(t.Context(), "a", "26:1f.7"); err != nil {
		t.Fatalf("no such function: %v", err)
	}
}

// TestSuspendedIsMadeAnew: a controller that was made and has not served is destroyed, unless what
// its function has kept is recovered.
func TestSuspendedIsMadeAnew(t *testing.T) {
	for _, recovers := range []bool{false, true} {
		t.Run(fmt.Sprintf("recovers is %v", recovers), func(t *testing.T) {
			s := newService(t)
			s.addDevice("d")
			ctx := t.Context()
			err := s.rpc.NvmeSubsystemCreate(ctx, nvme.NQN("d"))
			if err == nil {
				err = s.rpc.NvmeNamespaceCreate(ctx, snaprpc.NamespaceSpec{NQN: nvme.NQN("d"), NSID: 1, BdevName: "d"})
			}
			if err == nil {
				_, err = s.rpc.NvmeControllerCreate(ctx, snaprpc.ControllerSpec{NQN: nvme.NQN("d"), PCIBDF: "26:00.4", Suspended: true})
			}
			if err != nil {
				t.Fatal(err)
			}
			spec := vfOf("d")
			if recovers {
				spec.Recover = func(context.Context) error { return nil }
			}
			e, err := New(s.rpc, service.Options{}).Expose(ctx, spec)
			if err != nil || !e.Visible || (s.calls()["nvme_controller_destroy"] == 0) != recovers {
				t.Fatalf("%+v, %v, %d controllers destroyed", e, err, s.calls()["nvme_controller_destroy"])
			}
		})
	}
}

// TestRecoverElsewhere: only the function on record has kept what is to be recovered. While
// another volume has that one, or there is none, nothing is made elsewhere.
func TestRecoverElsewhere(t *testing.T) {
	for name, tc := range map[string]struct {
		taken bool
		moved string
		want  error
	}{
		"it is free":       {},
		"another has it":   {taken: true, want: provisioner.ErrInUse},
		"there is no such": {moved: "26:1f.7", want: provisioner.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			d := New(s.rpc, service.Options{})
			specs, _ := s.exposeAll(d, vfOf, "a")
			if err := d.Withdraw(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			if tc.taken {
				s.addDevice("b")
				other := vfOf("b")
				other.PCIAddress = specs[0].PCIAddress
				if _, err := d.Expose(t.Context(), other); err != nil {
					t.Fatal(err)
				}
			}
			if tc.moved != "" {
				specs[0].PCIAddress = tc.moved
			}
			before := s.calls()
			specs[0].Recover = func(context.Context) error { return nil }
			_, err := d.Expose(t.Context(), specs[0])
			if !errors.Is(err, tc.want) {
				t.Fatalf("%v, want %v", err, tc.want)
			}
			now := s.calls()
			if got := now["nvme_controller_resume"] - before["nvme_controller_resume"]; (got == 1) != (tc.want == nil) {
				t.Errorf("%d controllers were resumed", got)
			}
			if got := now["nvme_controller_destroy"] - before["nvme_controller_destroy"]; got != 0 {
				t.Errorf("%d functions were rid of what they had kept", got)
			}
		})
	}
}
