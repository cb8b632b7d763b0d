package failover

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/writer"
)

// API is what the host cluster's API says of a Node. It lags: the control
// plane takes some 40 s to notice a dead host.
type API string

// What the API can say of a Node.
const (
	// APIReady: its Ready condition is True.
	APIReady API = "Ready"
	// APINotReady: its Ready condition is False or Unknown.
	APINotReady API = "NotReady"
	// APIUnknown: there is no such Node, or it has no Ready condition.
	APIUnknown API = "Unknown"
)

// apiOf is what the API says of a Node.
func apiOf(node *corev1.Node) API {
	if node == nil {
		return APIUnknown
	}
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return APIReady
		}
		return APINotReady
	}
	return APIUnknown
}

// zoneOf is where a Node is, by its label topology.kubernetes.io/zone; "" if it does not say.
func zoneOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	return node.Labels[corev1.LabelTopologyZone]
}

// State is what has become of a host and its DPU.
type State string

// The states of a host and its DPU.
const (
	// Healthy: both are heard, and nothing speaks against it.
	Healthy State = "Healthy"
	// HostDead: the DPU lives and sees its host dead.
	HostDead State = "HostDead"
	// HostHung: what is heard of the host contradicts itself; it lives.
	HostHung State = "HostHung"
	// HostCutOff: the API does not hear the host, but its DPU sees it alive.
	HostCutOff State = "HostCutOff"
	// DPUDead: the host is heard, its DPU is not.
	DPUDead State = "DPUDead"
	// BothDead: neither host, nor kubelet, nor DPU is heard, for a while that
	// is short for one of them and long for three.
	BothDead State = "BothDead"
	// ControlPlaneSick: so many look dead that the observer is suspect.
	ControlPlaneSick State = "ControlPlaneSick"
	// Unknown: too little is known to tell.
	Unknown State = "Unknown"
)

// Action is what fence does about a state of its own accord. What it has begun
// it always brings to an end, whatever the state.
type Action string

// The actions.
const (
	// Restore: nothing to fence; a host that was out of service is given back.
	Restore Action = "Restore"
	// Fence: take the right to write back, with a receipt, and release the pods.
	Fence Action = "Fence"
	// Hold: do nothing and say why.
	Hold Action = "Hold"
	// Evict: of a living host, whose DPU is silent and whose lease is over: take
	// the right to write back, with a receipt, and let the pods go in order.
	Evict Action = "Evict"
)

// actions is the table of states and actions; docs/failover.md shows it.
var actions = map[State]Action{
	Healthy:          Restore,
	HostDead:         Fence,
	BothDead:         Fence,
	HostHung:         Hold,
	HostCutOff:       Hold,
	DPUDead:          Hold,
	ControlPlaneSick: Hold,
	Unknown:          Hold,
}

// Fleet is what all hosts look like at once. Hosts that are out of service
// already, or cordoned, do not count.
type Fleet struct {
	// Nodes that count.
	Nodes int
	// Dead is how many of them look dead: silent, or seen dead.
	Dead int
	// Late and JustHeard are how many of them are: what they have in common before it
	// is known of any.
	Late, JustHeard int
	// Contradicted is how many the API calls NotReady while their DPUs see
	// them alive.
	Contradicted int
}

// add counts one host that serves.
func (f *Fleet) add(seen nodehealth.Observation, late nodehealth.Lateness, api API) {
	f.Nodes++
	if seen.Host.Silent() || seen.HostSeen == nodehealth.SeenDead && seen.Host != nodehealth.Fresh && seen.Kubelet != nodehealth.Fresh {
		f.Dead++
	}
	switch late {
	case nodehealth.Late:
		f.Late++
	case nodehealth.JustHeard:
		f.JustHeard++
	}
	if api == APINotReady && !seen.ZeroTrust && seen.DPU.Heard() && seen.HostSeen == nodehealth.SeenAlive {
		f.Contradicted++
	}
}

// company is how many hosts there have to be for it to be no chance that none of them was
// just heard.
const company = 10

// tooManyHosts and tooManyPercent say when it is too many at once: more hosts than
// tooManyHosts, and more than tooManyPercent of all. Single failures, and a few in
// a small cluster, stay below.
const (
	tooManyHosts   = 2
	tooManyPercent = 30
)

// sick says why the control plane is the sick one; "" if it is not.
func (f Fleet) sick() string {
	if message := f.contradicted(); message != "" {
		return message
	}
	if tooMany(f.Dead, f.Nodes) {
		return share(f.Dead, f.Nodes) + " look dead at once"
	}
	return ""
}

// contradicted says that too many hosts live by the words of their DPUs and not by the
// API's; "" if not.
func (f Fleet) contradicted() string {
	if !tooMany(f.Contradicted, f.Nodes) {
		return ""
	}
	return fmt.Sprintf("the API calls %s NotReady, but their DPUs see them alive", share(f.Contradicted, f.Nodes))
}

func tooMany(n, of int) bool { return n > tooManyHosts && n*100 > of*tooManyPercent }

// share says how many of the hosts these are: of many in tenths, as it stands in the
// condition of each.
func share(n, of int) string {
	if of <= 20 {
		return fmt.Sprintf("%d of %d hosts", n, of)
	}
	return fmt.Sprintf("at least %d %% of the hosts", n*10/of*10)
}

// Inputs are the evidence about one host.
type Inputs struct {
	// API is what the host cluster's API says of the Node.
	API API
	// Host, Kubelet and DPU are the heartbeats; HostSeen is what the DPU reported last.
	Host, Kubelet, DPU nodehealth.Beat
	HostSeen           nodehealth.HostSeen
	// ZeroTrust: this host sends no heartbeats, and it need not be a Node.
	ZeroTrust bool
	// Fleet is what all hosts look like.
	Fleet Fleet
}

// unripe says why it is too early to judge a host whose witnesses are silent together; ""
// if it is not. When many hosts fall silent at once, because what lies between them and
// the API servers does, the first of them, whose witnesses had all beaten long before,
// are silent while most of the others are merely late: they would be judged as if they
// were alone. After the full timeout all are silent that are going to be.
func (in Inputs) unripe() string {
	short := in.Host == nodehealth.Quiet || in.Kubelet == nodehealth.Quiet || in.DPU == nodehealth.Quiet
	hushed := in.Fleet.Nodes >= company && in.Fleet.JustHeard == 0
	if !short || !hushed && in.Fleet.Late <= tooManyHosts {
		return ""
	}
	return "other hosts have fallen silent as well, and who else will is known when this one has been silent for the full timeout"
}

// unanimous reports whether all witnesses of a host agree that it is dead: its living DPU
// says so, and heartbeat and kubelet are silent. It is HostDead then.
// That many look dead at once is a reason to doubt silence, which may be the observer's own;
// what a DPU sees over a link of its own is no silence, and that the kubelet has stopped tells a dead host from a link that is cut.
// Of hosts that all look dead nothing is taken nevertheless: no other could use it.
func (in Inputs) unanimous() bool {
	return !in.ZeroTrust && in.DPU == nodehealth.Fresh && in.HostSeen == nodehealth.SeenDead && in.Host.Silent() && in.Kubelet.Silent()
}

// Classify says what has become of a host, and by what evidence. No single
// silent witness makes a host dead: that takes a living DPU that sees it, or
// the silence of three that beat on their own (kubelet, host plugin, DPU),
// through the API servers of two clusters. Together they count as silent
// sooner than each alone.
func Classify(in Inputs) (state State, evidence string) {
	state, evidence = alone(in)
	if state == Healthy || state == Unknown {
		return state, evidence
	}
	message := in.Fleet.sick()
	if in.unanimous() && in.Fleet.Dead < in.Fleet.Nodes {
		message = in.Fleet.contradicted()
	}
	if message == "" && state == BothDead {
		message = in.unripe()
	}
	if message != "" {
		return ControlPlaneSick, message + "; for itself this host looks " + string(state) + ": " + evidence
	}
	return state, evidence
}

// alone classifies a host without a look at the others.
func alone(in Inputs) (State, string) {
	if in.ZeroTrust {
		return untrusted(in)
	}
	switch {
	case in.DPU.Silent() && in.Host.Silent() && in.Kubelet.Silent():
		return BothDead, "heartbeat, kubelet and DPU are all silent"
	case in.DPU.Heard() && in.HostSeen == nodehealth.SeenDead:
		return seenDead(in)
	case in.DPU.Heard():
		return underLivingDPU(in)
	case in.DPU == nodehealth.Stale:
		return underSilentDPU(in)
	}
	return Unknown, "the DPU is not known for long enough"
}

// untrusted classifies a host of which nothing is heard but what its DPU says.
// It sends no heartbeat that could be silent, and a kubelet there is not judged.
func untrusted(in Inputs) (State, string) {
	switch {
	case in.DPU.Heard() && in.HostSeen == nodehealth.SeenDead:
		return HostDead, "its DPU is alive and sees it dead; a ZeroTrust host has no other witness"
	case in.DPU.Heard():
		return Healthy, "its DPU is heard and does not see it dead"
	case in.DPU == nodehealth.Stale:
		return DPUDead, "its DPU is not heard, and a ZeroTrust host has no other witness; the DPU may still serve it"
	}
	return Unknown, "the DPU is not known for long enough"
}

func seenDead(in Inputs) (State, string) {
	switch {
	case in.Host == nodehealth.Fresh:
		return HostHung, "its DPU sees it dead, but its heartbeat goes on: perhaps only the link between them is cut"
	case in.Kubelet == nodehealth.Fresh:
		return HostHung, "its DPU sees it dead, but its kubelet renews its Lease: perhaps only the link between them is cut"
	}
	return HostDead, "its DPU is alive and sees it dead, and neither its heartbeat nor its kubelet was heard since"
}

func underLivingDPU(in Inputs) (State, string) {
	switch {
	case in.Host.Heard() && in.API == APIReady:
		return Healthy, "host and DPU are heard"
	case in.Host.Heard() && in.API == APINotReady:
		return HostHung, "its heartbeat goes on, but the API calls it NotReady: its kubelet is not well"
	case in.Host == nodehealth.Stale && in.API == APIReady:
		return HostHung, "its heartbeat has stopped, but its kubelet is Ready: snap-csi-plugin is not well"
	case in.Host == nodehealth.Stale && in.API == APINotReady && in.HostSeen == nodehealth.SeenAlive:
		return HostCutOff, "neither heartbeat nor kubelet is heard, but its DPU sees it alive"
	case in.Host == nodehealth.Stale && in.API == APINotReady:
		return Unknown, "neither heartbeat nor kubelet is heard, and its DPU does not look at it: dead and cut off look the same"
	case in.API == APIUnknown:
		return Unknown, "the API has no Node of this name, or it says nothing about it"
	}
	return Unknown, "the host is not known for long enough"
}

// underSilentDPU: if the kubelet's Lease is not known, what the control plane says
// of the Node counts instead.
func underSilentDPU(in Inputs) (State, string) {
	switch {
	case in.Host.Heard():
		return DPUDead, "the host is heard, its DPU is not; the DPU may still serve its host"
	case in.Host == nodehealth.Stale && in.Kubelet.Heard():
		return Unknown, "host and DPU are silent, but the kubelet is heard"
	case in.Host == nodehealth.Stale && in.API == APINotReady:
		return BothDead, "heartbeat and DPU are silent, and the API calls the host NotReady"
	case in.Host == nodehealth.Stale && in.API == APIReady:
		return Unknown, "host and DPU are silent, but the kubelet is Ready"
	}
	return Unknown, "the DPU is silent, and too little is known of the host"
}

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

// follow lets a request that counts decide what is done.
func (p *pass) follow() {
	if p.request = p.judgeRequest(); !p.request.counts {
		return
	}
	p.takeOver()
	p.evidence += "; its failover was requested: " + p.request.message
}

// takeOver has the volumes taken from a host that is not known to be dead. One whose programs
// live lets its pods go in order; of any other they are deleted by force.
func (p *pass) takeOver() {
	p.action, p.early = Fence, false
	if p.observation.Host.Heard() && p.observation.Kubelet.Heard() && p.api == APIReady {
		p.action = Evict
	}
}

// requested reports whether a failover that was requested is to begin, or has begun.
func (p *pass) requested() bool { return p.request.counts }
