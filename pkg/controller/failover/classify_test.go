package failover

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/moor-storage/moor/pkg/nodehealth"
)

var (
	apis   = []API{APIReady, APINotReady, APIUnknown}
	beats  = []nodehealth.Beat{nodehealth.Unknown, nodehealth.Fresh, nodehealth.Quiet, nodehealth.Stale}
	seens  = []nodehealth.HostSeen{nodehealth.Unseen, nodehealth.SeenAlive, nodehealth.SeenDead}
	fleets = []Fleet{
		{Nodes: 100, Dead: 1, Late: 2, JustHeard: 1},
		{Nodes: 100, Dead: 31},
		{Nodes: 100, Contradicted: 31},
		{Nodes: 3, Dead: 2},
		{Nodes: 100, Dead: 1, Late: 3, JustHeard: 1},
		{Nodes: 100, Dead: 1},
		{Nodes: 100, Dead: 100},
	}
	sickest = map[Fleet]bool{fleets[1]: true, fleets[2]: true, fleets[6]: true}
	hushed  = map[Fleet]bool{fleets[4]: true, fleets[5]: true, fleets[6]: true}
)

// each calls f with the whole product of the inputs.
func each(f func(in Inputs)) {
	for _, api := range apis {
		for _, host := range beats {
			for _, kubelet := range beats {
				for _, dpu := range beats {
					for _, seen := range seens {
						for _, fleet := range fleets {
							for _, zero := range []bool{false, true} {
								f(Inputs{API: api, Host: host, Kubelet: kubelet, DPU: dpu, HostSeen: seen, Fleet: fleet, ZeroTrust: zero})
							}
						}
					}
				}
			}
		}
	}
}

// states is the table by hand: DPU, host seen, host, kubelet, API. "*" is anything,
// "heard" is Fresh or Quiet, "silent" Quiet or Stale; the first line that fits
// counts.
//
// zeroTrust is that of hosts that send no heartbeats.
var zeroTrust = []string{
	"heard  Dead  *      *       *        HostDead",
	"heard  *     *      *       *        Healthy",
	"Stale  *     *      *       *        DPUDead",
	"*      *     *      *       *        Unknown",
}

var states = []string{
	"silent *     silent silent  *        BothDead",
	"heard  Dead  Fresh  *       *        HostHung",
	"heard  Dead  *      Fresh   *        HostHung",
	"heard  Dead  *      *       *        HostDead",
	"heard  *     heard  *       Ready    Healthy",
	"heard  *     heard  *       NotReady HostHung",
	"heard  *     Stale  *       Ready    HostHung",
	"heard  Alive Stale  *       NotReady HostCutOff",
	"Stale  *     heard  *       *        DPUDead",
	"Stale  *     Stale  Unknown NotReady BothDead",
	"*      *     *      *       *        Unknown",
}

func fits(word, have string) bool {
	switch word {
	case "*":
		return true
	case "heard":
		return have == "Fresh" || have == "Quiet"
	case "silent":
		return have == "Quiet" || have == "Stale"
	}
	return word == have
}

func byHand(in Inputs) State {
	table := states
	if in.ZeroTrust {
		table = zeroTrust
	}
	for _, line := range table {
		w := strings.Fields(line)
		all := true
		for i, have := range []string{string(in.DPU), string(in.HostSeen), string(in.Host), string(in.Kubelet), string(in.API)} {
			all = all && fits(w[i], have)
		}
		if !all {
			continue
		}
		state := State(w[5])
		// All three agree: that others die too is no doubt, only that the API contradicts DPUs.
		unanimous := state == HostDead && !in.ZeroTrust && in.DPU == nodehealth.Fresh && fits("silent", string(in.Host)) && fits("silent", string(in.Kubelet))
		if sickest[in.Fleet] && state != Healthy && state != Unknown && !(unanimous && in.Fleet == fleets[1]) {
			return ControlPlaneSick
		}
		stale := in.Host == nodehealth.Stale && in.DPU == nodehealth.Stale && (in.Kubelet == nodehealth.Stale || in.Kubelet == nodehealth.Unknown)
		if hushed[in.Fleet] && state == BothDead && !stale {
			return ControlPlaneSick
		}
		return state
	}
	panic("the last line fits all")
}

// TestUnanimous: all witnesses agree where a fresh DPU sees the host dead, and it is heard in no other way; by itself the
// host is dead then.
func TestUnanimous(t *testing.T) {
	each(func(in Inputs) {
		want := !in.ZeroTrust && in.DPU == nodehealth.Fresh && in.HostSeen == nodehealth.SeenDead && fits("silent", string(in.Host)) && fits("silent", string(in.Kubelet))
		if got := in.unanimous(); got != want {
			t.Errorf("%+v: %v", in, got)
		}
		if state, _ := alone(in); want && state != HostDead {
			t.Errorf("%+v: by itself %s", in, state)
		}
	})
}

func TestClassify(t *testing.T) {
	seen := map[State]int{}
	each(func(in Inputs) {
		state, evidence := Classify(in)
		seen[state]++
		if want := byHand(in); state != want {
			t.Errorf("%+v: %s, want %s", in, state, want)
		}
		if evidence == "" {
			t.Errorf("%+v: no evidence", in)
		}
	})
	for state := range actions {
		if seen[state] == 0 {
			t.Errorf("no input leads to %s", state)
		}
	}
	if len(seen) != len(actions) {
		t.Errorf("states %v, actions for %v", seen, actions)
	}
}

// TestNeverFencesWithoutEvidence holds the rules that no table may break.
func TestNeverFencesWithoutEvidence(t *testing.T) {
	each(func(in Inputs) {
		state, _ := Classify(in)
		if actions[state] != Fence {
			return
		}
		witness := in.DPU.Heard() && in.HostSeen == nodehealth.SeenDead
		silence := in.DPU.Silent() && in.Host.Silent() && in.Kubelet.Silent()
		// Where no Lease is known the control plane's word counts, and only
		// with the long silence of the others.
		slow := in.DPU == nodehealth.Stale && in.Host == nodehealth.Stale && in.Kubelet == nodehealth.Unknown && in.API == APINotReady
		switch {
		case (in.Host == nodehealth.Fresh || in.Kubelet == nodehealth.Fresh) && !in.ZeroTrust:
			t.Errorf("%+v: fences a host that beats", in)
		case !witness && !silence && !slow:
			t.Errorf("%+v: fences without a witness", in)
		case in.Fleet.contradicted() != "", in.Fleet.Dead == in.Fleet.Nodes, in.Fleet.sick() != "" && !(witness && in.Host.Silent() && in.Kubelet.Silent()):
			t.Errorf("%+v: fences though the control plane is sick", in)
		case hushed[in.Fleet] && !witness && (in.Host == nodehealth.Quiet || in.Kubelet == nodehealth.Quiet || in.DPU == nodehealth.Quiet):
			t.Errorf("%+v: fences by a short silence though others are late", in)
		}
	})
}

func TestFleet(t *testing.T) {
	for _, tc := range []struct {
		fleet Fleet
		sick  bool
	}{
		{Fleet{Nodes: 2, Dead: 2}, false},
		{Fleet{Nodes: 3, Dead: 3}, true},
		{Fleet{Nodes: 3, Contradicted: 3}, true},
		{Fleet{Nodes: 9, Dead: 3}, true},
		{Fleet{Nodes: 10, Dead: 3}, false},
		{Fleet{Nodes: 5000, Dead: 1500}, false},
		{Fleet{Nodes: 5000, Dead: 1501}, true},
		{Fleet{Nodes: 5000, Contradicted: 1501}, true},
	} {
		if got := tc.fleet.sick(); (got != "") != tc.sick {
			t.Errorf("%+v: %q, want sick %v", tc.fleet, got, tc.sick)
		}
	}
}

// TestFleetAdd: what counts as dead, and as contradicted.
func TestFleetAdd(t *testing.T) {
	dead, contradicted := Fleet{Nodes: 1, Dead: 1}, Fleet{Nodes: 1, Contradicted: 1}
	alive := nodehealth.Observation{Host: nodehealth.Fresh, Kubelet: nodehealth.Unknown, DPU: nodehealth.Fresh, HostSeen: nodehealth.SeenAlive}
	with := func(change func(*nodehealth.Observation)) nodehealth.Observation { o := alive; change(&o); return o }
	for name, c := range map[string]struct {
		seen nodehealth.Observation
		late nodehealth.Lateness
		api  API
		want Fleet
	}{
		"alive":                {alive, 0, APIReady, Fleet{Nodes: 1}},
		"late":                 {alive, nodehealth.Late, APIReady, Fleet{Nodes: 1, Late: 1}},
		"just heard":           {alive, nodehealth.JustHeard, APIReady, Fleet{Nodes: 1, JustHeard: 1}},
		"silent":               {with(func(o *nodehealth.Observation) { o.Host = nodehealth.Stale }), 0, APIReady, dead},
		"seen dead":            {with(func(o *nodehealth.Observation) { o.Host, o.HostSeen = nodehealth.Unknown, nodehealth.SeenDead }), 0, APIReady, dead},
		"seen dead, and beats": {with(func(o *nodehealth.Observation) { o.HostSeen = nodehealth.SeenDead }), 0, APIReady, Fleet{Nodes: 1}},
		"seen dead, and its kubelet beats": {with(func(o *nodehealth.Observation) {
			o.Host, o.Kubelet, o.HostSeen = nodehealth.Unknown, nodehealth.Fresh, nodehealth.SeenDead
		}), 0, APIReady, Fleet{Nodes: 1}},
		"contradicted":              {alive, 0, APINotReady, contradicted},
		"the API knows nothing":     {alive, 0, APIUnknown, Fleet{Nodes: 1}},
		"not looked at":             {with(func(o *nodehealth.Observation) { o.HostSeen = nodehealth.Unseen }), 0, APINotReady, Fleet{Nodes: 1}},
		"its DPU is silent":         {with(func(o *nodehealth.Observation) { o.DPU = nodehealth.Stale }), 0, APINotReady, Fleet{Nodes: 1}},
		"it is not trusted, and so": {with(func(o *nodehealth.Observation) { o.ZeroTrust = true }), 0, APINotReady, Fleet{Nodes: 1}},
	} {
		var f Fleet
		if f.add(c.seen, c.late, c.api); f != c.want {
			t.Errorf("%s: %+v, want %+v", name, f, c.want)
		}
	}
}

// TestCompany: of few hosts it is chance that none was just heard, and of ten it is not.
func TestCompany(t *testing.T) {
	for nodes, want := range map[int]State{9: BothDead, 10: ControlPlaneSick} {
		in := Inputs{API: APIReady, Host: nodehealth.Quiet, Kubelet: nodehealth.Quiet, DPU: nodehealth.Quiet, Fleet: Fleet{Nodes: nodes, Dead: 1}}
		if state, evidence := Classify(in); state != want {
			t.Errorf("%d hosts: %s, %s, want %s", nodes, state, evidence, want)
		}
	}
}

func TestShare(t *testing.T) {
	for of, want := range map[int]string{20: "7 of 20 hosts", 21: "at least 30 % of the hosts"} {
		if got := share(7, of); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAPIOf(t *testing.T) {
	node := func(conditions ...corev1.NodeCondition) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: conditions}}
	}
	ready := func(status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: status}
	}
	pressure := corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}
	for name, c := range map[string]struct {
		node *corev1.Node
		want API
	}{
		"no Node":      {nil, APIUnknown},
		"no condition": {node(pressure), APIUnknown},
		"ready":        {node(pressure, ready(corev1.ConditionTrue)), APIReady},
		"not ready":    {node(ready(corev1.ConditionFalse)), APINotReady},
		"not heard of": {node(ready(corev1.ConditionUnknown), pressure), APINotReady},
	} {
		if got := apiOf(c.node); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if zoneOf(nil) != "" {
		t.Error("a Node that is gone has a zone")
	}
}

// TestEvidence: what is told of states that several findings lead to says which it was.
func TestEvidence(t *testing.T) {
	for _, c := range []struct {
		in    Inputs
		words string
	}{
		{Inputs{DPU: nodehealth.Fresh, Host: nodehealth.Stale, API: APINotReady}, "its DPU does not look at it"},
		{Inputs{DPU: nodehealth.Fresh, Host: nodehealth.Stale, API: APIUnknown}, "the API has no Node of this name"},
		{Inputs{DPU: nodehealth.Fresh, Host: nodehealth.Unknown, API: APIUnknown}, "the API has no Node of this name"},
		{Inputs{DPU: nodehealth.Fresh, Host: nodehealth.Unknown, API: APINotReady}, "the host is not known for long enough"},
		{Inputs{DPU: nodehealth.Fresh, Host: nodehealth.Unknown, API: APIReady}, "the host is not known for long enough"},
		{Inputs{DPU: nodehealth.Stale, Host: nodehealth.Stale, API: APIReady}, "but the kubelet is Ready"},
		{Inputs{DPU: nodehealth.Stale, Host: nodehealth.Stale, API: APIUnknown}, "too little is known of the host"},
		{Inputs{DPU: nodehealth.Stale, Host: nodehealth.Unknown, API: APIReady}, "too little is known of the host"},
		{Inputs{DPU: nodehealth.Stale, Host: nodehealth.Unknown, Kubelet: nodehealth.Fresh, API: APIReady}, "too little is known of the host"},
	} {
		c.in.HostSeen = nodehealth.Unseen
		if state, evidence := Classify(c.in); state != Unknown || !strings.Contains(evidence, c.words) {
			t.Errorf("%+v: %s: %q, want %q", c.in, state, evidence, c.words)
		}
	}
}

// TestFewWordsForMany: what is said of a large fleet does not change with each host, as
// the condition of each would have to be written again.
func TestFewWordsForMany(t *testing.T) {
	said := map[string]bool{}
	for dead := 1501; dead <= 5000; dead++ {
		said[Fleet{Nodes: 5000, Dead: dead}.sick()] = true
	}
	if len(said) != 8 || !said["at least 30 % of the hosts look dead at once"] || !said["at least 100 % of the hosts look dead at once"] {
		t.Errorf("%v", said)
	}
}

// TestPage compares the table of the documentation with this one.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/failover.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "<!-- begin states -->\n")
	block, _, ended := strings.Cut(rest, "<!-- end states -->")
	if !ok || !ended {
		t.Fatal("docs/failover.md has no table of states")
	}
	have := map[string]string{}
	for line := range strings.Lines(block) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains(cells[1], "`") {
			continue
		}
		have[strings.Trim(cells[1], " `")] = strings.Trim(cells[3], " `")
	}
	if len(have) != len(actions) {
		t.Errorf("the page has %d states, the code %d: %v", len(have), len(actions), have)
	}
	for state, action := range actions {
		if have[string(state)] != string(action) {
			t.Errorf("the page says %s -> %q, the code %q", state, have[string(state)], action)
		}
	}
}

func TestBudget(t *testing.T) {
	b := Budget{PerMinute: 10, PerZone: 5}
	for _, tc := range []struct {
		all, zone int
		ok        bool
	}{{0, 0, true}, {9, 4, true}, {10, 0, false}, {5, 5, false}} {
		if got := b.refuse(tc.all, tc.zone, "z"); (got == "") != tc.ok {
			t.Errorf("%s", fmt.Sprintf("%d in all, %d in the zone: %q", tc.all, tc.zone, got))
		}
	}
	if (Budget{}).refuse(0, 0, "") == "" {
		t.Error("no budget lets a failover begin")
	}
}
