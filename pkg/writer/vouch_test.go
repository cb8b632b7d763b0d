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
