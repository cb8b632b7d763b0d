package powerproof

import (
	"fmt"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// machine is one of the two whose power can be switched.
type machine string

const (
	theHost machine = "host"
	theDPU  machine = "DPU"
)

// way is what is done to have a proof.
type way struct {
	// machine whose BMC is asked; "": none.
	machine machine
	// words say why that proves nothing of the DPU; "" if it does.
	words string
}

// choose says by which machine it can be proven that a DPU no longer writes. A host that
// lives is not switched off, and a DPU that is heard is not reset: the one has pods that
// run, and the other can say itself what it has withdrawn. The host comes first where the
// DPU has its power from it, since a BMC of a card that has no power does not answer.
func choose(spec moorv1alpha1.PowerControlSpec, q Question) way {
	host, dpu := spec.Host != nil && q.MayOff, (spec.DPU != nil || spec.DPUDevice != nil) && q.MayReset
	switch {
	case host && spec.DPUPower == moorv1alpha1.DPUPowerHost:
		return way{machine: theHost}
	case dpu:
		return way{machine: theDPU}
	case host && !q.MayReset:
		return way{theHost, fmt.Sprintf("the host is switched off, so that DPU %s, which is heard, can let go of what it shows", q.DPU)}
	case !q.MayOff && !q.MayReset:
		return way{words: fmt.Sprintf("the host is not taken for dead, and DPU %s is heard, so neither is touched", q.DPU)}
	case host:
		return way{words: fmt.Sprintf("PowerControl %s has no BMC of DPU %s, and does not say that the DPU has its power from the host (spec.dpuPower)", q.Host, q.DPU)}
	}
	return way{words: fmt.Sprintf("PowerControl %s has no BMC that may be asked now: that of the host for one that is taken for dead, that of DPU %s for one that is silent", q.Host, q.DPU)}
}
