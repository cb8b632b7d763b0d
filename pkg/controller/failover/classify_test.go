package failover

import (
	"fmt"
	"os"
	"strings"
	"testing"

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
