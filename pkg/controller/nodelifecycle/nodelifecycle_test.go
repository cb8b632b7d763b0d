package nodelifecycle

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// TestConditions goes through every combination of observations.
func TestConditions(t *testing.T) {
	beats := []nodehealth.Beat{nodehealth.Unknown, nodehealth.Fresh, nodehealth.Quiet, nodehealth.Stale}
	for _, host := range beats {
		for _, dpu := range beats {
			for _, seen := range []nodehealth.HostSeen{nodehealth.Unseen, nodehealth.SeenAlive, nodehealth.SeenDead} {
				for _, snap := range []bool{true, false} {
					s := nodehealth.Observation{Host: host, DPU: dpu, HostSeen: seen, Message: "no link"}
					list := conditions(s, moorv1alpha1.DPUStorageNodeStatus{DPU: &moorv1alpha1.DPUState{SNAPReady: snap}}, nil)
					is := func(kind string) metav1.ConditionStatus { return meta.FindStatusCondition(list, kind).Status }
					want := map[nodehealth.Beat]metav1.ConditionStatus{nodehealth.Unknown: "Unknown", nodehealth.Fresh: "True", nodehealth.Quiet: "True", nodehealth.Stale: "False"}
					wantHost := want[host]
					if seen == nodehealth.SeenDead && dpu.Heard() && host != nodehealth.Fresh {
						wantHost = metav1.ConditionFalse
					}
					if is("HostAlive") != wantHost || is("DPUAlive") != want[dpu] {
						t.Errorf("%+v: host %s, DPU %s", s, is("HostAlive"), is("DPUAlive"))
					}
					wantReady := metav1.ConditionTrue
					switch {
					case wantHost == "False" || dpu == nodehealth.Stale || !snap:
						wantReady = metav1.ConditionFalse
					case wantHost == "Unknown" || dpu == nodehealth.Unknown:
						wantReady = metav1.ConditionUnknown
					}
					if is("Ready") != wantReady {
						t.Errorf("%+v: ready %s, want %s", s, is("Ready"), wantReady)
					}
					for _, c := range list {
						if c.Reason == "" || c.Status != metav1.ConditionTrue && c.Message == "" {
							t.Errorf("%+v: %+v has no words", s, c)
						}
					}
				}
			}
		}
	}
}

// TestPathHealthy is there once a path was lost, and says what a DPU says that is heard.
func TestPathHealthy(t *testing.T) {
	lost := func(all bool, volumes ...string) *moorv1alpha1.DPUState {
		out := &moorv1alpha1.DPUState{SNAPReady: true, AllPathsLost: all}
		for _, v := range volumes {
			out.LostPaths = append(out.LostPaths, moorv1alpha1.LostPath{Volume: v, Message: "no answer"})
		}
		return out
	}
	stood := []metav1.Condition{{Type: "PathHealthy", Status: "False", Reason: "PathLost"}}
	for name, c := range map[string]struct {
		dpu   nodehealth.Beat
		tells *moorv1alpha1.DPUState
		stood []metav1.Condition
		want  string
		words string
	}{
		"none was ever lost":     {nodehealth.Fresh, lost(false), nil, "", ""},
		"nothing is told":        {nodehealth.Fresh, nil, nil, "", ""},
		"one":                    {nodehealth.Fresh, lost(false, "a"), nil, "False/PathLost", "the storage of volume a (no answer)"},
		"a quiet DPU":            {nodehealth.Quiet, lost(false, "a"), nil, "False/PathLost", ""},
		"all":                    {nodehealth.Fresh, lost(true, "a", "b"), nil, "False/AllPathsLost", "a (no answer), b (no answer); it reaches the storage of no volume"},
		"many":                   {nodehealth.Fresh, lost(false, strings.Split("abcdefghijkl", "")...), nil, "False/PathLost", "j (no answer) and 2 more"},
		"back":                   {nodehealth.Fresh, lost(false), stood, "True/Success", ""},
		"the DPU falls silent":   {nodehealth.Stale, lost(false, "a"), stood, "Unknown/NotKnown", "has stopped"},
		"silent, and back":       {nodehealth.Stale, lost(false), stood, "Unknown/NotKnown", "has stopped"},
		"nothing is known of it": {nodehealth.Unknown, nil, stood, "Unknown/NotKnown", "not known"},
	} {
		t.Run(name, func(t *testing.T) {
			list := conditions(nodehealth.Observation{Host: nodehealth.Fresh, DPU: c.dpu}, moorv1alpha1.DPUStorageNodeStatus{DPU: c.tells, Conditions: c.stood}, nil)
			got := meta.FindStatusCondition(list, moorv1alpha1.ConditionPathHealthy)
			switch {
			case got == nil && c.want != "", got != nil && string(got.Status)+"/"+got.Reason != c.want:
				t.Fatalf("%+v, want %s", got, c.want)
			case got != nil && !strings.Contains(got.Message, c.words):
				t.Errorf("%q lacks %q", got.Message, c.words)
			}
		})
	}
}

// TestZeroTrustConditions: no beat is no silence, and the DPU's word counts.
func TestZeroTrustConditions(t *testing.T) {
	cases := map[string]struct {
		observed    nodehealth.Observation
		host, ready string
	}{
		"seen alive":  {nodehealth.Observation{DPU: nodehealth.Fresh, HostSeen: nodehealth.SeenAlive}, "True/SeenAlive", "True/Ready"},
		"seen dead":   {nodehealth.Observation{DPU: nodehealth.Fresh, HostSeen: nodehealth.SeenDead, Message: "silence"}, "False/SeenDead", "False/NotReady"},
		"not looked":  {nodehealth.Observation{DPU: nodehealth.Fresh, HostSeen: nodehealth.Unseen}, "Unknown/NotKnown", "True/Ready"},
		"DPU silent":  {nodehealth.Observation{DPU: nodehealth.Stale, HostSeen: nodehealth.SeenAlive}, "Unknown/NotKnown", "False/NotReady"},
		"DPU unknown": {nodehealth.Observation{DPU: nodehealth.Unknown, HostSeen: nodehealth.SeenDead}, "Unknown/NotKnown", "Unknown/NotKnown"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.observed.Host, c.observed.ZeroTrust = nodehealth.Unknown, true
			list := conditions(c.observed, moorv1alpha1.DPUStorageNodeStatus{DPU: &moorv1alpha1.DPUState{SNAPReady: true}}, nil)
			for kind, want := range map[string]string{"HostAlive": c.host, "Ready": c.ready} {
				if got := meta.FindStatusCondition(list, kind); string(got.Status)+"/"+got.Reason != want {
					t.Errorf("%s: %s/%s, want %s", kind, got.Status, got.Reason, want)
				}
			}
		})
	}
}

// TestZeroTrustNeedsNoNode: what was a Node once may cease to be one.
func TestZeroTrustNeedsNoNode(t *testing.T) {
	s := newFixture(t)
	s.live(true)
	kubetest.Change(s.Host, kubetest.DPUStorageNode("a"), func(n *moorv1alpha1.DPUStorageNode) {
		n.Spec.HostMode = moorv1alpha1.ZeroTrust
		n.Status.DPU.Host = &moorv1alpha1.HostObservation{Alive: true}
	})
	s.Host.Remove(kubetest.Node("a", nil))
	s.live(false)
	if got := s.is("HostAlive"); got != "True/SeenAlive" {
		t.Errorf("got %s", got)
	}
}

type fixture struct {
	*kubetest.Clusters
	r *Reconciler
	t *testing.T
}

func newFixture(t *testing.T) fixture {
	c := kubetest.New(t)
	for _, name := range []string{"a", "b"} {
		n := kubetest.DPUStorageNode(name)
		n.Status = moorv1alpha1.DPUStorageNodeStatus{
			Host: &moorv1alpha1.HostState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: 1}},
			DPU:  &moorv1alpha1.DPUState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: 1}, SNAPReady: true},
		}
		c.Host.Add(n, kubetest.Node(name, nil))
	}
	return fixture{Clusters: c, t: t, r: &Reconciler{
		Host: c.Host.Cluster, DPU: c.DPU.Cluster, Namespace: kubetest.HostNamespace,
		Observer: nodehealth.New(c.Clock, 25*time.Second, 15*time.Second), Recorder: c.Recorder,
	}}
}

func (s fixture) pass(name string) ctrl.Result {
	s.t.Helper()
	result, err := s.r.Reconcile(s.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
	if err != nil {
		s.t.Fatal(err)
	}
	return result
}

// restart lets another snap-host-controller take over, which hears itself at once.
func (s fixture) restart() {
	s.r.Observer = nodehealth.New(s.Clock, 25*time.Second, 15*time.Second)
	s.r.Observer.SelfHeartbeat(nodehealth.HostCluster)
	s.r.Observer.SelfHeartbeat(nodehealth.DPUCluster)
	s.pass("a")
	s.pass("b")
}

// live lets 30 s pass in which a's host beats, or not, and b beats.
func (s fixture) live(aBeats bool) {
	s.t.Helper()
	for range 6 {
		s.Step(5 * time.Second)
		for _, name := range []string{"a", "b"} {
			kubetest.Change(s.Host, kubetest.DPUStorageNode(name), func(n *moorv1alpha1.DPUStorageNode) {
				if name == "b" || aBeats {
					n.Status.Host.Sequence++
				}
				n.Status.DPU.Sequence++
			})
			s.pass(name)
		}
	}
}

func (s fixture) is(kind string) string {
	s.t.Helper()
	n, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode("a"))
	c := meta.FindStatusCondition(n.Status.Conditions, kind)
	if c == nil {
		return "missing"
	}
	return string(c.Status) + "/" + c.Reason
}

func TestLife(t *testing.T) {
	s := newFixture(t)
	if result := s.pass("a"); result.RequeueAfter != 0 {
		t.Errorf("looks again after %s: what changes wakes it", result.RequeueAfter)
	}
	if s.is("HostAlive") != "Unknown/NotKnown" {
		t.Errorf("at the start: %s", s.is("HostAlive"))
	}
	s.live(true)
	if s.is("HostAlive") != "True/Beats" || s.is("Ready") != "True/Ready" {
		t.Errorf("alive: %s, ready %s", s.is("HostAlive"), s.is("Ready"))
	}
	before := s.Writes()
	s.live(true)
	if n := s.Writes() - before; n != 0 {
		t.Errorf("wrote %d times though nothing changed", n)
	}
	s.live(false)
	if s.is("HostAlive") != "False/Silent" || s.is("DPUAlive") != "True/Beats" || s.is("Ready") != "False/NotReady" {
		t.Errorf("silent: %s, DPU %s, ready %s", s.is("HostAlive"), s.is("DPUAlive"), s.is("Ready"))
	}
}

// TestRestart: what stands is neither taken back nor written again, and who died
// meanwhile is found dead after the timeout.
func TestRestart(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after bool // whether a's host beats
		want          string
		writes        int
	}{
		"alive all the time": {true, true, "True/Beats", 0},
		"dead all the time":  {false, false, "False/Silent", 0},
		"dead since":         {true, false, "False/Silent", 1},
		"alive again":        {false, true, "True/Beats", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.live(true)
			s.live(tc.before)
			stood, before := s.is("HostAlive"), s.Writes()
			s.restart()
			if is, n := s.is("HostAlive"), s.Writes()-before; is != stood || n != 0 {
				t.Errorf("at the start %s became %s, %d writes", stood, is, n)
			}
			for range 4 {
				s.Step(6 * time.Second)
				s.r.Observer.SelfHeartbeat(nodehealth.HostCluster)
				s.r.Observer.SelfHeartbeat(nodehealth.DPUCluster)
				s.pass("a")
				if is := s.is("HostAlive"); is != stood || s.is("DPUAlive") != "True/Beats" {
					t.Fatalf("unheard, %s became %s; DPU %s", stood, is, s.is("DPUAlive"))
				}
			}
			s.restart()
			s.live(tc.after)
			if is, n := s.is("HostAlive"), s.Writes()-before; is != tc.want || n != tc.writes {
				t.Errorf("after the timeout %s, %d writes; want %s, %d", is, n, tc.want, tc.writes)
			}
		})
	}
}

// TestRestartClaimsNothing: what was not heard is not called alive or ready, and what
// stands does not stand for longer than the timeout.
func TestRestartClaimsNothing(t *testing.T) {
	s := newFixture(t)
	s.restart()
	if s.is("HostAlive") != "Unknown/NotKnown" || s.is("Ready") != "Unknown/NotKnown" {
		t.Errorf("of a new host: %s, ready %s", s.is("HostAlive"), s.is("Ready"))
	}
	snap := func(ready bool) {
		kubetest.Change(s.Host, kubetest.DPUStorageNode("a"), func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.SNAPReady = ready })
	}
	snap(false)
	s.live(true)
	snap(true)
	s.restart()
	if s.is("HostAlive") != "True/Beats" || s.is("Ready") != "Unknown/NotKnown" {
		t.Errorf("SNAP is back, and nothing heard: %s, ready %s", s.is("HostAlive"), s.is("Ready"))
	}
	s.live(true)
	s.restart()
	s.Step(40 * time.Second)
	s.pass("a")
	if s.is("HostAlive") != "Unknown/NotKnown" || s.is("DPUAlive") != "Unknown/NotKnown" || s.is("Ready") != "Unknown/NotKnown" {
		t.Errorf("nothing was heard for the timeout: %s, DPU %s, ready %s", s.is("HostAlive"), s.is("DPUAlive"), s.is("Ready"))
	}
}

// TestRestartOfZeroTrust: its DPU's word stands as long as the DPU's beat does.
func TestRestartOfZeroTrust(t *testing.T) {
	s := newFixture(t)
	kubetest.Change(s.Host, kubetest.DPUStorageNode("a"), func(n *moorv1alpha1.DPUStorageNode) {
		n.Spec.HostMode, n.Status.DPU.Host = moorv1alpha1.ZeroTrust, &moorv1alpha1.HostObservation{Alive: true}
	})
	s.live(true)
	before := s.Writes()
	s.restart()
	if n := s.Writes() - before; n != 0 || s.is("HostAlive") != "True/SeenAlive" {
		t.Errorf("%s, %d writes", s.is("HostAlive"), n)
	}
	s.Step(40 * time.Second)
	s.pass("a")
	if s.is("HostAlive") != "Unknown/NotKnown" {
		t.Errorf("nothing was heard for the timeout: %s", s.is("HostAlive"))
	}
}

// TestSeenDead: the DPU's word counts at once, after the silence that it has listened to.
func TestSeenDead(t *testing.T) {
	s := newFixture(t)
	s.live(true)
	s.Step(time.Second)
	kubetest.Change(s.Host, kubetest.DPUStorageNode("a"), func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.DPU.Host = &moorv1alpha1.HostObservation{Evidence: "link down"}
	})
	s.pass("a")
	if s.is("HostAlive") != "False/SeenDead" {
		t.Errorf("host %s", s.is("HostAlive"))
	}
}

// TestKeepsOthersConditions: the list has another writer.
func TestKeepsOthersConditions(t *testing.T) {
	s := newFixture(t)
	kubetest.Change(s.Host, kubetest.DPUStorageNode("a"), func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.Conditions = []metav1.Condition{{Type: "Failover", Status: "True", Reason: "Fencing"}}
	})
	s.live(true)
	if s.is("Failover") != "True/Fencing" {
		t.Errorf("the other's condition: %s", s.is("Failover"))
	}
}

func TestRemovedNode(t *testing.T) {
	s := newFixture(t)
	s.live(true)
	s.Host.Add(kubetest.DPUVolumeAttachment("vol", "a"))
	s.Host.Remove(kubetest.Node("a", nil))
	s.pass("a")
	if s.is("Ready") != "True/Ready" {
		t.Errorf("it still beats: %s", s.is("Ready"))
	}
	s.live(false)
	n, found := kubetest.Read(s.Host, kubetest.DPUStorageNode("a"))
	if !found || s.is("Ready") != "False/NodeRemoved" {
		t.Fatalf("found %v, ready %s", found, s.is("Ready"))
	}
	if result := s.pass("a"); result.RequeueAfter != retryAfter {
		t.Errorf("looks after %s whether what is attached has gone", result.RequeueAfter)
	}
	if c := meta.FindStatusCondition(n.Status.Conditions, "Ready"); !strings.Contains(c.Message, "a-vol") {
		t.Errorf("what stays is not named: %s", c.Message)
	}
	s.Host.Remove(kubetest.DPUVolumeAttachment("vol", "a"))
	s.pass("a")
	if _, found := kubetest.Read(s.Host, kubetest.DPUStorageNode("a")); found {
		t.Error("the object of a removed Node stays")
	}
	s.pass("a")
}

// TestMadeAhead: an object that waits for its Node is left alone.
func TestMadeAhead(t *testing.T) {
	s := newFixture(t)
	s.Host.Add(kubetest.DPUStorageNode("c"))
	s.pass("c")
	if _, found := kubetest.Read(s.Host, kubetest.DPUStorageNode("c")); !found {
		t.Error("the object of a Node that is yet to come was removed")
	}
}
