package writer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// shows is an attachment of DPU dpu-a that shows the volume under epoch 3.
func shows() *storagev1alpha1.VolumeAttachment {
	a := attachment(false, true, true)
	a.Spec.Epoch, a.Status.DPU.Epoch = 3, 3
	return a
}

// TestLost: a claim that knows less than others grants nothing and lets nothing be shown,
// until the DPU has looked at all that it shows; then it goes on above what was known.
func TestLost(t *testing.T) {
	for name, claim := range map[string]*moorv1alpha1.WriterClaim{
		"made anew":       {Spec: moorv1alpha1.WriterClaimSpec{VolumeName: "vol"}},
		"free, of before": {Status: &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			a := shows()
			lost, err := Lose(claim, Seen(a), []moorv1alpha1.LostHolder{MayWrite(a)})
			if err != nil || !IsLost(lost) || !Held(lost) || lost.Status.Epoch != 3 || lost.Status.LostEpoch != 3 || lost.Status.Holder != "dpu-a" {
				t.Fatalf("%v: %+v", err, lost)
			}
			me := HolderOf(a)
			if v := Judge(lost, me); v.Grant || !strings.Contains(v.Refused, "DPU dpu-a (VolumeAttachment a-vol, epoch 3)") {
				t.Errorf("granted: %+v", v)
			}
			if _, err := Grant(lost, me); err == nil || Refusal("dpu-a", a, lost) == "" || Holds(lost, me) || !FencedFrom(lost, "dpu-a") || FencedFrom(lost, "dpu-b") {
				t.Error("it gives a right")
			}
			if LostEpoch("dpu-a", a, lost) != 3 || LostEpoch("dpu-b", a, lost) != 0 {
				t.Error("not taken from the DPU that shows it, or from another")
			}
			recovers(t, lost)
		})
	}
}

func recovers(t *testing.T, lost *moorv1alpha1.WriterClaim) {
	t.Helper()
	for name, tc := range map[string]struct {
		change func(*storagev1alpha1.VolumeAttachment)
		want   bool
	}{
		"shown": {func(*storagev1alpha1.VolumeAttachment) {}, false},
		"cleared": {func(a *storagev1alpha1.VolumeAttachment) {
			a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{ClearedEpoch: 3}
		}, true},
		"cleared, shown": {func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.ClearedEpoch = 3 }, false},
		"an older epoch": {func(a *storagev1alpha1.VolumeAttachment) {
			a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{ClearedEpoch: 2}
		}, false},
		"retired alone": {func(a *storagev1alpha1.VolumeAttachment) {
			a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 3}
		}, false},
		"another object": {func(a *storagev1alpha1.VolumeAttachment) {
			a.UID, a.Status.DPU = "anew", storagev1alpha1.VolumeAttachmentDPU{ClearedEpoch: 3}
		}, false},
	} {
		a := shows()
		tc.change(a)
		after := Recover(lost, a, clockNow)
		if (after != nil) != tc.want {
			t.Errorf("%s: recovered %v", name, after != nil)
		}
		if after == nil {
			continue
		}
		if v := Judge(after, HolderOf(a)); !v.Grant || v.Epoch != 4 || after.Status.Holder != "" || len(after.Status.Lost) != 0 || LastReceipt(after).Epoch != 3 {
			t.Errorf("%s: %+v, the verdict is %+v", name, after.Status, v)
		}
	}
}

// TestLoseKeepsWhoHeldIt: a claim that was restored knows of a holder itself; that one has
// to be proven over too. What is being fenced stays so.
func TestLoseKeepsWhoHeldIt(t *testing.T) {
	other := moorv1alpha1.LostHolder{DPU: "dpu-b", Attachment: "b-vol", AttachmentUID: "b", Epoch: 5}
	lost, err := Lose(inPhase(moorv1alpha1.ClaimGranted), 5, []moorv1alpha1.LostHolder{other})
	if err != nil || len(lost.Status.Lost) != 2 || lost.Status.Lost[1].DPU != "dpu-a" {
		t.Errorf("%v: %+v", err, lost)
	}
	if _, err := Lose(inPhase(moorv1alpha1.ClaimFencing), 5, nil); err == nil {
		t.Error("a fence is forgotten")
	}
	if _, err := Lose(inPhase(moorv1alpha1.ClaimFree), 4, nil); err == nil {
		t.Error("a claim that knows all is lost")
	}
	if free, err := Lose(inPhase(moorv1alpha1.ClaimFree), 6, nil); err != nil || Held(free) || free.Status.Epoch != 6 {
		t.Errorf("no DPU may write, and the claim is %+v, %v", free, err)
	}
}

// TestWritable: what an attachment says itself of whether its DPU may write.
func TestWritable(t *testing.T) {
	for name, tc := range map[string]struct {
		epoch int64
		dpu   storagev1alpha1.VolumeAttachmentDPU
		want  bool
	}{
		"nothing was granted":    {0, storagev1alpha1.VolumeAttachmentDPU{}, false},
		"granted":                {3, storagev1alpha1.VolumeAttachmentDPU{}, true},
		"retired":                {3, storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 3}, false},
		"an earlier one retired": {3, storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 2}, true},
		"retired, and shown":     {3, storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 3, Attached: true}, true},
		"shown, of no epoch":     {0, storagev1alpha1.VolumeAttachmentDPU{Attached: true}, true},

		"shown under a later one than is retired": {3, storagev1alpha1.VolumeAttachmentDPU{Epoch: 4, RetiredEpoch: 3}, true},
		"retired what was shown":                  {3, storagev1alpha1.VolumeAttachmentDPU{Epoch: 4, RetiredEpoch: 4}, false},
	} {
		a := shows()
		a.Spec.Epoch, a.Status.DPU = tc.epoch, tc.dpu
		if got := Writable(a); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestLosePutsAllOnRecord: the holder that the claim knows is on record once, and only as
// itself; of the right that it had nothing is left, and the higher epoch counts.
func TestLosePutsAllOnRecord(t *testing.T) {
	holder := moorv1alpha1.LostHolder{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "a", Epoch: 4}
	for name, tc := range map[string]struct {
		others []moorv1alpha1.LostHolder
		want   []moorv1alpha1.LostHolder
	}{
		"others know of none":           {nil, []moorv1alpha1.LostHolder{holder}},
		"others know of it":             {[]moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "anew", Epoch: 6}}, []moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "anew", Epoch: 6}}},
		"of its DPU, for another":       {[]moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "b-vol", Epoch: 6}}, []moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "b-vol", Epoch: 6}, holder}},
		"of its name, on another's DPU": {[]moorv1alpha1.LostHolder{{DPU: "dpu-b", Attachment: "a-vol", Epoch: 6}}, []moorv1alpha1.LostHolder{{DPU: "dpu-b", Attachment: "a-vol", Epoch: 6}, holder}},
	} {
		claim := inPhase(moorv1alpha1.ClaimGranted)
		claim.Spec.AfterEpoch = 7
		got, err := Lose(claim, 6, tc.others)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimLost, Holder: tc.want[0].DPU, Epoch: 7, LostEpoch: 7, Lost: tc.want}
		if d := cmp.Diff(want, got.Status); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	const refused = "record that WriterClaim vol lost epoch 5: "
	if _, err := Lose(inPhase(moorv1alpha1.ClaimFencing), 5, nil); err == nil || err.Error() != refused+ErrTransition.Error() {
		t.Errorf("%v", err)
	}
}

// TestLoseLeavesItsArguments: what becomes of the claim does not change what others know.
func TestLoseLeavesItsArguments(t *testing.T) {
	others := append(make([]moorv1alpha1.LostHolder, 0, 2), moorv1alpha1.LostHolder{DPU: "dpu-b", Attachment: "b-vol", AttachmentUID: "b", Epoch: 5})
	claim := inPhase(moorv1alpha1.ClaimGranted)
	got, err := Lose(claim, 5, others)
	if err != nil || len(got.Status.Lost) != 2 {
		t.Fatalf("%v: %+v", err, got)
	}
	got.Status.Lost[0].Epoch = 9
	if others[0].Epoch != 5 || others[:2][1] != (moorv1alpha1.LostHolder{}) || !cmp.Equal(claim, inPhase(moorv1alpha1.ClaimGranted)) {
		t.Errorf("others know %+v, and the claim is %+v", others[:2], claim.Status)
	}
}

// TestBehind: a claim that does not know of an epoch that was granted is behind.
func TestBehind(t *testing.T) {
	after := &moorv1alpha1.WriterClaim{Spec: moorv1alpha1.WriterClaimSpec{AfterEpoch: 1}}
	for name, tc := range map[string]struct {
		claim *moorv1alpha1.WriterClaim
		epoch int64
		want  bool
	}{
		"no claim, and nothing was granted":  {nil, 0, false},
		"no claim, and the first epoch was":  {nil, 1, true},
		"a new one, and nothing was granted": {&moorv1alpha1.WriterClaim{}, 0, false},
		"a new one, and the first epoch was": {&moorv1alpha1.WriterClaim{}, 1, true},
		"made anew after the first epoch":    {after, 0, true},
		"it knows as much":                   {inPhase(moorv1alpha1.ClaimFree), 4, false},
		"it knows less":                      {inPhase(moorv1alpha1.ClaimFree), 5, true},
	} {
		if got := Behind(tc.claim, tc.epoch); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestRecoverNeedsTheWord: that a DPU shows nothing for the attachment is no proof, also if it
// was granted no epoch there: it has to have looked for what was lost.
func TestRecoverNeedsTheWord(t *testing.T) {
	for _, tc := range []struct {
		name           string
		epoch, cleared int64
		want           bool
	}{
		{"of no epoch, never looked", 0, 0, false},
		{"of no epoch, looked for an earlier loss", 0, 3, false},
		{"of no epoch, looked", 0, 4, true},
		{"of an epoch, looked for an earlier loss", 3, 3, false},
		{"of an epoch, looked", 3, 4, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lost, err := Lose(&moorv1alpha1.WriterClaim{}, 4, []moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "a", Epoch: tc.epoch}})
			if err != nil {
				t.Fatal(err)
			}
			a := attachment(false, true, false)
			a.Spec.Epoch, a.Status.DPU.ClearedEpoch = tc.epoch, tc.cleared
			if got := Recover(lost, a, clockNow) != nil; got != tc.want {
				t.Errorf("proven: %v, want %v", got, tc.want)
			}
		})
	}
}

// TestRecoverKeepsTheProof: a DPU that has cleared up gives the receipt itself, so nothing of
// it is revoked; one that is vouched for has to clear up later. Both say when.
func TestRecoverKeepsTheProof(t *testing.T) {
	for kind, recovered := range map[moorv1alpha1.ReceiptKind]func(*moorv1alpha1.WriterClaim, *storagev1alpha1.VolumeAttachment) *moorv1alpha1.WriterClaim{
		moorv1alpha1.ReceiptDPU: func(c *moorv1alpha1.WriterClaim, a *storagev1alpha1.VolumeAttachment) *moorv1alpha1.WriterClaim {
			return Recover(c, a, clockNow)
		},
		moorv1alpha1.ReceiptOperator: func(c *moorv1alpha1.WriterClaim, _ *storagev1alpha1.VolumeAttachment) *moorv1alpha1.WriterClaim {
			c.Spec.OperatorReceipt = vouches()
			return RecoverByVouch(c, 0, clockNow, false)
		},
	} {
		t.Run(string(kind), func(t *testing.T) {
			lost, err := Lose(&moorv1alpha1.WriterClaim{}, 4, []moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "a", Epoch: 3}})
			if err != nil {
				t.Fatal(err)
			}
			a := attachment(false, true, false)
			a.Status.DPU.ClearedEpoch = 4
			got := recovered(lost, a)
			if got == nil {
				t.Fatal("not recovered")
			}
			last := LastReceipt(got)
			if len(got.Status.Receipts) != 1 || last.Kind != kind || last.Holder != "dpu-a" || last.Epoch != 3 || !last.Time.Time.Equal(clockNow) || last.Message == "" {
				t.Errorf("receipts %+v", got.Status.Receipts)
			}
			if revoked := got.Status.RevokedEpoch("dpu-a"); (revoked == 3) != (kind != moorv1alpha1.ReceiptDPU) || len(got.Status.Revoked) > 1 || revoked == 0 && len(got.Status.Revoked) > 0 {
				t.Errorf("revoked %+v", got.Status.Revoked)
			}
		})
	}
}

// TestNoObjectProvesNothing: an entry of which only the host cluster knows is spoken for by no
// attachment, also not by one without an UID, which only code can make.
func TestNoObjectProvesNothing(t *testing.T) {
	lost, err := Lose(&moorv1alpha1.WriterClaim{}, 4, []moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "a-vol", Epoch: 3}})
	if err != nil {
		t.Fatal(err)
	}
	a := attachment(false, true, false)
	a.UID, a.Status.DPU.ClearedEpoch = "", 9
	if Recover(lost, a, clockNow) != nil || LostEpoch("dpu-a", a, lost) != 0 || Adopt(lost, a) != nil {
		t.Error("it speaks for what was lost")
	}
	if !Asks(lost, Holder{DPU: "dpu-a", Attachment: "a-vol"}) {
		t.Error("the DPU is not asked by another attachment")
	}
}

// TestLeftOverEntries: only a claim that is lost waits for those who are listed.
func TestLeftOverEntries(t *testing.T) {
	claim := inPhase(moorv1alpha1.ClaimGranted)
	claim.Spec.OperatorReceipt = vouches()
	claim.Status.Lost = []moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "b-vol", AttachmentUID: "a", Epoch: 4}}
	a := attachment(false, true, false)
	a.Name, a.Status.DPU.ClearedEpoch = "b-vol", 9
	if FencedFrom(claim, "dpu-a") || LostEpoch("dpu-a", a, claim) != 0 || Recover(claim, a, clockNow) != nil || RecoverByVouch(claim, 0, clockNow, false) != nil ||
		Asks(claim, Holder{DPU: "dpu-a", Attachment: "b-vol"}) || HeldAttachment(claim) != "a-vol" {
		t.Error("what is left over counts")
	}
	for _, none := range []*moorv1alpha1.WriterClaim{nil, {}} {
		if Asks(none, HolderOf(a)) || Adopt(none, a) != nil || RecoverByVouch(none, 0, clockNow, false) != nil {
			t.Errorf("claim %+v asks", none)
		}
	}
}

// TestLostWithoutEntries: a claim without a list is not waited for with a command that
// names no DPU, and no attachment can answer.
func TestLostWithoutEntries(t *testing.T) {
	claim := inPhase(moorv1alpha1.ClaimLost)
	claim.Status.Attachment = ""
	const want = "WriterClaim vol was deleted or restored and had lost its record of epoch 4: nothing is granted before these have withdrawn the volume: ; delete the pods that use it there; "
	if got := LostMessage(claim); got != want || HeldAttachment(claim) != "" {
		t.Errorf("%q, held for %q", got, HeldAttachment(claim))
	}
}
