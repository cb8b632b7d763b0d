package writer

import (
	"fmt"
	"strings"
	"testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// TestJudge goes through every phase, holder and attachment.
func TestJudge(t *testing.T) {
	const me, mine, epoch = "dpu-me", "me-vol", 7
	phases := []moorv1alpha1.ClaimPhase{"", moorv1alpha1.ClaimFree, moorv1alpha1.ClaimGranted, moorv1alpha1.ClaimFencing}
	for _, phase := range phases {
		for _, holder := range []string{"", me, "dpu-other"} {
			for _, attachment := range []string{"", mine, "other-vol"} {
				t.Run(fmt.Sprintf("%s/%s/%s", phase, holder, attachment), func(t *testing.T) {
					claim := &moorv1alpha1.WriterClaim{
						Spec:   moorv1alpha1.WriterClaimSpec{VolumeName: "vol"},
						Status: &moorv1alpha1.WriterClaimStatus{Phase: phase, Holder: holder, Attachment: attachment, Epoch: epoch},
					}
					got := Judge(claim, Holder{me, mine})
					switch {
					case phase == moorv1alpha1.ClaimFree:
						if !got.Grant || got.Epoch != epoch+1 || got.Refused != "" {
							t.Errorf("a free claim: %+v", got)
						}
					case phase == moorv1alpha1.ClaimGranted && holder == me && attachment == mine:
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
	got := Judge(&moorv1alpha1.WriterClaim{}, Holder{"d", "a"})
	if !got.Grant || got.Epoch != 1 {
		t.Errorf("a claim without a status: %+v, want a grant of epoch 1", got)
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
		if got := Judge(claim(phase), Holder{"dpu-a", "a-vol"}).Refused; got != want {
			t.Errorf("%s: got %q, want %q", phase, got, want)
		}
	}
}
