package writer

import (
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// lostLines are the steps of the model with a claim that lost its record.
var lostLines = []string{
	"BEHIND && (phase == FREE || phase == GRANTED) -> epoch = KNOWN; lostEpoch = KNOWN; holder = NONE;",
	"phase = (waits[0] != 0 || waits[1] != 0 -> LOST : FREE)",
	"WAITS(d) && !va[d].attached && cleared[d] >= epoch ->\n\t\twaits[d] = 0;",
	"phase == LOST && waits[d] != 0 && va[d].here && !va[d].deleting && waits[d] != va[d].uid -> waits[d] = va[d].uid",
	"#define WAITS(n) (phase == LOST && va[n].here && waits[n] == va[n].uid)",
	"#define UNCLEARED(d) (revokedEpoch[d] > lostEpoch -> revokedEpoch[d] : lostEpoch)",
}

// lostHolderOf is the entry of a claim that was lost for a DPU.
func lostHolderOf(dpu, epoch int) moorv1alpha1.LostHolder {
	return moorv1alpha1.LostHolder{DPU: dpus[dpu], Attachment: names[dpu], AttachmentUID: uids[dpu], Epoch: int64(epoch)}
}

func waitsOf(list []moorv1alpha1.LostHolder) (out [2]bool) {
	for _, h := range list {
		for d := range out {
			out[d] = out[d] || h.DPU == dpus[d]
		}
	}
	return out
}

// anyOf are the sets of DPUs.
func anyOf() [][2]bool { return [][2]bool{{false, false}, {true, false}, {false, true}, {true, true}} }

// lost is a claim that lost its record and knows of the epoch: free if it waits for none.
func (s claimState) lost(epoch int, waits [2]bool) claimState {
	out := claimState{phase: lost, epoch: epoch, holder: none, revokedEpoch: s.revokedEpoch, lostEpoch: epoch, waits: waits}
	if waits == [2]bool{} {
		out.phase = free
	}
	return out
}

// lostStates are those in which a claim waits for one or both.
func lostStates(epoch int, revoked [2]int) (out []claimState) {
	for _, waits := range anyOf() {
		if epoch > 0 && waits != [2]bool{} {
			out = append(out, state(free, 0, none, revoked).lost(epoch, waits))
		}
	}
	return out
}

// first reports whether a claim that was lost names the DPU as its holder.
func (s claimState) first(dpu int) bool {
	return s.phase == lost && s.waits[dpu] && (dpu == 0 || !s.waits[0])
}

func (w world) uncleared() int { return max(w.revokedEpoch[0], w.lostEpoch) }

// lostSteps are the steps to a claim that has lost its record, and from it. The model may
// forget the holder that the claim still knows; the code waits for that one too.
func lostSteps(s claimState, want map[claimState]bool, add func(*moorv1alpha1.WriterClaim, error)) {
	for known := range 4 {
		for _, waits := range anyOf() {
			var holders []moorv1alpha1.LostHolder
			for d := range waits {
				if waits[d] {
					holders = append(holders, lostHolderOf(d, known))
				}
			}
			add(Lose(s.claim(), int64(known), holders))
			if known > s.epoch && (s.phase == free || s.phase == granted && waits[s.holder]) {
				want[s.lost(known, waits)] = true
			}
		}
	}
	for d := range 2 {
		if now := Recover(s.claim(), clearedBy(d, s.epoch), clockNow); now != nil {
			add(now, nil)
		}
		if s.phase == lost && s.waits[d] {
			next := s.waits
			next[d] = false
			want[s.lost(s.epoch, next)] = true
		}
	}
}

// clearedBy is the attachment of a DPU that has cleared up what was lost.
func clearedBy(dpu, epoch int) *storagev1alpha1.VolumeAttachment {
	a := world{here: true}.attachment()
	a.Name, a.UID, a.Spec.NodeName, a.Status.DPU.ClearedEpoch = names[dpu], uids[dpu], dpus[dpu], int64(epoch)
	return a
}

// TestModelOfALostClaim: who is waited for is proven by the DPU's word alone, about the very
// object; or the DPU is asked by another of the name.
func TestModelOfALostClaim(t *testing.T) {
	for _, s := range claimStates() {
		for _, own := range []bool{true, false} {
			for _, deleting := range []bool{true, false} {
				for _, attached := range []bool{true, false} {
					for cleared := range 4 {
						a := clearedBy(0, cleared)
						a.Status.DPU.Attached = attached
						if deleting {
							a.DeletionTimestamp = &metav1.Time{Time: clockNow}
						}
						if !own {
							a.UID = "anew"
						}
						says := fmt.Sprintf("%+v, of it %v, deleting %v, attached %v, cleared %d", s, own, deleting, attached, cleared)
						waits := s.phase == lost && s.waits[0]
						if got, want := Recover(s.claim(), a, clockNow) != nil, waits && own && !attached && cleared >= s.epoch; got != want {
							t.Errorf("%s: over %v, want %v", says, got, want)
						}
						if got, want := Adopt(s.claim(), a) != nil, waits && !own && !deleting; got != want {
							t.Errorf("%s: asked by it %v, want %v", says, got, want)
						}
					}
				}
			}
		}
	}
}

// mediumLines are the rules of the model with a storage that knows epochs.
var mediumLines = []string{
	"#define USABLE (fencedBelow >= e)",
	"phase == FENCING && va[holder].here && fencedBelow > epoch -> ep = epoch; b = 1; READ; break",
	"phase != GRANTED && fencedBelow <= epoch -> fencedBelow = epoch + 1",
	"va[0].here && fencedBelow < va[0].epoch -> fencedBelow = va[0].epoch",
}

// TestModelOfTheMedium: what counts by the storage's word about epochs, and what is asked of it.
func TestModelOfTheMedium(t *testing.T) {
	for _, s := range claimStates() {
		for vaEpoch := range 4 {
			for below := range 4 {
				a := world{here: true, attached: true, vaEpoch: vaEpoch}.attachment()
				open := int64(vaEpoch)
				a.Status.DPU.OpenEpoch = &open
				if below > 0 {
					a.Status.Fence = &storagev1alpha1.StorageFence{Epoch: int64(below), AttachmentUID: a.UID}
				}
				says := fmt.Sprintf("%+v, epoch %d, fenced below %d", s, vaEpoch, below)
				if got, want := Unfenced(a) == "", vaEpoch > 0 && below >= vaEpoch; got != want {
					t.Errorf("%s: usable %v, want %v", says, got, want)
				}
				receipt, _ := Prove(s.claim(), Evidence{Attachment: a})
				if got, want := receipt != nil && receipt.Kind == moorv1alpha1.ReceiptMedium, s.phase == fencing && s.holder == 0 && below > s.epoch; got != want {
					t.Errorf("%s: a receipt %v, want %v", says, got, want)
				}
				// The model may ask earlier, and as long as the claim is not granted.
				if got := FenceFor(s.claim(), a); got != 0 && (s.phase == granted || got != int64(s.epoch)+1) {
					t.Errorf("%s: asked for %d while it is held", says, got)
				}
				if got := ToFence(a); got > int64(vaEpoch) || got != 0 && got <= int64(below) || got == 0 && vaEpoch > below {
					t.Errorf("%s: to fence %d", says, got)
				}
			}
		}
	}
}

// TestModelIsTheModel: what is compared with is what the model says.
func TestModelIsTheModel(t *testing.T) {
	text, err := os.ReadFile("../../docs/model/claim.pml")
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{
		"#define HELDBY(n) (phase != FREE && holder == n && SAME(n))",
		"#define CANGO(n) (va[n].here && va[n].deleting && va[n].claimFin)",
		"#define RETIRED(n) ((va[n].epoch > 0 || HELDBY(n)) && va[n].retired >= va[n].epoch && (!HELDBY(n) || va[n].retired >= epoch))",
		"#define RELEASED(n) (va[n].here && va[n].deleting && !va[n].attached && (!va[n].dpuFin || RETIRED(n)))",
		"#define ENDED(n) (va[n].here && ((!va[n].attached && va[n].retired >= epoch) || RELEASED(n)))",
		"#define OVER(n) (va[n].deleting && va[n].epoch > 0 && !va[n].attached && va[n].retired >= va[n].epoch && va[n].dpuFin && !va[n].claimFin)",
		"#define ANOTHERS(d) (phase != FREE && holder == d && !SAME(d))", // TestHeldForAnother
		"#define REVOCABLE(n) (revokes && va[n].here && va[n].deleting && va[n].storageFin && NOTICED(n))",
	}
	lines = append(lines, lostLines...)
	lines = append(lines, mediumLines...)
	for _, s := range claimSteps {
		lines = append(lines, s.pml)
	}
	for _, r := range rules {
		lines = append(lines, r.pml)
	}
	for _, line := range lines {
		if !strings.Contains(string(text), line) {
			t.Errorf("docs/model/claim.pml does not say any more: %s", line)
		}
	}
}
