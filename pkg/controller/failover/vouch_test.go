package failover

import (
	"testing"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/writer"
)

// TestAnOldWordTakesNothing: a word that was written while the DPU was heard does not lie in
// wait for a restart, after which nothing is known, or for a time when the host is not well.
func TestAnOldWordTakesNothing(t *testing.T) {
	s := newFixture(t)
	s.operator(4)
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/Held", "WriterClaim vol", "DPU dpu-a is not silent")
	s.restart()
	s.mustPass()
	s.wantPhase(granted)
	s.live(int(writer.VouchLasts/time.Second), "a", "dpu-a", "b", "dpu-b")
	s.live(40, "a", "b")
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/Held", "write it anew")
	s.operator(4)
	s.mustPass()
	s.wantPhase(freed)
}

// TestAWordAgainstADPUThatIsHeard: the host is not well, which says nothing of its DPU: that can say itself
// what it shows.
func TestAWordAgainstADPUThatIsHeard(t *testing.T) {
	s := newFixture(t)
	s.live(10, "a", "dpu-a", "b", "dpu-b")
	s.notReady("a")
	s.operator(4)
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/Held", "HostHung", "DPU dpu-a is not silent")
}

// TestAWordHasToFit: one in the old form is told what it lacks, and one that names another
// object is no word about this one.
func TestAWordHasToFit(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*moorv1alpha1.OperatorReceipt)
		says   string
	}{
		"in the old form":   {func(o *moorv1alpha1.OperatorReceipt) { o.Holder, o.AttachmentUID, o.Time = "", "", nil }, "it lacks holder, attachmentUID, time"},
		"of another DPU":    {func(o *moorv1alpha1.OperatorReceipt) { o.Holder = "dpu-b" }, "it names DPU dpu-b"},
		"of another object": {func(o *moorv1alpha1.OperatorReceipt) { o.AttachmentUID = "earlier" }, `attachment UID "earlier"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := bothDead(t)
			s.operator(4)
			kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { tc.change(c.Spec.OperatorReceipt) })
			s.mustPass()
			s.wantPhase(fencing)
			s.later()
			s.wantSays("True/Fencing", tc.says)
		})
	}
}

// TestAWordWaitsForSilence: a DPU whose heartbeat is late, and whose host lives, can still
// answer; one that is silent cannot.
func TestAWordWaitsForSilence(t *testing.T) {
	s := newFixture(t)
	s.live(15, "a", "b", "dpu-b")
	s.operator(4)
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/Held", "DPU dpu-a is not silent")
	s.live(15, "a", "b", "dpu-b")
	s.mustPass()
	s.wantPhase(freed)
}
