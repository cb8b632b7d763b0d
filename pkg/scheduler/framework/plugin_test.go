package framework

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/moor-storage/moor/pkg/scheduler/extender"
	"github.com/moor-storage/moor/pkg/scheduler/state/statetest"
)

// every has volumes in every state, and nodes of every sort.
func every() *statetest.Cluster {
	c := statetest.New()
	c.Volume("a").Volume("b").Volume("cold").Volume("stored").Volume("c")
	c.Attachment("a", "n1", statetest.Attached).Attachment("a", "n2", statetest.PreEmulated)
	c.Attachment("b", "n2", statetest.PreEmulated).Attachment("stored", "n3", statetest.StorageAttached)
	c.Attachment("c", "full", statetest.Attached).Attachment("c", "dead", statetest.Attached)
	c.Node("n1", 4).Node("n2", 4).Node("n3", 1).Node("n4", 4).Node("full", 0).Dead("dead").Doubtful("doubtful").Drained("drained")
	c.Attachment("a", "doubtful", statetest.PreEmulated)
	return c
}

var everyNode = []string{"n1", "n2", "n3", "n4", "full", "dead", "doubtful", "drained", "none"}

// asExtender asks the extender what the plugin is asked.
func asExtender[T any](t *testing.T, h http.Handler, verb string, pod *corev1.Pod) T {
	t.Helper()
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: pod, NodeNames: &everyNode})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/"+verb, bytes.NewReader(body)))
	var out T
	if err := json.Unmarshal(w.Body.Bytes(), &out); w.Code != http.StatusOK || err != nil {
		t.Fatalf("%s: %d %s: %v", verb, w.Code, w.Body, err)
	}
	return out
}

// The plugin refuses the nodes that the extender refuses, for the same reason and
// as finally, and scores the others as the extender does. What it holds back
// beyond that has no ready replica, and another node has.
func TestSameAsTheExtender(t *testing.T) {
	for _, claims := range [][]string{nil, {"a"}, {"b"}, {"c"}, {"cold"}, {"stored"}, {"a", "b"}, {"a", "cold"}, {"a", "b", "stored"}, {"b", "c"}, {"unknown"}, {"a", "unknown"}, {"x"}, {"y"}, {"a", "y"}} {
		t.Run(strings.Join(claims, ","), func(t *testing.T) {
			b := newBench(every().VolumeOf("x", "v").VolumeOf("y", "v").Lost("n4", "x"), everyNode...)
			h, err := extender.New(extender.Options{Source: b.source, Registerer: prometheus.NewPedanticRegistry()})
			if err != nil {
				t.Fatal(err)
			}
			filtered := asExtender[extenderv1.ExtenderFilterResult](t, h, "filter", pod(claims...))
			scores := map[string]int64{}
			for _, p := range asExtender[extenderv1.HostPriorityList](t, h, "prioritize", pod(claims...)) {
				scores[p.Host] = p.Score
			}
			got := b.schedule(t, pod(claims...))
			if got.Skipped {
				if len(*filtered.NodeNames) != len(everyNode) || len(scores) > 0 {
					t.Errorf("the plugin passes over the pod, the extender says %v, %v", filtered, scores)
				}
				return
			}
			refused := map[string]string{}
			for node, why := range got.Failed {
				if why != heldBack {
					refused[node] = why
				} else if scores[node] >= 7 || len(got.Nodes) == 0 {
					t.Errorf("%s is held back, with score %d; %v pass", node, scores[node], got.Nodes)
				}
			}
			want := maps.Clone(map[string]string(filtered.FailedNodes))
			maps.Copy(want, filtered.FailedAndUnresolvableNodes)
			if diff := cmp.Diff(want, refused); diff != "" {
				t.Error("refused (-extender, +plugin):", diff)
			}
			final := slices.DeleteFunc(slices.Clone(got.Final), func(n string) bool { return got.Failed[n] == heldBack })
			if diff := cmp.Diff(slices.Sorted(maps.Keys(filtered.FailedAndUnresolvableNodes)), final, cmpopts.SortSlices(strings.Compare), cmpopts.EquateEmpty()); diff != "" {
				t.Error("refused for good (-extender, +plugin):", diff)
			}
			for _, node := range got.Nodes {
				if got.Scores[node] != scores[node]*10 {
					t.Errorf("%s scores %d, at the extender %d", node, got.Scores[node], scores[node])
				}
			}
		})
	}
}

func TestWhichNodesAreHeldBack(t *testing.T) {
	const unknown = "the node has no DPUStorageNode: it has no DPU, or snap-csi-plugin does not run there"
	for name, test := range map[string]struct {
		claims    []string
		full      []string
		nominated string
		want      []string
		scores    map[string]int64
		// asked is how many nodes all filters were asked about ahead.
		asked int
	}{
		"all but those with a replica":           {claims: []string{"a"}, want: []string{"n1", "n2"}, scores: map[string]int64{"n1": 100, "n2": 70}, asked: 1},
		"also where the primary cannot be taken": {claims: []string{"a"}, full: []string{"n1"}, want: []string{"n2"}, scores: map[string]int64{"n2": 70}},
		"none if no replica's node fits": {
			claims: []string{"a"}, full: []string{"n1", "n2"}, want: []string{"n3", "n4", "doubtful"}, scores: map[string]int64{}, asked: 2,
		},
		"none if nothing is warm":           {claims: []string{"cold"}, want: []string{"n1", "n2", "n3", "n4", "doubtful"}, scores: map[string]int64{}},
		"none for what has no function yet": {claims: []string{"stored"}, want: []string{"n1", "n2", "n3", "n4", "doubtful"}, scores: map[string]int64{"n3": 30}},
		"none for a replica on a dead DPU": {
			claims: []string{"c"}, full: []string{"full"}, want: []string{"n1", "n2", "n3", "n4", "doubtful"}, scores: map[string]int64{}, asked: 1,
		},
		"for one replica of two volumes": {claims: []string{"b", "cold"}, want: []string{"n2"}, scores: map[string]int64{"n2": 30}, asked: 1},
		"not the nominated node": {
			claims: []string{"a"}, nominated: "n4", want: []string{"n1", "n2", "n4"}, scores: map[string]int64{"n1": 100, "n2": 70}, asked: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(every(), everyNode...)
			for _, node := range test.full {
				b.full[node] = true
			}
			p := pod(test.claims...)
			p.Status.NominatedNodeName = test.nominated
			got := b.schedule(t, p)
			if diff := cmp.Diff(test.want, got.Nodes); diff != "" {
				t.Error("nodes:", diff)
			}
			if diff := cmp.Diff(test.scores, got.Scores); diff != "" {
				t.Error("scores:", diff)
			}
			if test.asked > 0 && len(b.asked) > test.asked {
				t.Errorf("all filters were asked ahead about %v, want %d nodes at most", b.asked, test.asked)
			}
			if got.Failed["none"] != unknown {
				t.Errorf("a node without a DPU: %q", got.Failed["none"])
			}
		})
	}
}

// A node held back for one that is not taken after all is tried at once, and
// that again only once.
func TestHeldBackInVain(t *testing.T) {
	b := newBench(every(), everyNode...)
	p := pod("a")
	first := b.schedule(t, p)
	if !slices.Equal(first.Nodes, []string{"n1", "n2"}) {
		t.Fatal(first.Nodes)
	}
	// An extender refuses both.
	if _, s := b.PostFilter(t.Context(), first.cycles, p, nil); s.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("preemption is not left out: %s", s.Code())
	}
	if !slices.Equal(b.activated, []string{key(p)}) {
		t.Errorf("tried again: %v", b.activated)
	}
	second := b.schedule(t, p)
	if want := []string{"n1", "n2", "n3", "n4", "doubtful"}; !slices.Equal(second.Nodes, want) {
		t.Errorf("got %v, want %v", second.Nodes, want)
	}
	b.activated = nil
	if _, s := b.PostFilter(t.Context(), second.cycles, p, nil); s.Code() != fwk.Unschedulable || b.activated != nil {
		t.Errorf("after all nodes were tried: %s, tried again: %v", s.Code(), b.activated)
	}
	if third := b.schedule(t, p); !slices.Equal(third.Nodes, first.Nodes) {
		t.Errorf("the next attempt holds no node back: %v", third.Nodes)
	}
}

func TestOthersPods(t *testing.T) {
	b := newBench(every(), everyNode...)
	b.source.err = errors.New("the index is not complete")
	if !b.schedule(t, pod()).Skipped {
		t.Error("a pod without claims waits for the index")
	}
	p := pod("a")
	got := b.schedule(t, p)
	if got.Failed[""] != b.source.err.Error() {
		t.Errorf("a pod with claims is placed without the index: %+v", got)
	}
	if _, s := b.PostFilter(t.Context(), got.cycles, p, nil); s.Code() != fwk.Unschedulable {
		t.Error(s.Code())
	}
	b.refused.All()
	if due := b.refused.Take(); len(due) != 1 || due[0].UID != p.UID {
		t.Errorf("tried again when the index is complete: %v", due)
	}
	if _, s := b.SignPod(t.Context(), p); s.IsSuccess() {
		t.Error("pods with claims share results")
	}
	if f, s := b.SignPod(t.Context(), pod()); len(f) > 0 || !s.IsSuccess() {
		t.Error("pods without claims share no results")
	}
}

func TestNodeAdded(t *testing.T) {
	b := newBench(every(), everyNode...)
	events, err := b.EventsToRegister(t.Context())
	if err != nil || len(events) != 1 {
		t.Fatal(events, err)
	}
	for node, want := range map[string]fwk.QueueingHint{"n4": fwk.Queue, "full": fwk.QueueSkip, "dead": fwk.QueueSkip, "none": fwk.QueueSkip} {
		got, err := events[0].QueueingHintFn(logger(t), pod("a"), nil, host{name: node}.Node())
		if err != nil || got != want {
			t.Errorf("%s comes: %v, %v; want %v", node, got, err, want)
		}
	}
	if got, _ := events[0].QueueingHintFn(logger(t), pod("unknown"), nil, host{name: "none"}.Node()); got != fwk.Queue {
		t.Error("a pod of which there is nothing to say is not tried again")
	}
	if got, err := events[0].QueueingHintFn(logger(t), pod("a"), nil, "x"); err == nil || got != fwk.Queue {
		t.Errorf("what is no node: %v, %v", got, err)
	}
}

func TestCyclesWithoutPreFilter(t *testing.T) {
	b := newBench(every(), everyNode...)
	for what, c := range map[string]*cycles{
		"nothing": {data: map[fwk.StateKey]fwk.StateData{}}, "another's": {data: map[fwk.StateKey]fwk.StateData{Name: others{}}},
	} {
		if s := b.Filter(t.Context(), c, pod("a"), host{name: "n1"}); s.Code() != fwk.Error {
			t.Errorf("%s: Filter: %s", what, s.Code())
		}
		if _, s := b.Score(t.Context(), c, pod("a"), host{name: "n1"}); s.Code() != fwk.Error {
			t.Errorf("%s: Score: %s", what, s.Code())
		}
		if s := b.PreScore(t.Context(), c, pod("a"), nil); !s.IsSkip() {
			t.Errorf("%s: PreScore: %s", what, s.Code())
		}
	}
}

type others struct{}

func (others) Clone() fwk.StateData { return others{} }

// All filters of one cycle ask together, and the plugin asks ahead once.
func TestFiltersAtOnce(t *testing.T) {
	nodes := []string{}
	c := statetest.New().Volume("a")
	for i := range 500 {
		nodes = append(nodes, fmt.Sprint("n", i))
		c.Node(nodes[i], 4)
	}
	c.Attachment("a", "n499", statetest.PreEmulated)
	b := newBench(c, nodes...)
	p := pod("a")
	state := &cycles{data: map[fwk.StateKey]fwk.StateData{}}
	if _, s := b.PreFilter(t.Context(), state, p, nil); !s.IsSuccess() {
		t.Fatal(s.AsError())
	}
	passed := make(chan string, len(nodes))
	done := make(chan struct{})
	for w := range 8 {
		go func() {
			for i := w; i < len(nodes); i += 8 {
				if b.filters(t.Context(), state, p, host{name: nodes[i]}).IsSuccess() {
					passed <- nodes[i]
				}
			}
			done <- struct{}{}
		}()
	}
	for range 8 {
		<-done
	}
	close(passed)
	var got []string
	for node := range passed {
		got = append(got, node)
	}
	if !slices.Equal(got, []string{"n499"}) || len(b.asked) != 1 {
		t.Errorf("passed: %v; asked ahead: %v", got, b.asked)
	}
}
