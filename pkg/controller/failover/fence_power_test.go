package failover

import (
	"errors"
	"testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/failover/powerproof"
	"github.com/moor-storage/moor/pkg/writer"
)

// TestPowerOfTwoClaims: what is asked for one volume of a host goes on when another is free:
// the time that other proofs have is not begun again with each.
func TestPowerOfTwoClaims(t *testing.T) {
	s := newFixture(t)
	s.bmcs(moorv1alpha1.DPUPowerHost)
	p, one := fencePass()
	_, other := fencePass()
	other.claim.UID = "another"
	waits := func(of *target, want string) {
		t.Helper()
		if err := s.f.fencer.wait(t.Context(), p, of); err == nil || err.Error() != want {
			t.Errorf("it waits for %v, want %q", err, want)
		}
	}
	for _, of := range []*target{one, other} {
		inTheFence(p, of)
		of.missing = "the DPU"
		waits(of, "the DPU")
	}
	s.Step(powerproof.DefaultAfter)
	one.claim.Status = &moorv1alpha1.WriterClaimStatus{Phase: freed, Epoch: 4}
	if err := s.f.fencer.fence(t.Context(), p, one); err != nil {
		t.Fatal(err)
	}
	waits(other, "the DPU; power: the BMC of the host is asked")
}

// TestNothingToSwitchOn: of a host that was never switched off nothing is told.
func TestNothingToSwitchOn(t *testing.T) {
	s := newFixture(t)
	s.bmcs(moorv1alpha1.DPUPowerHost)
	p, target := fencePass()
	target.claim.Status = &moorv1alpha1.WriterClaimStatus{Phase: freed, Epoch: 4}
	if err := s.f.fencer.switchOn(t.Context(), p); err != nil || len(p.waits) > 0 {
		t.Errorf("%v, it waits for %q", err, p.waits)
	}
}

// TestOnlyWhatIsGrantedIsFenced: a claim that is not granted by now, as one that was lost,
// stays as it is, and nothing is told of it but that.
func TestOnlyWhatIsGrantedIsFenced(t *testing.T) {
	for _, phase := range []moorv1alpha1.ClaimPhase{freed, fencing, moorv1alpha1.ClaimLost} {
		s := newFixture(t)
		p, target := s.fencePass()
		target.claim.Status.Phase = phase
		before := s.Writes()
		if err := s.f.fencer.beginFencing(t.Context(), p, target); !errors.Is(err, writer.ErrTransition) {
			t.Errorf("%s: %v", phase, err)
		}
		if events := s.Events(); s.Writes() != before || target.claim.Status.Phase != phase || len(events) > 0 {
			t.Errorf("%s: %d writes, the claim is %s, told %q", phase, s.Writes()-before, target.claim.Status.Phase, events)
		}
		if c, _ := kubetest.Read(s.DPU, target.claim.DeepCopy()); c.Status.Phase != granted {
			t.Errorf("%s: the claim is %s", phase, c.Status.Phase)
		}
	}
}
