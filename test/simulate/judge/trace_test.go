package judge

import (
	"os"
	"strings"
	"testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// TestStepsAreTheModels: each step is written in the model as it stands here.
func TestStepsAreTheModels(t *testing.T) {
	model, err := os.ReadFile("../../../docs/model/claim.pml")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if !strings.Contains(string(model), s.pml) {
			t.Errorf("%s: the model has no %q", s.name, s.pml)
		}
	}
}

// TestTrace: what the model does not have is found.
func TestTrace(t *testing.T) {
	status := func(phase moorv1alpha1.ClaimPhase, holder string, epoch int64) *moorv1alpha1.WriterClaimStatus {
		return &moorv1alpha1.WriterClaimStatus{Phase: phase, Holder: holder, Epoch: epoch}
	}
	revoked := status(moorv1alpha1.ClaimFree, "", 1)
	revoked.Revoked = []moorv1alpha1.Revoked{{DPU: "a", Epoch: 1}}
	lost := status(moorv1alpha1.ClaimLost, "a", 3)
	lost.LostEpoch, lost.Lost = 3, []moorv1alpha1.LostHolder{{DPU: "a", Attachment: "x", AttachmentUID: "1", Epoch: 3}}
	over := status(moorv1alpha1.ClaimFree, "", 3)
	over.LostEpoch = 3
	none, granted, fencing, free := (*moorv1alpha1.WriterClaimStatus)(nil), status(moorv1alpha1.ClaimGranted, "a", 1), status(moorv1alpha1.ClaimFencing, "a", 1), status(moorv1alpha1.ClaimFree, "", 1)
	for name, tc := range map[string]struct {
		was, now *moorv1alpha1.WriterClaimStatus
		found    bool
	}{
		"the first grant":                   {none, granted, false},
		"an epoch is left out":              {none, status(moorv1alpha1.ClaimGranted, "a", 2), true},
		"granted to another at once":        {granted, status(moorv1alpha1.ClaimGranted, "b", 2), true},
		"the same epoch, of another":        {granted, status(moorv1alpha1.ClaimGranted, "b", 1), true},
		"a fence begins":                    {granted, fencing, false},
		"a fence is called off":             {fencing, granted, true},
		"freed":                             {granted, free, false},
		"freed, and the epoch goes back":    {status(moorv1alpha1.ClaimGranted, "a", 2), free, true},
		"freed by another's word":           {fencing, revoked, false},
		"freed by another's, and no fence":  {granted, revoked, true},
		"who was locked out is forgotten":   {revoked, status(moorv1alpha1.ClaimGranted, "b", 2), true},
		"it has lost its record":            {granted, lost, false},
		"that is not noted":                 {granted, status(moorv1alpha1.ClaimFree, "", 3), true},
		"the last of them has cleared up":   {lost, over, false},
		"granted while one is waited for":   {lost, status(moorv1alpha1.ClaimGranted, "b", 4), true},
		"its DPU was silent after that end": {free, revoked, false},
	} {
		t.Run(name, func(t *testing.T) {
			j := New()
			j.trace("v", &moorv1alpha1.WriterClaim{Status: tc.was}, &moorv1alpha1.WriterClaim{Status: tc.now})
			if found := len(j.Violations()) > 0; found != tc.found {
				t.Errorf("found %v", j.Violations())
			}
		})
	}
}
