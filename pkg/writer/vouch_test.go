package writer

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// vouches is a word about the claim that inPhase makes, written at clockNow.
func vouches() *moorv1alpha1.OperatorReceipt {
	return &moorv1alpha1.OperatorReceipt{Epoch: 4, Holder: "dpu-a", AttachmentUID: "a", Time: &metav1.Time{Time: clockNow}, Operator: "jo", Reason: "pulled the plug"}
}

// TestRefuseVouch: a word counts if it names whom it is about, is fresh, and that DPU cannot
// answer; whatever else is said why it does not.
func TestRefuseVouch(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*moorv1alpha1.OperatorReceipt)
		age     time.Duration
		answers bool
		want    string
	}{
		"as it should be":      {nil, 0, false, ""},
		"in the last moment":   {nil, VouchLasts - 1, false, ""},
		"expired":              {nil, VouchLasts, false, "write it anew"},
		"a clock that is slow": {nil, -ahead, false, ""},
		"of the future":        {nil, -ahead - 1, false, "has not come yet"},
		"the DPU can answer":   {nil, 0, true, "is not silent"},
		"another epoch":        {func(o *moorv1alpha1.OperatorReceipt) { o.Epoch = 3 }, 0, false, "names epoch 3"},
		"no holder":            {func(o *moorv1alpha1.OperatorReceipt) { o.Holder = "" }, 0, false, "lacks holder;"},
		"no object":            {func(o *moorv1alpha1.OperatorReceipt) { o.AttachmentUID = "" }, 0, false, "lacks attachmentUID;"},
		"no time":              {func(o *moorv1alpha1.OperatorReceipt) { o.Time = nil }, 0, false, "lacks time;"},
		"another DPU":          {func(o *moorv1alpha1.OperatorReceipt) { o.Holder = "dpu-b" }, 0, false, "names DPU dpu-b"},
		"another object":       {func(o *moorv1alpha1.OperatorReceipt) { o.AttachmentUID = "b" }, 0, false, `"b"`},
	} {
		claim := inPhase(moorv1alpha1.ClaimFencing)
		claim.Spec.OperatorReceipt = vouches()
		if tc.change != nil {
			tc.change(claim.Spec.OperatorReceipt)
		}
		got := RefuseVouch(claim, clockNow.Add(tc.age), tc.answers)
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestRecoverByVouch: of a claim that was lost, the word ends what it names, and the DPU has
// to clear up before the storage is opened to it again.
func TestRecoverByVouch(t *testing.T) {
	lost, err := Lose(&moorv1alpha1.WriterClaim{}, 4, []moorv1alpha1.LostHolder{
		{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "a", Epoch: 2}, {DPU: "dpu-b", Attachment: "b-vol", AttachmentUID: "b", Epoch: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	lost.Spec.OperatorReceipt = vouches()
	if RecoverByVouch(lost, 0, clockNow, true) != nil || RecoverByVouch(lost, 1, clockNow, false) != nil || RecoverByVouch(lost, 2, clockNow, false) != nil {
		t.Error("a word about one that can answer, or about another, counts")
	}
	after := RecoverByVouch(lost, 0, clockNow, false)
	if after == nil || len(after.Status.Lost) != 1 || after.Status.Holder != "dpu-b" || after.Status.RevokedEpoch("dpu-a") != 2 {
		t.Fatalf("%+v", after)
	}
}

// TestFreeByVouch: of a holder whose attachment is gone from both clusters, the word that
// names it ends the epoch, and no other; the DPU has to clear up afterwards.
func TestFreeByVouch(t *testing.T) {
	for _, phase := range []moorv1alpha1.ClaimPhase{moorv1alpha1.ClaimGranted, moorv1alpha1.ClaimFencing} {
		claim := inPhase(phase)
		if freed, refused := FreeByVouch(claim, clockNow); freed != nil || refused != "" {
			t.Errorf("%s: freed without a word: %+v, %q", phase, freed, refused)
		}
		claim.Spec.OperatorReceipt = vouches()
		claim.Spec.OperatorReceipt.Epoch = 3
		if freed, refused := FreeByVouch(claim, clockNow); freed != nil || !strings.Contains(refused, "names epoch 3") {
			t.Errorf("%s: freed by a word about another epoch: %+v, %q", phase, freed, refused)
		}
		claim.Spec.OperatorReceipt = vouches()
		if freed, refused := FreeByVouch(claim, clockNow.Add(VouchLasts)); freed != nil || refused == "" {
			t.Errorf("%s: freed by an old word", phase)
		}
		freed, refused := FreeByVouch(claim, clockNow)
		if refused != "" || freed == nil || Held(freed) || freed.Status.RevokedEpoch("dpu-a") != 4 || LastReceipt(freed).Kind != moorv1alpha1.ReceiptOperator {
			t.Errorf("%s: %q, %+v", phase, refused, freed)
		}
	}
	if freed, _ := FreeByVouch(&moorv1alpha1.WriterClaim{Spec: moorv1alpha1.WriterClaimSpec{OperatorReceipt: vouches()}}, clockNow); freed != nil {
		t.Error("a claim that nothing holds is freed")
	}
}

// TestFreeByVouchOfALostClaim: the first of those who may write is who is vouched for.
func TestFreeByVouchOfALostClaim(t *testing.T) {
	lost, err := Lose(&moorv1alpha1.WriterClaim{}, 4, []moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "a", Epoch: 2}})
	if err != nil || HeldAttachment(lost) != "a-vol" {
		t.Fatal(err, lost)
	}
	lost.Spec.OperatorReceipt = vouches()
	if freed, _ := FreeByVouch(lost, clockNow); freed == nil || Held(freed) || freed.Status.Epoch != 4 {
		t.Errorf("%+v", freed)
	}
}

// TestWordsSayTheCommand: a message that asks for an operator's word has the command
// which writes one that counts.
func TestWordsSayTheCommand(t *testing.T) {
	claim := inPhase(moorv1alpha1.ClaimGranted)
	claim.Name, claim.Namespace = "vol", "ns"
	lost, err := Lose(&moorv1alpha1.WriterClaim{}, 4, []moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "a", Epoch: 2}})
	if err != nil {
		t.Fatal(err)
	}
	lost.Name, lost.Namespace = "vol", "ns"
	const command = `kubectl -n ns patch writerclaim vol --type merge -p '{"spec":{"operatorReceipt":{"epoch":4,"holder":"dpu-a","attachmentUID":"a","time":"'$(date -u +%FT%TZ)'","operator":"'$(kubectl auth whoami -o jsonpath='{.status.userInfo.username}')'","reason":"WHY"}}}'`
	for name, words := range map[string]string{"the attachment is gone": Bereft(claim), "the volume is gone": Orphaned(claim), "it was lost": LostMessage(lost), "both": Orphaned(lost)} {
		if !strings.Contains(words, command) {
			t.Errorf("%s: %s", name, words)
		}
	}
}

// TestRefuseVouchSays: a claim that names no object is vouched for without one, and what
// is missing is told together.
func TestRefuseVouchSays(t *testing.T) {
	const none = "spec.operatorReceipt does not count: "
	nameless := func(c *moorv1alpha1.WriterClaim) { c.Status.AttachmentUID = "" }
	for name, tc := range map[string]struct {
		change func(*moorv1alpha1.WriterClaim)
		age    time.Duration
		want   string
	}{
		"no word":                    {func(c *moorv1alpha1.WriterClaim) { c.Spec.OperatorReceipt = nil }, 0, none + "there is none"},
		"of a claim of before":       {func(c *moorv1alpha1.WriterClaim) { nameless(c); c.Spec.OperatorReceipt.AttachmentUID = "" }, 0, ""},
		"a UID that it has not":      {nameless, 0, none + `it names DPU dpu-a and attachment UID "a", and DPU dpu-a holds the right to write for ""`},
		"the epoch alone":            {func(c *moorv1alpha1.WriterClaim) { c.Spec.OperatorReceipt = &moorv1alpha1.OperatorReceipt{Epoch: 4} }, 0, none + `it lacks holder, attachmentUID, time; it has to name holder dpu-a, attachmentUID "a" and the time at which it is written`},
		"after a quarter of an hour": {func(*moorv1alpha1.WriterClaim) {}, 15 * time.Minute, none + "it was written at 2026-01-02T03:04:05Z and counts for 15m0s: if it is still so, write it anew"},
		"the moment before":          {func(*moorv1alpha1.WriterClaim) {}, 15*time.Minute - 1, ""},
	} {
		claim := inPhase(moorv1alpha1.ClaimFencing)
		claim.Spec.OperatorReceipt = vouches()
		tc.change(claim)
		if got := RefuseVouch(claim, clockNow.Add(tc.age), false); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestVouchForAFreeClaim: a word that was left on a claim that is free ends nothing, and
// nothing is said of it.
func TestVouchForAFreeClaim(t *testing.T) {
	claim := inPhase(moorv1alpha1.ClaimFree)
	claim.Spec.OperatorReceipt = vouches()
	if freed, refused := FreeByVouch(claim, clockNow); freed != nil || refused != "" {
		t.Errorf("%+v, %q", freed, refused)
	}
}

// TestVouchForOneOfNoEpoch: a DPU that showed the volume under no epoch can be vouched for as
// well. There is no epoch to put on record, which the API server would refuse: it has to clear
// up for the epoch that was lost.
func TestVouchForOneOfNoEpoch(t *testing.T) {
	shown := attachment(false, true, true)
	lost, err := Lose(&moorv1alpha1.WriterClaim{}, 4, []moorv1alpha1.LostHolder{MayWrite(shown)})
	if err != nil {
		t.Fatal(err)
	}
	lost.Spec.OperatorReceipt = vouches()
	got := RecoverByVouch(lost, 0, clockNow, false)
	if got == nil || Held(got) || len(got.Status.Revoked) != 0 || Uncleared(got, "dpu-a", 0) != 4 {
		t.Errorf("%+v", got)
	}
}
