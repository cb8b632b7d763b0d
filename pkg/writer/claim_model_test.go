package writer

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// The variables and macros of docs/model/claim.pml, by their names there.
const (
	free = iota
	granted
	fencing
	lost
)

const none = 2

var (
	phases = []moorv1alpha1.ClaimPhase{moorv1alpha1.ClaimFree, moorv1alpha1.ClaimGranted, moorv1alpha1.ClaimFencing, moorv1alpha1.ClaimLost}
	dpus   = []string{"dpu-0", "dpu-1", ""}
	names  = []string{"va-0", "va-1", ""}
	uids   = []types.UID{"uid-0", "uid-1", ""}
)

// claimState is the WriterClaim of the model. Of waits it has only whether there is one; each
// is the uid of names.
type claimState struct {
	phase, epoch, holder int
	revokedEpoch         [2]int
	lostEpoch            int
	waits                [2]bool
}

// state is one of a claim that never lost its record.
func state(phase, epoch, holder int, revoked [2]int) claimState {
	return claimState{phase: phase, epoch: epoch, holder: holder, revokedEpoch: revoked}
}

func (s claimState) claim() *moorv1alpha1.WriterClaim {
	out := &moorv1alpha1.WriterClaim{Status: &moorv1alpha1.WriterClaimStatus{
		Phase: phases[s.phase], Holder: dpus[s.holder], Attachment: names[s.holder], AttachmentUID: uids[s.holder], Epoch: int64(s.epoch), LostEpoch: int64(s.lostEpoch),
	}}
	for d, waits := range s.waits {
		if waits {
			out.Status.Lost = append(out.Status.Lost, lostHolderOf(d, s.epoch))
			out.Status.Holder = out.Status.Lost[0].DPU // the model has none
		}
	}
	for d, epoch := range s.revokedEpoch {
		if epoch != 0 {
			out.Status.Revoked = append(out.Status.Revoked, moorv1alpha1.Revoked{DPU: dpus[d], Epoch: int64(epoch)})
			out.Status.Receipts = append(out.Status.Receipts, moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptStorage, Holder: dpus[d], Epoch: int64(epoch)})
		}
	}
	return out
}

// stateOf is the state that a claim is in.
func stateOf(t *testing.T, c *moorv1alpha1.WriterClaim) claimState {
	t.Helper()
	index := func(all []string, s string) int {
		for i := range all {
			if all[i] == s {
				return i
			}
		}
		t.Fatalf("%q is none of %q", s, all)
		return 0
	}
	out := claimState{epoch: int(c.Status.Epoch), holder: index(dpus, c.Status.Holder), lostEpoch: int(c.Status.LostEpoch)}
	if len(c.Status.Lost) > 0 {
		out.holder, out.waits = none, waitsOf(c.Status.Lost)
	}
	if index(names, c.Status.Attachment) != out.holder {
		t.Fatalf("DPU and attachment do not belong together: %+v", c.Status)
	}
	for phases[out.phase] != c.Status.Phase {
		out.phase++
	}
	for d := range out.revokedEpoch {
		out.revokedEpoch[d] = int(c.Status.RevokedEpoch(dpus[d]))
	}
	return out
}

// claimStates are those that the model can reach, with few epochs.
func claimStates() []claimState {
	const epochs = 3
	var out []claimState
	for epoch := range epochs {
		for r0 := range epoch + 1 {
			for r1 := range epoch + 1 {
				revoked := [2]int{r0, r1}
				out = append(out, state(free, epoch, none, revoked))
				for holder := 0; holder < 2 && epoch > 0; holder++ {
					if revoked[holder] < epoch {
						out = append(out, state(granted, epoch, holder, revoked), state(fencing, epoch, holder, revoked))
					}
				}
				out = append(out, lostStates(epoch, revoked)...)
			}
		}
	}
	return out
}

// claimSteps are the steps of the model that change the claim, each as it is
// written there.
var claimSteps = []struct {
	pml  string
	next func(claimState) []claimState
}{
	{"phase == FREE && epoch == ep -> phase = GRANTED; holder = d; epoch = ep + 1", func(s claimState) []claimState {
		if s.phase != free {
			return nil
		}
		return []claimState{state(granted, s.epoch+1, 0, s.revokedEpoch), state(granted, s.epoch+1, 1, s.revokedEpoch)}
	}},
	{"phase == GRANTED LIVEFENCE -> phase = FENCING", func(s claimState) []claimState {
		if s.phase != granted {
			return nil
		}
		return []claimState{state(fencing, s.epoch, s.holder, s.revokedEpoch)}
	}},
	// orderly, receipt A
	{"phase != FREE && epoch == ep -> phase = FREE; holder = NONE", func(s claimState) []claimState {
		if s.phase != granted && s.phase != fencing { // one that was lost has no holder
			return nil
		}
		return []claimState{state(free, s.epoch, none, s.revokedEpoch)}
	}},
	// failover, receipts A and B
	{"if :: b -> revokedEpoch[holder] = ep :: else fi;\n\t\tphase = FREE; holder = NONE", func(s claimState) []claimState {
		if s.phase != fencing {
			return nil
		}
		revoked := s.revokedEpoch
		revoked[s.holder] = s.epoch
		return []claimState{state(free, s.epoch, none, s.revokedEpoch), state(free, s.epoch, none, revoked)}
	}},
	// of whom a lost claim waits for first the code does not: that is its holder there
	{"MAYDISOWN(0) && revokedEpoch[0] < DISOWNED(0) -> revokedEpoch[0] = DISOWNED(0)", disowned(0)},
	{"MAYDISOWN(1) && revokedEpoch[1] < DISOWNED(1) -> revokedEpoch[1] = DISOWNED(1)", disowned(1)},
}

// TestModelOfTheClaim: from each state the code goes wherever the model goes, and
// nowhere else, whatever it is asked for.
func TestModelOfTheClaim(t *testing.T) {
	kinds := []moorv1alpha1.ReceiptKind{moorv1alpha1.ReceiptMedium, moorv1alpha1.ReceiptDPU, moorv1alpha1.ReceiptStorage, moorv1alpha1.ReceiptPower, moorv1alpha1.ReceiptLeaseBound, moorv1alpha1.ReceiptOperator}
	for _, s := range claimStates() {
		want, got := map[claimState]bool{}, map[claimState]bool{}
		for _, step := range claimSteps {
			for _, next := range step.next(s) {
				want[next] = true
			}
		}
		add := func(c *moorv1alpha1.WriterClaim, err error) {
			if err == nil {
				got[stateOf(t, c)] = true
			}
		}
		for d := range 2 {
			for epoch := range 4 {
				// A claim that is written as it was is no step.
				if c, err := Disown(s.claim(), overOf(d, epoch)); err == nil && epoch > s.revokedEpoch[d] {
					add(c, nil)
				}
			}
			add(Grant(s.claim(), Holder{dpus[d], names[d], uids[d]}))
			for _, kind := range kinds {
				for epoch := range int64(4) {
					add(Free(s.claim(), moorv1alpha1.Receipt{Kind: kind, Holder: dpus[d], AttachmentUID: uids[d], Epoch: epoch}, clockNow))
				}
			}
		}
		add(BeginFencing(s.claim()))
		lostSteps(s, want, add)
		if !maps.Equal(got, want) {
			t.Errorf("from %+v the code goes to %v, the model to %v", s, got, want)
		}
	}
}

// world is a state of the model as DPU 0 and its attachment see it.
type world struct {
	claimState
	here, deleting, dpuFin, claimFin, storageFin, attached, noticed bool
	vaEpoch, retired                                                int
	svva, revokes                                                   bool
}

func (w world) attachment() *storagev1alpha1.VolumeAttachment {
	if !w.here {
		return nil
	}
	out := &storagev1alpha1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: names[0], UID: uids[0]}}
	out.Spec.NodeName, out.Spec.Epoch = dpus[0], int64(w.vaEpoch)
	out.Status.DPU.Attached, out.Status.DPU.RetiredEpoch = w.attached, int64(w.retired)
	revokes(out, !w.svva, false) // the attacher has written that before it let go
	if w.deleting {
		out.DeletionTimestamp = &metav1.Time{Time: clockNow}
	}
	if w.dpuFin {
		out.Finalizers = append(out.Finalizers, storagev1alpha1.FinalizerDPUAttachment)
	}
	if w.claimFin {
		out.Finalizers = append(out.Finalizers, storagev1alpha1.FinalizerWriterClaim)
	}
	return out
}

func (w world) evidence() Evidence {
	return Evidence{Attachment: w.attachment(), Storage: Revocation{
		Vouched: w.revokes, Asked: w.storageFin, Noticed: w.noticed, Gone: !w.svva, Driver: "d",
	}}
}

// proved is the kind of the receipt, if there is one.
func (w world) proved() moorv1alpha1.ReceiptKind {
	if receipt, _ := Prove(w.claim(), w.evidence()); receipt != nil {
		return receipt.Kind
	}
	return ""
}

// step of an orderly detach; Wait for what is none.
func (w world) step() Step {
	if !w.here || !Detaching(w.attachment()) {
		return Wait
	}
	step, _ := Detach(w.attachment(), w.claim())
	return step
}

// The macros.
func (w world) open() bool   { return w.vaEpoch > w.retired }
func (w world) mine() bool   { return w.phase == granted && w.holder == 0 && w.epoch == w.vaEpoch }
func (w world) heldBy() bool { return w.phase != free && w.holder == 0 }
func (w world) canGo() bool  { return w.here && w.deleting && w.claimFin }
func (w world) retiredAll() bool {
	return (w.vaEpoch > 0 || w.heldBy()) && w.retired >= w.vaEpoch && (!w.heldBy() || w.retired >= w.epoch)
}

func (w world) released() bool {
	return w.here && w.deleting && !w.attached && (!w.dpuFin || w.retiredAll())
}

func (w world) over() bool {
	return w.here && w.deleting && w.vaEpoch > 0 && !w.attached && w.retired >= w.vaEpoch && w.dpuFin && !w.claimFin
}

func (w world) ended() bool {
	return w.here && ((!w.attached && w.retired >= w.epoch) || w.released())
}

func (w world) revocable() bool {
	return w.revokes && w.here && w.deleting && w.storageFin && w.noticed
}

// rules are the conditions of the model's steps, each as it is written there,
// beside the code's.
var rules = []struct {
	pml         string
	model, code func(world) bool
}{
	{
		"phase == FREE && epoch < EPOCHS LIVEFIRST -> ep = epoch;",
		func(w world) bool { return w.phase == free },
		func(w world) bool { return Judge(w.claim(), Holder{dpus[0], names[0], uids[0]}).Grant },
	},
	{
		"phase == GRANTED && holder == d && SAME(d) && va[d].epoch != epoch -> ep = epoch; goto promote",
		func(w world) bool { return w.phase == granted && w.holder == 0 },
		func(w world) bool {
			v := Judge(w.claim(), Holder{dpus[0], names[0], uids[0]})
			return !v.Grant && v.Refused == "" && v.Epoch == int64(w.epoch)
		},
	},
	{
		"#define OPEN (va[d].epoch > va[d].retired)\n#define MINE (phase == GRANTED && holder == d && epoch == e && SAME(d))",
		func(w world) bool { return w.here && w.open() && w.mine() },
		func(w world) bool { return w.here && Refusal(dpus[0], w.attachment(), w.claim()) == "" },
	},
	{
		"phase == FENCING && holder == d && va[d].here && SAME(d) && (va[d].retired < epoch || va[d].attached)",
		func(w world) bool {
			return w.phase == fencing && w.holder == 0 && w.here && (w.retired < w.epoch || w.attached)
		},
		func(w world) bool {
			if !w.here {
				return false
			}
			epoch := FencedEpoch(dpus[0], w.attachment(), w.claim())
			return epoch != 0 && (int64(w.retired) < epoch || w.attached)
		},
	},
	{
		"#define LEFT (va[d].here && !va[d].deleting && va[d].retired < UNCLEARED(d))",
		func(w world) bool { return w.retired < w.uncleared() },
		func(w world) bool { return Uncleared(w.claim(), dpus[0], int64(w.retired)) != 0 },
	},
	{
		"#define CLEARED(d) (!BEHIND && va[d].retired >= UNCLEARED(d))",
		func(w world) bool { return w.retired >= w.uncleared() },
		func(w world) bool { return Uncleared(w.claim(), dpus[0], int64(w.retired)) == 0 },
	},
	{
		"CANGO(0) && PROOF(0) && HELDBY(0) -> ep = epoch; READ; break",
		func(w world) bool { return w.canGo() && w.released() && w.heldBy() },
		func(w world) bool { return w.step() == FreeClaim },
	},
	{
		"CANGO(0) && RELEASED(0) && !HELDBY(0) && !WAITS(0) -> va[0].claimFin = 0",
		func(w world) bool { return w.canGo() && w.released() && !w.heldBy() && !w.waits[0] },
		func(w world) bool { return w.step() == LetGo },
	},
	{
		"phase == FENCING && ENDED(holder) && SAME(holder) -> ep = epoch; READ; break",
		func(w world) bool { return w.phase == fencing && w.holder == 0 && w.ended() },
		func(w world) bool { return w.proved() == moorv1alpha1.ReceiptDPU },
	},
	{ // where both are true, the code takes the stronger one
		"phase == FENCING && REVOCABLE(holder) && !svva[holder] -> ep = epoch; b = 1; READ; break",
		func(w world) bool {
			return w.phase == fencing && w.holder == 0 && w.revocable() && !w.svva && !w.ended()
		},
		func(w world) bool { return w.proved() == moorv1alpha1.ReceiptStorage },
	},
	{
		"(va[n].claimFin || OVER(n)) && !HELDBY(n) && \\\n\trevokedEpoch[n] != 0 && revokedEpoch[n] >= va[n].epoch)",
		func(w world) bool {
			return (w.canGo() || w.over()) && !w.heldBy() && w.revokedEpoch[0] != 0 && w.revokedEpoch[0] >= w.vaEpoch
		},
		func(w world) bool { return w.here && OverWithoutDPU(w.attachment(), w.claim()) },
	},
	{
		"#define NEVER(n) (va[n].deleting && va[n].claimFin && va[n].epoch == 0 && !va[n].attached && !HELDBY(n) && !WAITS(n))",
		func(w world) bool { return w.never() },
		func(w world) bool { return w.here && NeverGranted(w.attachment(), w.claim()) },
	},
	{
		"#define MAYDISOWN(n) (va[n].here && (OVER(n) || NEVER(n)) && va[n].epoch <= epoch && !(phase != FREE && holder == n))",
		func(w world) bool {
			return (w.over() || w.never()) && w.vaEpoch <= w.epoch && !w.heldBy() && !w.first(0)
		},
		func(w world) bool {
			if !w.here {
				return false
			}
			_, err := Disown(w.claim(), w.attachment())
			return err == nil
		},
	},
}

// worlds calls do with each state of an attachment of DPU 0 beside a claim.
func worlds(s claimState, do func(world)) {
	for bits := range 1 << 9 {
		is := func(i int) bool { return bits&(1<<i) != 0 }
		for vaEpoch := range 3 {
			for retired := range 3 {
				do(world{
					claimState: s, here: is(0), deleting: is(1), dpuFin: is(2), claimFin: is(3), storageFin: is(4), attached: is(5), noticed: is(6),
					vaEpoch: vaEpoch, retired: retired, svva: is(7), revokes: is(8),
				})
			}
		}
	}
}

// TestModelOfTheRules: each rule says in every state what the model says.
func TestModelOfTheRules(t *testing.T) {
	for _, r := range rules {
		allowed, wrong := 0, 0
		for _, s := range claimStates() {
			worlds(s, func(w world) {
				got, want := r.code(w), r.model(w)
				if want {
					allowed++
				}
				if got != want && wrong < 3 {
					wrong++
					t.Errorf("%s\n%+v: the code says %v", r.pml, w, got)
				}
			})
		}
		if allowed == 0 {
			t.Errorf("%s: never true", r.pml)
		}
	}
}
