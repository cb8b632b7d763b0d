package writer

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// TestJudge goes through every phase, holder and attachment.
func TestJudge(t *testing.T) {
	const me, mine, epoch = "dpu-me", "me-vol", 7
	phases := []moorv1alpha1.ClaimPhase{"", moorv1alpha1.ClaimFree, moorv1alpha1.ClaimGranted, moorv1alpha1.ClaimFencing}
	for _, phase := range phases {
		for _, holder := range []string{"", me, "dpu-other"} {
			for i, attachment := range []string{"", mine, "other-vol", "", mine, "other-vol", "", mine, "other-vol"} {
				uid := []types.UID{"", "me", "earlier"}[i/3]
				t.Run(fmt.Sprintf("%s/%s/%s/%s", phase, holder, attachment, uid), func(t *testing.T) {
					claim := &moorv1alpha1.WriterClaim{
						Spec:   moorv1alpha1.WriterClaimSpec{VolumeName: "vol"},
						Status: &moorv1alpha1.WriterClaimStatus{Phase: phase, Holder: holder, Attachment: attachment, AttachmentUID: uid, Epoch: epoch},
					}
					got := Judge(claim, Holder{me, mine, "me"})
					switch {
					case phase == moorv1alpha1.ClaimFree:
						if !got.Grant || got.Epoch != epoch+1 || got.Refused != "" {
							t.Errorf("a free claim: %+v", got)
						}
					case phase == moorv1alpha1.ClaimGranted && holder == me && attachment == mine && uid != "earlier":
						if got.Grant || got.Epoch != epoch || got.Refused != "" {
							t.Errorf("our own claim: %+v", got)
						}
					default:
						if got.Grant || got.Epoch != 0 || !strings.Contains(got.Refused, "vol") {
							t.Errorf("another's claim: %+v", got)
						}
					}
				})
			}
		}
	}
}

func TestJudgeOfNewClaim(t *testing.T) {
	got := Judge(&moorv1alpha1.WriterClaim{}, Holder{"d", "a", "u"})
	if !got.Grant || got.Epoch != 1 {
		t.Errorf("a claim without a status: %+v, want a grant of epoch 1", got)
	}
}

func TestSettled(t *testing.T) {
	me := Holder{"dpu-me", "me-vol", "me"}
	for name, tc := range map[string]struct {
		phase moorv1alpha1.ClaimPhase
		to    Holder
		epoch int64
		want  bool
	}{
		"granted, and told":        {moorv1alpha1.ClaimGranted, me, 7, true},
		"not told":                 {moorv1alpha1.ClaimGranted, me, 0, false},
		"told of an earlier one":   {moorv1alpha1.ClaimGranted, me, 6, false},
		"being fenced":             {moorv1alpha1.ClaimFencing, me, 7, false},
		"free":                     {moorv1alpha1.ClaimFree, me, 7, false},
		"for another attachment":   {moorv1alpha1.ClaimGranted, Holder{"dpu-me", "other", "me"}, 7, false},
		"for another DPU's":        {moorv1alpha1.ClaimGranted, Holder{"other", "me-vol", "me"}, 7, false},
		"for an earlier one":       {moorv1alpha1.ClaimGranted, Holder{"dpu-me", "me-vol", "earlier"}, 7, false},
		"for whatever object":      {moorv1alpha1.ClaimGranted, Holder{"dpu-me", "me-vol", ""}, 7, true},
		"free, under the next one": {moorv1alpha1.ClaimFree, me, 8, false},
	} {
		claim := &moorv1alpha1.WriterClaim{Status: &moorv1alpha1.WriterClaimStatus{Phase: tc.phase, Holder: tc.to.DPU, Attachment: tc.to.Attachment, AttachmentUID: tc.to.UID, Epoch: 7}}
		if got := Settled(claim, me, tc.epoch); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if Settled(&moorv1alpha1.WriterClaim{}, me, 0) {
		t.Error("a new claim is settled")
	}
}

func TestJudgeMessages(t *testing.T) {
	claim := func(phase moorv1alpha1.ClaimPhase) *moorv1alpha1.WriterClaim {
		return &moorv1alpha1.WriterClaim{
			Spec:   moorv1alpha1.WriterClaimSpec{VolumeName: "vol"},
			Status: &moorv1alpha1.WriterClaimStatus{Phase: phase, Holder: "dpu-b", Attachment: "b-vol", Epoch: 3},
		}
	}
	for phase, want := range map[moorv1alpha1.ClaimPhase]string{
		moorv1alpha1.ClaimGranted: "volume vol has a single writer, and DPU dpu-b holds it (attachment b-vol, epoch 3): this attachment waits until that one is deleted",
		moorv1alpha1.ClaimFencing: "volume vol is being fenced from DPU dpu-b (epoch 3); it waits for proof that the old host can no longer write",
	} {
		if got := Judge(claim(phase), Holder{"dpu-a", "a-vol", "a"}).Refused; got != want {
			t.Errorf("%s: got %q, want %q", phase, got, want)
		}
	}
}

// TestJudgeOfAnEarlierAttachment: a claim that is held for an attachment whose place another
// has taken says so, and does not wait for the end of what is gone already.
func TestJudgeOfAnEarlierAttachment(t *testing.T) {
	got := Judge(inPhase(moorv1alpha1.ClaimGranted), Holder{"dpu-a", "a-vol", "anew"}).Refused
	if !strings.HasPrefix(got, "DPU dpu-a holds the right to write volume vol (epoch 4) for VolumeAttachment a-vol (UID a), which is gone without a receipt: ") {
		t.Errorf("%q", got)
	}
}

// TestLastReceipt: that of the epoch that ended last.
func TestLastReceipt(t *testing.T) {
	none, two := inPhase(moorv1alpha1.ClaimFree), inPhase(moorv1alpha1.ClaimFree)
	two.Status.Receipts = []moorv1alpha1.Receipt{{Epoch: 3}, {Epoch: 4}}
	one := two.DeepCopy()
	one.Status.Receipts = one.Status.Receipts[:1]
	for want, claims := range map[int64][]*moorv1alpha1.WriterClaim{0: {{}, none}, 3: {one}, 4: {two}} {
		for _, claim := range claims {
			if got := LastReceipt(claim); (got == nil) != (want == 0) || got != nil && got.Epoch != want {
				t.Errorf("%+v: %+v, want that of epoch %d", claim.Status, got, want)
			}
		}
	}
}
