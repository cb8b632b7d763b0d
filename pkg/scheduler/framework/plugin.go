package framework

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/placement"
	"github.com/moor-storage/moor/pkg/scheduler/refused"
	"github.com/moor-storage/moor/pkg/scheduler/state"
)

// Name is that of the plugin in a scheduler's configuration.
const Name = "Moor"

// source is what the plugin answers from.
type source interface {
	// Index is the state now.
	Index() *state.Index
	// Ready is nil once the index is complete; its error says what is missing.
	Ready() error
}

// scheduler is what the plugin asks of the scheduler that it is in, a part of
// fwk.Handle.
type scheduler interface {
	fwk.PodActivator
	SnapshotSharedLister() fwk.SharedLister
	RunFilterPluginsWithNominatedPods(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status
}

// Plugin places pods by their volumes.
type Plugin struct {
	scheduler scheduler
	source    source
	refused   *refused.Pods
}

var (
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PostFilterPlugin  = (*Plugin)(nil)
	_ fwk.PreScorePlugin    = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
)

// Name is the plugin's.
func (p *Plugin) Name() string { return Name }

// PreFilter takes the state of the cluster by which the whole cycle goes. Pods
// without volumes of the drivers are passed over.
func (p *Plugin) PreFilter(_ context.Context, cycles fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if len(podvolume.Claims(pod)) == 0 {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	// Before the index is taken: no change after it goes unnoticed.
	anywhere := p.refused.Begin(pod)
	if err := p.source.Ready(); err != nil {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
	}
	ranking, ours := p.source.Index().Rank(pod)
	if !ours {
		p.refused.End(pod.UID)
		return nil, fwk.NewStatus(fwk.Skip)
	}
	cycles.Write(Name, &cycle{ranking: ranking, anywhere: anywhere})
	return nil, nil
}

// PreFilterExtensions are none: which pods are on a node does not count.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter leaves out nodes that cannot serve the pod's volumes, and the others
// too as long as a node where a replica stands ready can take the pod: then the
// search goes on until it is found. Decision 0017 says why it is done here.
func (p *Plugin) Filter(ctx context.Context, cycles fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	c, err := read(cycles)
	if err != nil {
		return fwk.AsStatus(err)
	}
	node := info.Node().Name
	if no := c.ranking.Refuse(node); no.Refused() {
		c.refused.Store(true)
		return refusal(no)
	}
	switch {
	case c.anywhere, c.ranking.IsNear(node), node == pod.Status.NominatedNodeName:
		return nil
	case c.hold(func(near string) bool { return p.fits(ctx, cycles, pod, near) }):
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, heldBack)
	}
	return nil
}

const heldBack = "a replica of the pod's volumes is ready on another node, which can take the pod"

func refusal(no placement.Refusal) *fwk.Status {
	if no.Final {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, no.Reason)
	}
	return fwk.NewStatus(fwk.Unschedulable, no.Reason)
}

// fits asks every filter of the profile whether a node can take the pod now.
func (p *Plugin) fits(ctx context.Context, cycles fwk.CycleState, pod *corev1.Pod, node string) bool {
	info, err := p.scheduler.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return false // there is no such node
	}
	return p.scheduler.RunFilterPluginsWithNominatedPods(ctx, cycles, pod, info).IsSuccess()
}

// PostFilter is told that no node was found. If that is because other nodes were
// held back for one that was not taken after all, as an extender of the same
// scheduler may have it, the pod is tried again at once with none held back.
// It comes before preemption, which then has nothing to do.
func (p *Plugin) PostFilter(ctx context.Context, cycles fwk.CycleState, pod *corev1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	c, err := read(cycles)
	switch {
	case err != nil: // it is none of ours, or waits for the index
	case c.held():
		p.refused.Anywhere(pod.UID)
		p.scheduler.Activate(klog.FromContext(ctx), map[string]*corev1.Pod{key(pod): pod})
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the node with the replica was not taken: all nodes are tried next")
	case !c.refused.Load():
		p.refused.End(pod.UID)
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// PreScore passes over pods of whose volumes nothing is warm anywhere.
func (p *Plugin) PreScore(_ context.Context, cycles fwk.CycleState, _ *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if c, err := read(cycles); err != nil || !c.ranking.AnyWarm() {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// maxScore is the framework's best: its constant is MaxNodeScore up to release
// 1.35, and MaxScore from 1.36 on.
const maxScore = 100

// Score is the extender's, in the framework's range.
func (p *Plugin) Score(_ context.Context, cycles fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c, err := read(cycles)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	return int64(c.ranking.Score(info.Node().Name)) * (maxScore / placement.MaxScore), nil
}

// ScoreExtensions are none: scores are not relative to one another.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return nil }

// SignPod lets pods without claims share the scheduler's results. Those with
// claims are placed by what becomes of their volumes meanwhile.
func (p *Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if len(podvolume.Claims(pod)) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods with claims are placed by the state of their volumes")
	}
	return nil, nil
}

// EventsToRegister has a refused pod tried again when a node comes that can
// serve it. That a node or a volume changes is told by the index: see package refused.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{{
		Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, QueueingHintFn: p.nodeAdded,
	}}, nil
}

func (p *Plugin) nodeAdded(_ klog.Logger, pod *corev1.Pod, _, added any) (fwk.QueueingHint, error) {
	node, ok := added.(*corev1.Node)
	if !ok {
		return fwk.Queue, fmt.Errorf("decide whether pod %s is tried again: what was added is no Node but %T", key(pod), added)
	}
	if ranking, ours := p.source.Index().Rank(pod); ours && ranking.Refuse(node.Name).Refused() {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// read is what PreFilter wrote.
func read(cycles fwk.CycleState) (*cycle, error) {
	data, err := cycles.Read(Name)
	if err != nil {
		return nil, fmt.Errorf("read what PreFilter of plugin %s wrote: %w", Name, err)
	}
	c, ok := data.(*cycle)
	if !ok {
		return nil, errors.New("what PreFilter of plugin " + Name + " wrote was overwritten")
	}
	return c, nil
}

func key(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }
