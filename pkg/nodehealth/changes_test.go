package nodehealth

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
)

// woken starts to count how often each node was told of, in what matters.
func (p *player) woken(matters func(before, after Observation) bool) func() map[string]int {
	p.t.Helper()
	queue := &queue{added: map[string]int{}}
	if err := p.o.Source(matters).Start(p.t.Context(), queue); err != nil {
		p.t.Fatal(err)
	}
	return func() map[string]int {
		out := queue.added
		queue.added = map[string]int{}
		return out
	}
}

// queue is a workqueue that counts what is added to it.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added map[string]int
}

func (q *queue) Add(r reconcile.Request) { q.added[r.Name]++ }

func all(_, _ Observation) bool { return true }

// TestBeatsWakeNone: what comes when it is due changes nothing, however long that goes
// on, and whatever is looked at in between.
func TestBeatsWakeNone(t *testing.T) {
	p := newPlayer(t)
	everybody := []string{"a/host", "a/dpu", "a/kubelet", "b/host", "b/dpu", "b/kubelet"}
	p.pass(60, everybody...)
	woken := p.woken(all)
	for range 60 {
		p.pass(10, everybody...)
		p.o.Review()
		p.o.Kubelet("no DPUStorageNode", p.clock.Now())
	}
	p.clock.SetTime(p.clock.Now().Add(9 * time.Second))
	p.o.Review()
	if got := woken(); len(got) != 0 {
		t.Errorf("heartbeats woke %v", got)
	}
}

// TestSilenceWakes: whose witness falls silent is told of, by the clock alone, and once
// for each thing that becomes of it.
func TestSilenceWakes(t *testing.T) {
	for witness, silent := range map[string][]string{
		"host": {"a/dpu", "a/kubelet"}, "DPU": {"a/host", "a/kubelet"}, "kubelet": {"a/host", "a/dpu"},
	} {
		t.Run(witness, func(t *testing.T) {
			p := newPlayer(t)
			p.pass(60, "a/host", "a/dpu", "a/kubelet", "b/host", "b/dpu")
			woken, others := p.woken(all), append([]string{"b/host", "b/dpu"}, silent...)
			p.pass(10, others...)
			if got := woken(); len(got) != 0 {
				t.Errorf("after 10 s woken: %v", got)
			}
			for _, after := range []time.Duration{5 * time.Second, 10 * time.Second} {
				p.clock.SetTime(p.clock.Now().Add(after))
				p.o.SelfHeartbeat(HostCluster)
				p.o.SelfHeartbeat(DPUCluster)
				p.o.Review()
				p.o.Review()
				if got := woken(); got["a"] != 1 {
					t.Errorf("%s later woken: %v, want a once", after, got)
				}
			}
			p.pass(5, "a/host", "a/dpu", "a/kubelet", "b/host", "b/dpu")
			if got := woken(); got["a"] == 0 {
				t.Error("it beats again, and is not told of")
			}
		})
	}
}

// TestReportWakes: what a DPU says of its host is told at once.
func TestReportWakes(t *testing.T) {
	p := newPlayer(t)
	p.pass(60, "a/host", "a/dpu", "b/host", "b/dpu")
	woken := p.woken(all)
	p.nodes["a"].Status.DPU.Host = &moorv1alpha1.HostObservation{Evidence: "no link"}
	p.o.Observe(p.nodes["a"])
	p.o.Observe(p.nodes["a"])
	if diff := cmp.Diff(map[string]int{"a": 1}, woken()); diff != "" {
		t.Error(diff)
	}
	p.nodes["a"].Status.DPU.Host.Evidence = "no answer"
	p.o.Observe(p.nodes["a"])
	if diff := cmp.Diff(map[string]int{"a": 1}, woken()); diff != "" {
		t.Error(diff)
	}
}

// TestSourceAsks: only what matters to it wakes a reconciler.
func TestSourceAsks(t *testing.T) {
	p := newPlayer(t)
	p.pass(60, "a/host", "a/dpu", "b/host", "b/dpu")
	kubelet := p.woken(func(before, after Observation) bool { return before.Kubelet != after.Kubelet })
	p.pass(20, "a/host", "b/host", "b/dpu")
	if got := kubelet(); len(got) != 0 {
		t.Errorf("a DPU's silence woke %v", got)
	}
	p.pass(10, "a/kubelet", "a/host", "b/host", "b/dpu")
	if got := kubelet(); got["a"] != 1 || len(got) != 1 {
		t.Errorf("a kubelet that is heard first woke %v", got)
	}
}

// TestForgottenAreNotToldOf: an observer that is asked to forget a node is silent about
// it until it is observed again.
func TestForgottenAreNotToldOf(t *testing.T) {
	p := newPlayer(t)
	p.pass(60, "a/host", "b/host")
	woken := p.woken(all)
	p.o.Forget("a")
	p.o.Kubelet("a", p.clock.Now())
	p.clock.SetTime(p.clock.Now().Add(time.Hour))
	p.o.Review()
	if got := woken(); got["a"] != 0 {
		t.Errorf("woken: %v", got)
	}
	p.o.Observe(p.nodes["a"])
	if got := woken(); got["a"] == 0 {
		t.Errorf("observed again, woken: %v", got)
	}
}
