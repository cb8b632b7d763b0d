package failover

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/writer"
)

// requestAhead is by how much the clock of who asks may be ahead.
const requestAhead = time.Minute

func refuse(reason, format string, args ...any) request {
	return request{reason: reason, message: "spec.failover does not count: " + fmt.Sprintf(format, args...)}
}

// judgeRequest says what becomes of the request. What is named has to be so still: a
// request is not to lie in wait for another card, another boot or another day.
func (p *pass) judgeRequest() request {
	r := p.node.Spec.Failover
	if r == nil {
		return request{}
	}
	age := p.now.Sub(r.Time.Time)
	switch at := r.Time.UTC().Format(time.RFC3339); {
	case r.DPUName != p.dpu():
		return refuse(moorv1alpha1.ReasonRefused, "it names DPU %s, and the host's DPU is %s now", r.DPUName, p.dpu())
	case r.BootID != p.boot():
		return refuse(moorv1alpha1.ReasonRefused, "it names boot %q of the host, and that is %q now", r.BootID, p.boot())
	case age < -requestAhead:
		return refuse(moorv1alpha1.ReasonRefused, "it was written at %s, which has not come yet", at)
	case p.carriedOut(r):
		return refuse(moorv1alpha1.ReasonCarriedOut, "the host has failed over since %s, and was given back", at)
	case age >= writer.VouchLasts && !p.begunBy(r):
		return refuse(moorv1alpha1.ReasonExpired, "it was written at %s and counts for %s: if it is still wanted, write it anew", at, writer.VouchLasts)
	case p.state == Healthy && p.underway:
		return refuse(moorv1alpha1.ReasonCarriedOut, "the host has failed over and is healthy again")
	case p.state == Healthy:
		return refuse(moorv1alpha1.ReasonRefused, "the host is healthy: drain it (kubectl drain %s)", p.node.Name)
	case p.state == Unknown && p.observation.Host != nodehealth.Stale:
		return refuse(moorv1alpha1.ReasonNotKnown, "too little is known of the host yet: %s", p.evidence)
	}
	return request{counts: true, reason: moorv1alpha1.ReasonAccepted, message: fmt.Sprintf("%s asked for it at %s: %s", r.RequestedBy, r.Time.UTC().Format(time.RFC3339), r.Reason)}
}

// boot is the host's boot; "" if its Node does not say, or there is none.
func (p *pass) boot() string {
	if p.core == nil {
		return ""
	}
	return p.core.Status.NodeInfo.BootID
}

// begunBy reports whether the failover that is under way began while the request counted:
// what was begun is brought to an end.
func (p *pass) begunBy(r *moorv1alpha1.FailoverRequest) bool {
	c := meta.FindStatusCondition(p.node.Status.Conditions, moorv1alpha1.ConditionFailover)
	return p.underway && c != nil && c.LastTransitionTime.Sub(r.Time.Time) < writer.VouchLasts
}

// carriedOut reports whether a failover has ended since the request was made.
func (p *pass) carriedOut(r *moorv1alpha1.FailoverRequest) bool {
	c := meta.FindStatusCondition(p.node.Status.Conditions, moorv1alpha1.ConditionFailover)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == moorv1alpha1.ReasonRecovered && c.LastTransitionTime.After(r.Time.Time)
}

// follow lets a request that counts decide what is done. A host whose programs live lets its
// pods go in order; of any other they are deleted by force.
func (p *pass) follow() {
	if p.request = p.judgeRequest(); !p.request.counts {
		return
	}
	p.action, p.early = Fence, false
	if p.observation.Host.Heard() && p.observation.Kubelet.Heard() && p.api == APIReady {
		p.action = Evict
	}
	p.evidence += "; its failover was requested: " + p.request.message
}

// requested reports whether a failover that was requested is to begin, or has begun.
func (p *pass) requested() bool { return p.request.counts }
