// Package failover takes a host that died out of service: it classifies what is
// heard of the host (classify.go), admits a failover (admit.go), takes the right to
// write back with a receipt (fence.go), releases the pods, and gives a host back
// that returned (release.go). What was begun stands in the WriterClaims, in the
// taint of the Node and in the condition Failover, never in memory.
//
// Its subpackages: detach ends the right to write in order, leases hears the
// kubelets and the process itself.
package failover

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/writer"
)

// retryAfter is when the next pass over a host starts while a failover is under
// way: pods that go are not watched.
const retryAfter = 5 * time.Second

// Failover looks at one host at a time: it observes, classifies and acts. All
// that it has begun stands in the claims, the taint and the condition
// Failover of the DPUStorageNode, so that any instance goes on from there.
type Failover struct {
	// Host is the host cluster. Its cache has the indexes of attachments by
	// node and of DPUStorageNodes by DPU.
	Host kube.Cluster
	// DPU is the DPU cluster; its cache serves only to skip work.
	DPU kube.Cluster
	// Namespace of the users' objects, and TargetNamespace of their mirrors.
	Namespace, TargetNamespace string
	// Driver is the name of the CSI driver whose pods are released.
	Driver string
	// Observer remembers the heartbeats.
	Observer *nodehealth.Observer
	// Clock stamps receipts and the beginnings of failovers.
	Clock clock.PassiveClock
	// Recorder is for events on volumes, pods and hosts.
	Recorder record.EventRecorder
	// Budget bounds how many failovers begin.
	Budget Budget

	admitting sync.Mutex
	renewals  renewals
}

// pass is what one pass knows of a host.
type pass struct {
	node *moorv1alpha1.DPUStorageNode
	// core is nil if there is no Node.
	core        *corev1.Node
	observation nodehealth.Observation
	api         API
	state       State
	action      Action
	evidence    string
	targets     []*target
	// underway: the failover of this host has begun and has not ended.
	underway bool
	// refused says why a failover may not begin; "" if it may.
	refused string
	// waits says what else is waited for.
	waits []string
	// pods are those of the host that use our volumes, if they are to go;
	// podsErr is why they are not known.
	pods    []*pod
	podsErr error
	// lease is that of the DPU.
	lease writer.Lease
	// soon is when to look again for its sake; 0: never.
	soon time.Duration
}

// retryBy asks to look again after a time; 0 or less asks nothing.
func (p *pass) retryBy(after time.Duration) {
	if after > 0 && (p.soon == 0 || after < p.soon) {
		p.soon = after
	}
}

// within bounds a wait by what the lease asks for.
func (p *pass) within(wait time.Duration) ctrl.Result {
	if p.soon > 0 && (wait <= 0 || p.soon < wait) {
		wait = p.soon
	}
	return ctrl.Result{RequeueAfter: wait}
}

func (p *pass) dpu() string { return p.node.Spec.DPUName }

// Reconcile brings the failover of one host a step further, or its return.
func (f *Failover) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	p, err := f.observe(ctx, req.Name)
	if err != nil || p == nil {
		return ctrl.Result{}, err
	}
	silence := f.Observer.EarliestSilence(req.Name)
	concerned, err := f.concerned(ctx, p)
	if err != nil || !concerned {
		return ctrl.Result{RequeueAfter: silence}, err
	}
	if err := f.readLive(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	err = f.act(ctx, p)
	if reportErr := f.report(ctx, p, err); err == nil {
		err = reportErr
	}
	if p.underway || p.refused != "" || p.waiting() {
		return p.within(retryAfter), err
	}
	return p.within(silence), err
}

// observe reads the host and says what has become of it; nil if there is no
// such host, or it is not known which DPU is in it.
func (f *Failover) observe(ctx context.Context, name string) (*pass, error) {
	p := &pass{node: &moorv1alpha1.DPUStorageNode{}}
	found, err := kube.Find(ctx, f.Host.Client, client.ObjectKey{Name: name}, p.node)
	if err != nil || !found || p.dpu() == "" {
		return nil, err
	}
	if p.core, err = f.coreNode(ctx, name); err != nil {
		return nil, err
	}
	if err := nodehealth.FromDPU(ctx, f.DPU.Client, p.node); err != nil {
		return nil, err
	}
	p.observation, p.api, p.underway = f.Observer.Observe(p.node), apiOf(p.core), underway(p.node)
	in := Inputs{API: p.api, Host: p.observation.Host, Kubelet: p.observation.Kubelet, DPU: p.observation.DPU, HostSeen: p.observation.HostSeen, ZeroTrust: p.observation.ZeroTrust}
	p.state, p.evidence = Classify(in)
	if p.state != Healthy && p.state != Unknown {
		if in.Fleet, err = f.fleet(ctx); err != nil {
			return nil, err
		}
		p.state, p.evidence = Classify(in)
	}
	if p.observation.HostSeen == nodehealth.SeenDead && p.observation.Message != "" {
		p.evidence += " (" + p.observation.Message + ")"
	}
	var again time.Duration
	if p.lease, again, err = f.readLease(ctx, f.DPU.Client, p.dpu()); err != nil {
		return nil, err
	}
	p.retryBy(again)
	p.decide()
	return p, nil
}

// decide says what is done about the state. A DPU that is silent, and whose lease
// is over, has taken the volumes from its host by itself: there is nothing left to
// hold.
func (p *pass) decide() {
	p.action = actions[p.state]
	if p.state != DPUDead || !p.lease.Given {
		return
	}
	if !p.lease.Ended {
		p.evidence += "; it has promised to withdraw by itself, and the end of its lease is waited for"
		return
	}
	p.action = Evict
	p.evidence += "; its lease is over, so it withdraws by itself or is reset, and the host has lost its volumes"
}

// takes reports whether the volumes of the host are to be taken from it.
func (p *pass) takes() bool { return p.action == Fence || p.action == Evict }

func (f *Failover) coreNode(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	found, err := kube.Find(ctx, f.Host.Client, client.ObjectKey{Name: name}, node)
	if err != nil || !found {
		return nil, err
	}
	return node, nil
}

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

// concerned lists what is attached, from the cache, and reports whether there
// is anything to do or to say.
func (f *Failover) concerned(ctx context.Context, p *pass) (bool, error) {
	if err := f.listTargets(ctx, p); err != nil {
		return false, err
	}
	if p.underway || tainted(p.core) || held(p.node) {
		return true, nil
	}
	for _, t := range p.targets {
		if t.inFencing(p.dpu()) || t.vouched(p.dpu()) {
			return true, nil
		}
	}
	unwell := p.observation.Host == nodehealth.Stale || p.api == APINotReady && !p.observation.ZeroTrust
	said := p.state != Healthy && (p.state != Unknown || unwell)
	return said && len(p.affected()) > 0, nil
}

// act does what the state asks for, and brings what was begun to an end.
func (f *Failover) act(ctx context.Context, p *pass) error {
	if p.takes() && !p.underway && len(p.affected()) > 0 {
		if err := f.admit(ctx, p); err != nil {
			return err
		}
	}
	first := atOnce(
		func() error { return f.fenceAll(ctx, p) },
		func() error { return f.findPods(ctx, p) },
	)
	switch {
	case p.underway && p.action == Fence:
		if err := f.release(ctx, p); err != nil && first == nil {
			first = err
		}
	case p.underway && p.action == Evict && first == nil:
		first = f.evict(ctx, p)
	case p.restores() && first == nil:
		first = f.restore(ctx, p)
	}
	return first
}

// restores reports whether there is a failover, or a taint, to be taken back.
func (p *pass) restores() bool { return p.action == Restore && (p.underway || tainted(p.core)) }

// fenceAll takes the right to write back of all volumes of the host, each as far as
// it can go now.
func (f *Failover) fenceAll(ctx context.Context, p *pass) error {
	return forEach(p.targets, func(t *target) error {
		outcome := kube.Settle(f.fence(ctx, p, t), f.Clock.Now())
		if outcome.Err != nil {
			return fmt.Errorf("fail over volume %s from host %s: %w", t.attachment.Spec.DPUVolumeName, p.node.Name, outcome.Err)
		}
		t.waits = outcome.Message
		return nil
	})
}
