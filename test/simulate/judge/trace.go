package judge

import (
	"maps"
	"slices"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// right is what the model knows of a WriterClaim.
type right struct {
	phase        moorv1alpha1.ClaimPhase
	epoch        int64
	holder       string
	object       string
	revokedEpoch map[string]int64
	lostEpoch    int64
	waits        []moorv1alpha1.LostHolder
	// word is that an operator's word is written into it.
	word bool
}

func rightOf(c *moorv1alpha1.WriterClaim) right {
	out := right{phase: moorv1alpha1.ClaimFree, revokedEpoch: map[string]int64{}}
	if c == nil {
		return out
	}
	out.word = c.Spec.OperatorReceipt != nil
	if s := c.Status; s != nil {
		out.phase, out.epoch, out.holder, out.object, out.lostEpoch, out.waits = s.Phase, s.Epoch, s.Holder, string(s.AttachmentUID), s.LostEpoch, s.Lost
		for _, r := range s.Revoked {
			out.revokedEpoch[r.DPU] = r.Epoch
		}
	}
	return out
}

// held is whether the claim is held, and has not lost its record.
func (r right) held() bool {
	return r.phase == moorv1alpha1.ClaimGranted || r.phase == moorv1alpha1.ClaimFencing
}

// with is revokedEpoch with one DPU's raised.
func (r right) with(dpu string, epoch int64) map[string]int64 {
	out := maps.Clone(r.revokedEpoch)
	out[dpu] = max(out[dpu], epoch)
	return out
}

// kept reports whether what outlives a grant is as it was.
func (r right) kept(now right) bool {
	return now.lostEpoch == r.lostEpoch && maps.Equal(now.revokedEpoch, r.revokedEpoch)
}

// steps are those of docs/model/claim.pml that change the claim, as they are written there, and
// what they look like. A step without text is of people, of whom the model knows nothing.
var steps = []struct {
	name, pml string
	is        func(was, now right) bool
}{
	{"grant", "phase == FREE && epoch == ep -> phase = GRANTED; holder = d; epoch = ep + 1", func(was, now right) bool {
		return was.phase == moorv1alpha1.ClaimFree && now.phase == moorv1alpha1.ClaimGranted && now.epoch == was.epoch+1 && now.holder != "" && was.kept(now)
	}},
	{"fence", "phase == GRANTED LIVEFENCE -> phase = FENCING", func(was, now right) bool {
		return was.phase == moorv1alpha1.ClaimGranted && now.phase == moorv1alpha1.ClaimFencing && now.same(was) && was.kept(now)
	}},
	{"free", "phase != FREE && epoch == ep -> phase = FREE; holder = NONE", func(was, now right) bool {
		return was.held() && now.phase == moorv1alpha1.ClaimFree && now.epoch == was.epoch && now.holder == "" && was.kept(now)
	}},
	{"free, by another's word", "if :: b -> revokedEpoch[holder] = ep :: else fi;", func(was, now right) bool {
		return (was.phase == moorv1alpha1.ClaimFencing || was.held() && was.word) && now.phase == moorv1alpha1.ClaimFree && now.epoch == was.epoch && now.holder == "" &&
			now.lostEpoch == was.lostEpoch && maps.Equal(now.revokedEpoch, was.with(was.holder, was.epoch))
	}},
	{"disown", "revokedEpoch[0] < DISOWNED(0) -> revokedEpoch[0] = DISOWNED(0)", func(was, now right) bool {
		return now.phase == was.phase && now.same(was) && now.lostEpoch == was.lostEpoch && raised(was.revokedEpoch, now.revokedEpoch) <= was.epoch
	}},
	{"remember", "BEHIND && (phase == FREE || phase == GRANTED) -> epoch = KNOWN; lostEpoch = KNOWN; holder = NONE;", func(was, now right) bool {
		return (was.phase == moorv1alpha1.ClaimFree || was.phase == moorv1alpha1.ClaimGranted) && now.epoch > was.epoch && now.lost()
	}},
	{"recover", "waits[d] = 0; phase = (waits[0] != 0 || waits[1] != 0 -> LOST : FREE)", func(was, now right) bool {
		return was.phase == moorv1alpha1.ClaimLost && now.epoch == was.epoch && now.lost() && now.lostEpoch == was.lostEpoch && len(now.waits) == len(was.waits)-1 &&
			!slices.ContainsFunc(now.waits, func(h moorv1alpha1.LostHolder) bool { return !slices.Contains(was.waits, h) })
	}},
	{"adopt", "waits[d] != va[d].uid -> waits[d] = va[d].uid", func(was, now right) bool {
		return was.phase == moorv1alpha1.ClaimLost && now.phase == was.phase && now.epoch == was.epoch && now.lostEpoch == was.lostEpoch &&
			slices.EqualFunc(was.waits, now.waits, func(a, b moorv1alpha1.LostHolder) bool { return a.DPU == b.DPU && a.Attachment == b.Attachment })
	}},
	{"step 4 of docs/restore.md", "", func(was, now right) bool {
		return was.held() && now.phase == moorv1alpha1.ClaimLost && now.epoch == was.epoch && now.lostEpoch == now.epoch &&
			len(now.waits) == 1 && now.waits[0].DPU == was.holder && string(now.waits[0].AttachmentUID) == was.object
	}},
}

// same reports whether it is the same grant.
func (r right) same(was right) bool {
	return r.epoch == was.epoch && r.holder == was.holder && r.object == was.object && slices.Equal(r.waits, was.waits)
}

// lost reports whether a claim that has lost its record is as it has to be.
func (r right) lost() bool {
	if len(r.waits) == 0 {
		return r.phase == moorv1alpha1.ClaimFree && r.holder == "" && r.object == "" && r.lostEpoch > 0
	}
	return r.phase == moorv1alpha1.ClaimLost && r.holder == r.waits[0].DPU && r.object == "" && r.lostEpoch > 0
}

// raised is the highest epoch that is new; more than any epoch if one was taken back.
func raised(was, now map[string]int64) int64 {
	out := int64(0)
	for dpu, epoch := range was {
		if now[dpu] < epoch {
			return 1 << 62
		}
	}
	for dpu, epoch := range now {
		if epoch > was[dpu] {
			out = max(out, epoch)
		}
	}
	return out
}

// trace finds changes of a claim that are no step of the model. That a claim is gone, or made
// anew, is none: force and restores do that.
func (j *Judge) trace(name string, before, after *moorv1alpha1.WriterClaim) {
	was, now := rightOf(before), rightOf(after)
	for _, s := range steps {
		if s.is(was, now) {
			return
		}
	}
	j.Find(Transition, "WriterClaim %s went from %s %s %d to %s %s %d", name, was.phase, was.holder, was.epoch, now.phase, now.holder, now.epoch)
}
