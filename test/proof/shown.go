package proof

import (
	"fmt"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/reference/showlog"
	"github.com/moor-storage/moor/reference/writelog"
)

// under is the last epoch of a DPU that had begun at a time and was not over, -1 if there is none.
func under(dpu string, at time.Duration, epochs []epoch) int {
	for i := len(epochs) - 1; i >= 0; i-- {
		if epochs[i].holder == dpu && epochs[i].accepts(at) {
			return i
		}
	}
	return -1
}

// checkReaders wants each read to be under an epoch of its DPU. Reads of several DPUs are in no
// order, so each is judged by itself.
func checkReaders(f *findings, reads []writelog.Access, epochs []epoch) {
	told := map[string]bool{} // one violation for a run of a DPU's reads
	for _, r := range reads {
		out := under(r.DPU, r.Monotonic, epochs) < 0
		if out && !told[r.DPU] {
			f.add(RuleReaders, "%s read at %s, when it held no epoch: %s", r.DPU, r.Monotonic, tell(r.DPU, epochs))
		}
		told[r.DPU] = out
	}
}

// checkExposures wants a DPU to begin to show the volume under an epoch of its own, and to show
// nothing any more that was begun under an epoch which its own word has ended. A DPU of whose end
// others gave the receipt may show it for longer: what it is asked to write is not accepted.
func checkExposures(f *findings, exposures []showlog.Exposure, epochs []epoch) {
	for _, x := range exposures {
		dpu := writelog.Short(x.DPU)
		i := under(dpu, x.Begin, epochs)
		if i < 0 {
			f.add(RuleShown, "%s began to show it at %s, when it held no epoch: %s", x.DPU, x.Begin, tell(dpu, epochs))
			continue
		}
		e := epochs[i]
		if e.receipt != moorv1alpha1.ReceiptDPU || !e.ended || x.Ended && x.End <= e.end {
			continue
		}
		until := "on"
		if x.Ended {
			until = "until " + x.End.String()
		}
		f.add(RuleWithdrawn, "%s gave its word that epoch %d was over, which was seen at %s, and showed it from %s %s", x.DPU, e.number, e.end, x.Begin, until)
	}
}

// tell says which epoch a DPU held last, for people.
func tell(dpu string, epochs []epoch) string {
	i := lastOf(dpu, epochs)
	switch {
	case i < 0:
		return "it never held the claim"
	case epochs[i].ended:
		return fmt.Sprintf("its last was epoch %d, seen to be over at %s", epochs[i].number, epochs[i].end)
	}
	return fmt.Sprintf("its last is epoch %d", epochs[i].number)
}
