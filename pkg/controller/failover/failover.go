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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/writer"
)

// lookAgain is how soon a host is looked at again while a failover is under
// way: pods that go are not watched.
const lookAgain = 5 * time.Second

// Failover looks at one host at a time: it observes, classifies and acts. All
// that it has begun stands in the claims, the taint and the condition
// Failover of the DPUStorageNode, so that any instance goes on from there.
type Failover struct {
	// Host reads from a cache with indexes of attachments by node and of
	// DPUStorageNodes by DPU; HostLive reads the API server itself.
	Host     client.Client
	HostLive client.Reader
	// DPU writes to the DPU cluster; its cache serves only to skip work.
	DPU     client.Client
	DPULive client.Reader
	// DPUCache is the cache behind DPU, for watches. Nil in unit tests.
	DPUCache cache.Cache
	// Namespace of the users' objects, and TargetNamespace of their mirrors.
	Namespace, TargetNamespace string
	// Driver is the name of the CSI driver whose pods are released.
	Driver string
	// Observer remembers the beats.
	Observer *nodehealth.Observer
	// Clock stamps receipts and the beginnings of failovers.
	Clock clock.PassiveClock
	// Recorder tells the story on volumes, pods and hosts.
	Recorder record.EventRecorder
	// Budget bounds how many failovers begin.
	Budget Budget

	admitting sync.Mutex
	renewals  renewals
}

// scene is what one pass knows of a host.
type scene struct {
	node *moorv1alpha1.DPUStorageNode
	// core is nil if there is no Node.
	core     *corev1.Node
	signs    nodehealth.Signs
	api      API
	state    State
	action   Action
	evidence string
	targets  []*target
	// underway: the failover of this host has begun and has not ended.
	underway bool
	// refused says why a failover may not begin; "" if it may.
	refused string
	// waits says what else is waited for, in words.
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

// lookSoon asks to look again after a time; 0 or less asks nothing.
func (s *scene) lookSoon(after time.Duration) {
	if after > 0 && (s.soon == 0 || after < s.soon) {
		s.soon = after
	}
}

// within bounds a wait by what the lease asks for.
func (s *scene) within(wait time.Duration) ctrl.Result {
	if s.soon > 0 && (wait <= 0 || s.soon < wait) {
		wait = s.soon
	}
	return ctrl.Result{RequeueAfter: wait}
}

func (s *scene) dpu() string { return s.node.Spec.DPUName }

// Reconcile brings the failover of one host a step further, or its return.
func (f *Failover) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s, err := f.observe(ctx, req.Name)
	if err != nil || s == nil {
		return ctrl.Result{}, err
	}
	hush := f.Observer.Hush(req.Name)
	concerned, err := f.concerned(ctx, s)
	if err != nil || !concerned {
		return ctrl.Result{RequeueAfter: hush}, err
	}
	if err := f.readLive(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	err = f.act(ctx, s)
	if reportErr := f.report(ctx, s, err); err == nil {
		err = reportErr
	}
	if s.underway || s.refused != "" || s.waiting() {
		return s.within(lookAgain), err
	}
	return s.within(hush), err
}

// observe reads the host and says what has become of it; nil if there is no
// such host, or nobody has said which DPU is in it.
func (f *Failover) observe(ctx context.Context, name string) (*scene, error) {
	s := &scene{node: &moorv1alpha1.DPUStorageNode{}}
	found, err := kube.Find(ctx, f.Host, client.ObjectKey{Name: name}, s.node)
	if err != nil || !found || s.dpu() == "" {
		return nil, err
	}
	if s.core, err = f.coreNode(ctx, name); err != nil {
		return nil, err
	}
	if err := nodehealth.FromDPU(ctx, f.DPU, s.node); err != nil {
		return nil, err
	}
	s.signs, s.api, s.underway = f.Observer.Observe(s.node), apiOf(s.core), underway(s.node)
	in := Inputs{API: s.api, Host: s.signs.Host, Kubelet: s.signs.Kubelet, DPU: s.signs.DPU, Sight: s.signs.Sight, ZeroTrust: s.signs.ZeroTrust}
	s.state, s.evidence = Classify(in)
	if s.state != Healthy && s.state != Unknown {
		if in.Crowd, err = f.crowd(ctx); err != nil {
			return nil, err
		}
		s.state, s.evidence = Classify(in)
	}
	if s.signs.Sight == nodehealth.SeenDead && s.signs.Words != "" {
		s.evidence += " (" + s.signs.Words + ")"
	}
	var again time.Duration
	if s.lease, again, err = f.readLease(ctx, f.DPU, s.dpu()); err != nil {
		return nil, err
	}
	s.lookSoon(again)
	s.decide()
	return s, nil
}

// decide says what is done about the state. A DPU that is silent, and whose lease
// is over, has taken the volumes from its host by itself: there is nothing left to
// hold.
func (s *scene) decide() {
	s.action = actions[s.state]
	if s.state != DPUDead || !s.lease.Given {
		return
	}
	if !s.lease.Ended {
		s.evidence += "; it has promised to withdraw by itself, and the end of its lease is waited for"
		return
	}
	s.action = Evict
	s.evidence += "; its lease is over, so it withdraws by itself or is reset, and the host has lost its volumes"
}

// takes reports whether the volumes of the host are to be taken from it.
func (s *scene) takes() bool { return s.action == Fence || s.action == Evict }

func (f *Failover) coreNode(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	found, err := kube.Find(ctx, f.Host, client.ObjectKey{Name: name}, node)
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
func (f *Failover) concerned(ctx context.Context, s *scene) (bool, error) {
	if err := f.listTargets(ctx, s); err != nil {
		return false, err
	}
	if s.underway || tainted(s.core) || held(s.node) {
		return true, nil
	}
	for _, t := range s.targets {
		if t.inFencing(s.dpu()) || t.vouched(s.dpu()) {
			return true, nil
		}
	}
	unwell := s.signs.Host == nodehealth.Stale || s.api == APINotReady && !s.signs.ZeroTrust
	said := s.state != Healthy && (s.state != Unknown || unwell)
	return said && len(s.stakes()) > 0, nil
}

// act does what the state asks for, and brings what was begun to an end.
func (f *Failover) act(ctx context.Context, s *scene) error {
	if s.takes() && !s.underway && len(s.stakes()) > 0 {
		if err := f.admit(ctx, s); err != nil {
			return err
		}
	}
	first := atOnce(
		func() error { return f.fenceAll(ctx, s) },
		func() error { return f.findPods(ctx, s) },
	)
	switch {
	case s.underway && s.action == Fence:
		if err := f.release(ctx, s); err != nil && first == nil {
			first = err
		}
	case s.underway && s.action == Evict && first == nil:
		first = f.evict(ctx, s)
	case s.restores() && first == nil:
		first = f.restore(ctx, s)
	}
	return first
}

// restores reports whether there is a failover, or a taint, to be taken back.
func (s *scene) restores() bool { return s.action == Restore && (s.underway || tainted(s.core)) }

// fenceAll takes the right to write back of all volumes of the host, each as far as
// it can go now.
func (f *Failover) fenceAll(ctx context.Context, s *scene) error {
	return forEach(s.targets, func(t *target) error {
		if err := f.fence(ctx, s, t); err != nil {
			return fmt.Errorf("fail over volume %s from host %s: %w", t.attachment.Spec.DPUVolumeName, s.node.Name, err)
		}
		return nil
	})
}
