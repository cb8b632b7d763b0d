package failover

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/writer"
)

// asked is a pass over host a, which hangs, and whose failover a person has just requested.
func asked() *pass {
	p := &pass{node: kubetest.DPUStorageNode("a"), now: kubetest.Begin, state: HostHung, api: APINotReady, evidence: "it hangs"}
	p.observation.Host = nodehealth.Fresh
	p.node.Spec.Failover = &moorv1alpha1.FailoverRequest{DPUName: "dpu-a", Time: metav1.NewTime(p.now), RequestedBy: "jo", Reason: "smoke"}
	return p
}

// at lets the request have been made a time after now.
func at(after time.Duration) func(*pass) {
	return func(p *pass) { p.node.Spec.Failover.Time = metav1.NewTime(p.now.Add(after)) }
}

// failover is the condition of the host, which changed a time after the request was made.
func failover(status metav1.ConditionStatus, reason string, after time.Duration) func(*pass) {
	return func(p *pass) {
		p.underway = status == metav1.ConditionTrue
		p.node.Status.Conditions = []metav1.Condition{{Type: moorv1alpha1.ConditionFailover, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(p.node.Spec.Failover.Time.Add(after))}}
	}
}

func judged(state State) func(*pass) { return func(p *pass) { p.state = state } }

func hostBeats(b nodehealth.Beat) func(*pass) { return func(p *pass) { p.observation.Host = b } }

// TestJudgeRequest: what a request counts for ends at the second; one that has begun counts
// until it is carried out, and one that was carried out asks for nothing more.
func TestJudgeRequest(t *testing.T) {
	const last, before = writer.VouchLasts, writer.VouchLasts - time.Second
	const fences, held, recovered = moorv1alpha1.ReasonFencing, moorv1alpha1.ReasonHeld, moorv1alpha1.ReasonRecovered
	for name, tc := range map[string]struct {
		is   []func(*pass)
		want string
	}{
		"just now":                              {nil, moorv1alpha1.ReasonAccepted},
		"by a clock a minute ahead":             {[]func(*pass){at(time.Minute)}, moorv1alpha1.ReasonAccepted},
		"by one more than that":                 {[]func(*pass){at(time.Minute + time.Second)}, moorv1alpha1.ReasonRefused},
		"almost too old":                        {[]func(*pass){at(-before)}, moorv1alpha1.ReasonAccepted},
		"too old":                               {[]func(*pass){at(-last)}, moorv1alpha1.ReasonExpired},
		"too old, begun in time":                {[]func(*pass){at(-last), failover(metav1.ConditionTrue, fences, before)}, moorv1alpha1.ReasonAccepted},
		"too old, begun too late":               {[]func(*pass){at(-2 * last), failover(metav1.ConditionTrue, fences, last)}, moorv1alpha1.ReasonExpired},
		"too old, and held since":               {[]func(*pass){at(-last), failover(metav1.ConditionFalse, held, 0)}, moorv1alpha1.ReasonExpired},
		"too old, begun off the record":         {[]func(*pass){at(-last), func(p *pass) { p.underway = true }}, moorv1alpha1.ReasonExpired},
		"carried out since":                     {[]func(*pass){at(-before), failover(metav1.ConditionFalse, recovered, time.Second)}, moorv1alpha1.ReasonCarriedOut},
		"the host recovered before":             {[]func(*pass){at(-before), failover(metav1.ConditionFalse, recovered, 0)}, moorv1alpha1.ReasonAccepted},
		"held since":                            {[]func(*pass){at(-before), failover(metav1.ConditionFalse, held, time.Second)}, moorv1alpha1.ReasonAccepted},
		"under way, whatever else is said":      {[]func(*pass){at(-before), failover(metav1.ConditionTrue, recovered, time.Second)}, moorv1alpha1.ReasonAccepted},
		"the host is well":                      {[]func(*pass){judged(Healthy)}, moorv1alpha1.ReasonRefused},
		"the host is well again":                {[]func(*pass){judged(Healthy), failover(metav1.ConditionTrue, fences, 0)}, moorv1alpha1.ReasonCarriedOut},
		"nothing is known, but that it is mute": {[]func(*pass){judged(Unknown), hostBeats(nodehealth.Stale)}, moorv1alpha1.ReasonAccepted},
		"nothing is known":                      {[]func(*pass){judged(Unknown), hostBeats(nodehealth.Unknown)}, moorv1alpha1.ReasonNotKnown},
		"nothing is known, and it beats":        {[]func(*pass){judged(Unknown)}, moorv1alpha1.ReasonNotKnown},
		"of a boot, and there is no Node":       {[]func(*pass){func(p *pass) { p.node.Spec.Failover.BootID = "one" }}, moorv1alpha1.ReasonRefused},
		"of this boot": {[]func(*pass){func(p *pass) {
			p.core, p.node.Spec.Failover.BootID = &corev1.Node{}, "one"
			p.core.Status.NodeInfo.BootID = "one"
		}}, moorv1alpha1.ReasonAccepted},
		"of another DPU": {[]func(*pass){func(p *pass) { p.node.Spec.DPUName = "dpu-c" }}, moorv1alpha1.ReasonRefused},
		"none":           {[]func(*pass){func(p *pass) { p.node.Spec.Failover = nil }}, ""},
	} {
		p := asked()
		for _, change := range tc.is {
			change(p)
		}
		got := p.judgeRequest()
		if got.reason != tc.want || got.counts != (tc.want == moorv1alpha1.ReasonAccepted) || (got.message == "") != (tc.want == "") {
			t.Errorf("%s: %+v, want %s", name, got, tc.want)
		}
	}
}

// TestFollow: a request that counts is followed at once, by force unless all that runs on the
// host is well, so that its pods can end in order; one that does not changes nothing.
func TestFollow(t *testing.T) {
	lives := func(p *pass) {
		p.observation.Kubelet, p.api = nodehealth.Quiet, APIReady
	}
	for name, tc := range map[string]struct {
		is     func(*pass)
		counts bool
		want   Action
	}{
		"its Node is not Ready":    {func(*pass) {}, true, Fence},
		"all that runs on it":      {lives, true, Evict},
		"its plugin is silent":     {func(p *pass) { lives(p); p.observation.Host = nodehealth.Stale }, true, Fence},
		"its kubelet is silent":    {func(p *pass) { lives(p); p.observation.Kubelet = nodehealth.Stale }, true, Fence},
		"its kubelet alone is not": {func(p *pass) { lives(p); p.api = APINotReady }, true, Fence},
		"the request is old":       {func(p *pass) { lives(p); at(-time.Hour)(p) }, false, Hold},
		"nothing is requested":     {func(p *pass) { p.node.Spec.Failover = nil }, false, Hold},
	} {
		p := asked()
		p.action, p.early = Hold, true
		tc.is(p)
		p.follow()
		says := "it hangs"
		if tc.counts {
			says += "; its failover was requested: jo asked for it at 2026-01-02T03:04:05Z: smoke"
		}
		if p.action != tc.want || p.requested() != tc.counts || p.early == tc.counts || p.evidence != says {
			t.Errorf("%s: %s, requested %t, early %t: %s", name, p.action, p.requested(), p.early, p.evidence)
		}
	}
}
