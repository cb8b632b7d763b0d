package framework

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/moor-storage/moor/pkg/scheduler/refused"
	"github.com/moor-storage/moor/pkg/scheduler/state"
	"github.com/moor-storage/moor/pkg/scheduler/state/statetest"
)

// cluster is a source for the plugin.
type cluster struct {
	*statetest.Cluster
	err error
}

func (c *cluster) Ready() error { return c.err }

// host is a node of the scheduler's snapshot.
type host struct {
	fwk.NodeInfo
	name string
}

func (h host) Node() *corev1.Node {
	n := &corev1.Node{}
	n.Name = h.name
	return n
}

// cycles is the state of one scheduling cycle.
type cycles struct {
	fwk.CycleState
	data map[fwk.StateKey]fwk.StateData
}

func (c *cycles) Read(key fwk.StateKey) (fwk.StateData, error) {
	if d, ok := c.data[key]; ok {
		return d, nil
	}
	return nil, errors.New("not found")
}

func (c *cycles) Write(key fwk.StateKey, d fwk.StateData) { c.data[key] = d }

// bench is a scheduler with the plugin and one other filter.
type bench struct {
	fwk.SharedLister
	fwk.NodeInfoLister
	*Plugin
	source *cluster
	nodes  []string
	// full are the nodes that the other filter refuses.
	full map[string]bool
	// asked are the nodes that the plugin asked all filters about.
	asked     []string
	activated []string
}

func newBench(c *statetest.Cluster, nodes ...string) *bench {
	b := &bench{source: &cluster{Cluster: c}, nodes: nodes, full: map[string]bool{}}
	b.Plugin = &Plugin{scheduler: b, source: b.source, refused: refused.New(clock.RealClock{}, 0)}
	c.OnOpened(b.refused.Opened)
	return b
}

func (b *bench) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	b.activated = slices.Sorted(maps.Keys(pods))
}
func (b *bench) SnapshotSharedLister() fwk.SharedLister { return b }
func (b *bench) NodeInfos() fwk.NodeInfoLister          { return b }
func (b *bench) Get(node string) (fwk.NodeInfo, error) {
	if !slices.Contains(b.nodes, node) {
		return nil, errors.New("no such node")
	}
	return host{name: node}, nil
}

func (b *bench) RunFilterPluginsWithNominatedPods(ctx context.Context, cycles fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	b.asked = append(b.asked, info.Node().Name)
	return b.filters(ctx, cycles, pod, info)
}

func (b *bench) filters(ctx context.Context, cycles fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	if s := b.Filter(ctx, cycles, pod, info); !s.IsSuccess() {
		return s
	}
	if b.full[info.Node().Name] {
		return fwk.NewStatus(fwk.Unschedulable, "full")
	}
	return nil
}

// attempt is what one scheduling cycle comes to.
type attempt struct {
	// Nodes are those that passed, in order; Failed says why the others did not.
	Nodes  []string
	Failed map[string]string
	// Final are those of the failed where preemption would not help.
	Final  []string
	Scores map[string]int64
	// Skipped is true if the plugin has nothing to say of the pod.
	Skipped bool
	cycles  *cycles
}

// schedule runs a pod through a cycle, up to scores.
func (b *bench) schedule(t *testing.T, pod *corev1.Pod) attempt {
	t.Helper()
	b.asked = nil
	out := attempt{Failed: map[string]string{}, Scores: map[string]int64{}, cycles: &cycles{data: map[fwk.StateKey]fwk.StateData{}}}
	result, s := b.PreFilter(t.Context(), out.cycles, pod, nil)
	if !result.AllNodes() {
		t.Error("PreFilter narrows the nodes, which there is no way back from")
	}
	switch {
	case s.IsSkip():
		out.Skipped = true
		return out
	case !s.IsSuccess():
		out.Failed[""] = s.Message()
		return out
	}
	for _, node := range b.nodes {
		switch s := b.filters(t.Context(), out.cycles, pod, host{name: node}); s.Code() {
		case fwk.Success:
			out.Nodes = append(out.Nodes, node)
		case fwk.UnschedulableAndUnresolvable:
			out.Final = append(out.Final, node)
			out.Failed[node] = s.Message()
		case fwk.Unschedulable:
			out.Failed[node] = s.Message()
		default:
			t.Errorf("%s: %s: %v", node, s.Code(), s.AsError())
		}
	}
	if b.PreScore(t.Context(), out.cycles, pod, nil).IsSkip() {
		return out
	}
	for _, node := range out.Nodes {
		score, s := b.Score(t.Context(), out.cycles, pod, host{name: node})
		if !s.IsSuccess() {
			t.Errorf("score of %s: %v", node, s.AsError())
		}
		if score != 0 {
			out.Scores[node] = score
		}
	}
	return out
}

// pod has an identity, as in a cluster.
func pod(claims ...string) *corev1.Pod {
	p := statetest.Pod(claims...)
	p.UID = types.UID("uid-of-" + p.Name)
	return p
}

var _ source = (*state.Store)(nil)
