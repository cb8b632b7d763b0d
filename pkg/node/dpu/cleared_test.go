package dpu

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/writer"
)

// TestClearsUpForWhatItNeverTouched: a claim that was lost waits for the DPU of each
// attachment that had an epoch. One that is deleted before the DPU has put its finalizer on
// gets the DPU's word all the same: the claim would wait for ever.
func TestClearsUpForWhatItNeverTouched(t *testing.T) {
	for name, tc := range map[string]struct {
		of   string
		want bool
	}{
		"lost of this DPU":    {of: "dpu-1", want: true},
		"lost of another DPU": {of: "dpu-2"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			m := newMachine(t, c, "dpu-1")
			c.volume("v1", corev1.ReadWriteOnce)
			a := c.attachment("v1", "dpu-1")
			c.held(a.Name)
			c.grant(a, 3)
			lost := &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimLost, Holder: tc.of, Epoch: 3, Lost: []moorv1alpha1.LostHolder{{DPU: tc.of, Attachment: a.Name, AttachmentUID: a.UID, Epoch: 3}}}
			c.claim("v1", lost)
			c.must(c.Delete(t.Context(), c.get(a.Name)))
			claim := &moorv1alpha1.WriterClaim{Status: lost}
			c.must(m.pass(a.Name))
			if writer.Recover(claim, c.get(a.Name), m.clock.Now()) != nil {
				t.Error("nothing is on record of who showed it, and what was sent was not waited for")
			}
			m.clock.Step(drainTime)
			c.must(m.pass(a.Name))
			if proven := writer.Recover(claim, c.get(a.Name), m.clock.Now()) != nil; proven != tc.want {
				t.Errorf("proven: %v, want %v: %+v", proven, tc.want, c.get(a.Name).Status.DPU)
			}
			version := c.get(a.Name).ResourceVersion
			c.must(m.pass(a.Name))
			if c.get(a.Name).ResourceVersion != version {
				t.Error("it is said again")
			}
		})
	}
}
