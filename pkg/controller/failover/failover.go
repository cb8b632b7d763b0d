// Package failover takes a host that died out of service: it classifies what is
// heard of the host (classify.go), admits a failover (admit.go), takes the right to
// write back with a receipt (fence.go), releases the pods, and gives a host back
// that returned (release.go). What was begun stands in the WriterClaims, in the
// taint of the Node and in the condition Failover, never in memory.
//
// Each phase is a method of a small type with its own dependencies, and works on
// what the pass knows of its host (pass.go). The Reconciler alone calls the phases.
//
// Its subpackage detach ends the right to write in order; powerproof asks BMCs beside the passes.
package failover

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/failover/detach"
	"github.com/moor-storage/moor/pkg/controller/failover/doubt"
	"github.com/moor-storage/moor/pkg/controller/failover/lostpath"
	"github.com/moor-storage/moor/pkg/controller/failover/powerproof"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/writer"
)

// retryAfter is when the next pass over a host starts while a failover is under
// way: pods that go are not watched.
const retryAfter = 5 * time.Second

// Options of a Reconciler.
type Options struct {
	// Host is the host cluster. Its cache has the indexes of attachments by
	// node and of DPUStorageNodes by DPU.
	Host kube.Cluster
	// DPU is the DPU cluster; its cache serves only to skip work.
	DPU kube.Cluster
	// Namespace of the users' objects, and TargetNamespace of their mirrors.
	Namespace, TargetNamespace string
	// Drivers are the names of the CSI drivers whose pods are released.
	Drivers []string
	// Observer remembers the heartbeats.
	Observer *nodehealth.Observer
	// Clock stamps receipts and the beginnings of failovers.
	Clock clock.PassiveClock
	// Recorder is for events on volumes, pods and hosts.
	Recorder record.EventRecorder
	// Budget bounds how many failovers begin.
	Budget Budget
	// Doubts are after what time a host that is in doubt fails over without being asked for.
	Doubts doubt.Limits
	// Power has BMCs asked where no other proof comes; nil: none is.
	Power *powerproof.Keeper
}

// Reconciler looks at one host at a time: it observes, classifies and acts. All
// that it has begun stands in the claims, the taint and the condition
// Failover of the DPUStorageNode, so that any instance goes on from there.
type Reconciler struct {
	o Options

	observer  observer
	fleet     *fleetReader
	targets   targetReader
	leases    *leases
	admission *admission
	fencer    fencer
	releaser  releaser
	paths     paths
	condition condition
}

// New returns a reconciler; call SetupWithManager, or Reconcile in tests.
func New(o Options) *Reconciler {
	r := &Reconciler{
		o:         o,
		targets:   targetReader{host: o.Host, dpu: o.DPU, namespace: o.Namespace, targetNamespace: o.TargetNamespace, clock: o.Clock, asked: &kube.Recent[bool]{}},
		fleet:     &fleetReader{host: o.Host, dpu: o.DPU, heartbeats: o.Observer, clock: o.Clock},
		leases:    &leases{dpu: o.DPU, clock: o.Clock},
		condition: condition{host: o.Host, clock: o.Clock, recorder: o.Recorder, told: &kube.Recent[string]{}, progress: &progress{}},
	}
	r.observer = observer{host: o.Host, dpu: o.DPU, heartbeats: o.Observer, fleet: r.fleet, leases: r.leases, doubts: doubt.New(o.Doubts)}
	r.admission = &admission{
		clock: o.Clock, recorder: o.Recorder, budget: o.Budget, fleet: r.fleet, condition: r.condition,
		admitted: &admitted{host: o.Host, namespace: o.Namespace, clock: o.Clock},
	}
	r.fencer = fencer{
		dpu: o.DPU, targetNamespace: o.TargetNamespace, targets: r.targets, leases: r.leases, clock: o.Clock, recorder: o.Recorder,
		progress: r.condition.progress, power: o.Power,
	}
	r.releaser = releaser{host: o.Host, drivers: o.Drivers, pods: podReader{host: o.Host, drivers: o.Drivers}, recorder: o.Recorder, clock: o.Clock, progress: r.condition.progress, asked: &kube.Recent[struct{}]{}}
	r.paths = paths{
		reader: lostpath.Reader{Host: o.Host, DPU: o.DPU, Revokes: r.fencer.revokes, Heartbeats: o.Observer, Clock: o.Clock}, pods: r.releaser.pods,
	}
	return r
}

// SetupWithManager watches hosts, Nodes and attachments of the host cluster, and
// attachments, claims and what DPUs report of their hosts in the DPU cluster.
// Heartbeats alone start no pass: a host is looked at when what is observed of it has
// become something else, as when a witness falls silent. What goes on with a failover
// that was begun waits for those that begin: each takes a volume from a host that may
// still write, and of a rack that dies the first host alone has a dozen such events.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("failover").
		For(&moorv1alpha1.DPUStorageNode{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: hostChanged}, predicate.Not(begun))).
		Watches(&moorv1alpha1.DPUStorageNode{}, kube.EnqueueLater(ofHost), builder.WithPredicates(predicate.Funcs{UpdateFunc: hostChanged}, begun)).
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: nodeChanged})).
		Watches(&storagev1alpha1.DPUVolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(ofAttachment), builder.WithPredicates(detach.Going)).
		WatchesRawSource(r.o.Observer.Source(matters)).
		WatchesRawSource(r.o.Power.Source()).
		WatchesRawSource(source.Kind(r.o.DPU.Cache, &moorv1alpha1.DPUStorageNode{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofReport), r.observedChanged())).
		WatchesRawSource(source.Kind(r.o.DPU.Cache, &storagev1alpha1.VolumeAttachment{}, kube.EnqueueLater(r.ofMirror))).
		WatchesRawSource(source.Kind(r.o.DPU.Cache, &storagev1alpha1.SVVolumeAttachment{}, kube.EnqueueLater(r.ofRevoked))).
		WatchesRawSource(source.Kind(r.o.DPU.Cache, &moorv1alpha1.WriterClaim{}, kube.EnqueueLater(r.ofClaim))).
		Complete(kube.Retrying(r))
}

// Reconcile brings the failover of one host a step further, or its return.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	p, err := r.observer.observe(ctx, req.Name)
	if err != nil || p == nil {
		return ctrl.Result{}, err
	}
	silence := r.o.Observer.EarliestSilence(req.Name)
	if err := r.targets.look(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.paths.judge(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.condition.answer(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case !p.concerned() && !p.unwell():
		return ctrl.Result{}, nil // what changes wakes it
	case !p.concerned():
		return ctrl.Result{RequeueAfter: silence}, nil // its volumes may come, and are not watched
	}
	if err = r.admission.refuse(ctx, p); err == nil && p.acts() {
		if err := r.targets.readLive(ctx, p); err != nil {
			return ctrl.Result{}, err
		}
		err = r.act(ctx, p)
	}
	if !kube.OnlyConflicts(err) { // a race that was lost is nothing to tell: the next pass settles it
		if reportErr := r.condition.report(ctx, p, err); err == nil {
			err = reportErr
		}
	}
	return p.within(p.wait(silence)), err
}

// wait is after what time a host is looked at again about which nothing changes.
func (p *pass) wait(silence time.Duration) time.Duration {
	switch {
	case p.underway || p.refused != "" || p.waiting():
		return retryAfter
	case p.early:
		return fleetAge
	case p.state == ControlPlaneSick: // many hosts are looked at then, each by itself
		return retryAfter
	}
	return silence
}

// act does what the state asks for, and brings what was begun to an end.
func (r *Reconciler) act(ctx context.Context, p *pass) error {
	if p.begins() {
		if err := r.admission.admit(ctx, p); err != nil {
			return err
		}
	}
	first := r.takeOrGiveBack(ctx, p)
	if err := r.fencer.switchOn(ctx, p); first == nil {
		first = err
	}
	return first
}

// takeOrGiveBack takes volumes and pods from a host, or puts it back into service.
func (r *Reconciler) takeOrGiveBack(ctx context.Context, p *pass) error {
	first := r.fencer.fenceAll(ctx, p)
	switch {
	case p.underway && p.action == Fence:
		if err := r.releaser.release(ctx, p); err != nil && first == nil {
			first = err
		}
	case p.underway && p.action == Evict && first == nil:
		first = r.releaser.evict(ctx, p)
	case p.restores() && first == nil:
		first = r.releaser.restore(ctx, p)
	case p.moving():
		if err := r.releaser.move(ctx, p); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// matters reports whether two observations may lead to different states: how long the
// witnesses have been watched is told by the heartbeats themselves.
func matters(before, after nodehealth.Observation) bool {
	before.HostUnheard, before.DPUUnheard, before.Young = after.HostUnheard, after.DPUUnheard, after.Young
	return before != after
}

// begun passes hosts whose failover was begun.
var begun = predicate.NewPredicateFuncs(func(o client.Object) bool {
	n, ok := o.(*moorv1alpha1.DPUStorageNode)
	return ok && underway(n)
})

func ofHost(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{kube.RequestFor("", o.GetName())}
}

// hostChanged passes anything but the next heartbeat.
func hostChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*moorv1alpha1.DPUStorageNode)
	after, also := e.ObjectNew.(*moorv1alpha1.DPUStorageNode)
	if !ok || !also {
		return true
	}
	return kube.Resync(e) || !equality.Semantic.DeepEqual(before.Spec, after.Spec) || !equality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions) ||
		!equality.Semantic.DeepEqual(observed(before), observed(after)) || !equality.Semantic.DeepEqual(before.Status.LostPaths(), after.Status.LostPaths())
}

// observed is what a DPU reports of its host.
func observed(n *moorv1alpha1.DPUStorageNode) *moorv1alpha1.HostObservation {
	if n.Status.DPU == nil {
		return nil
	}
	return n.Status.DPU.Host
}

// observedChanged passes changes of what DPUs report of their hosts and of their paths. It sees each
// heartbeat, and records it: a lease counts from when its renewal was seen. What a
// DPU said that is gone is forgotten.
func (r *Reconciler) observedChanged() predicate.TypedFuncs[*moorv1alpha1.DPUStorageNode] {
	return predicate.TypedFuncs[*moorv1alpha1.DPUStorageNode]{
		UpdateFunc: func(e event.TypedUpdateEvent[*moorv1alpha1.DPUStorageNode]) bool {
			r.leases.heard(e.ObjectNew)
			return !equality.Semantic.DeepEqual(observed(e.ObjectOld), observed(e.ObjectNew)) ||
				!equality.Semantic.DeepEqual(e.ObjectOld.Status.LostPaths(), e.ObjectNew.Status.LostPaths())
		},
		DeleteFunc: func(e event.TypedDeleteEvent[*moorv1alpha1.DPUStorageNode]) bool {
			r.leases.seen.forget(e.Object.Name)
			return true
		},
	}
}

func (r *Reconciler) ofReport(ctx context.Context, dpu *moorv1alpha1.DPUStorageNode) []reconcile.Request {
	return r.ofDPU(ctx, dpu.Name)
}

func nodeChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, also := e.ObjectNew.(*corev1.Node)
	return !ok || !also || apiOf(before) != apiOf(after) || !equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}

func ofAttachment(_ context.Context, o client.Object) []reconcile.Request {
	a, ok := o.(*storagev1alpha1.DPUVolumeAttachment)
	if !ok {
		return nil
	}
	return []reconcile.Request{kube.RequestFor("", a.Spec.DPUNodeName)}
}

func (r *Reconciler) ofMirror(ctx context.Context, a *storagev1alpha1.VolumeAttachment) []reconcile.Request {
	if a.DeletionTimestamp.IsZero() && a.Status.DPU.RetiredEpoch == 0 {
		return nil
	}
	return r.ofHolder(ctx, writer.HolderOf(a))
}

// SlimRevoked is the transform of the cache behind ofRevoked, which alone reads these
// objects from a cache: where they are, and whether they are deleted, is what stays.
func SlimRevoked(o any) (any, error) {
	a, ok := o.(*storagev1alpha1.SVVolumeAttachment)
	if !ok {
		return o, nil
	}
	return &storagev1alpha1.SVVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a.Namespace, Name: a.Name, UID: a.UID, ResourceVersion: a.ResourceVersion, DeletionTimestamp: a.DeletionTimestamp,
		},
		Spec: storagev1.VolumeAttachmentSpec{NodeName: a.Spec.NodeName},
	}, nil
}

func (r *Reconciler) ofRevoked(ctx context.Context, a *storagev1alpha1.SVVolumeAttachment) []reconcile.Request {
	if a.DeletionTimestamp.IsZero() {
		return nil
	}
	return r.ofHolder(ctx, writer.Holder{DPU: a.Spec.NodeName, Attachment: a.Name})
}

func (r *Reconciler) ofClaim(ctx context.Context, c *moorv1alpha1.WriterClaim) []reconcile.Request {
	if c.Status == nil || c.Status.Holder == "" || c.Status.Phase != moorv1alpha1.ClaimFencing && c.Spec.OperatorReceipt == nil {
		return nil
	}
	return r.ofHolder(ctx, writer.Holder{DPU: c.Status.Holder, Attachment: c.Status.Attachment})
}

// ofHolder are the hosts of a DPU, and the one that the attachment is for: it may have
// another DPU by now.
func (r *Reconciler) ofHolder(ctx context.Context, h writer.Holder) []reconcile.Request {
	out, a := r.ofDPU(ctx, h.DPU), &storagev1alpha1.DPUVolumeAttachment{}
	found, err := kube.Find(ctx, r.o.Host.Client, client.ObjectKey{Namespace: r.o.Namespace, Name: h.Attachment}, a, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "find the host of an attachment", "attachment", h.Attachment)
	}
	if host := kube.RequestFor("", a.Spec.DPUNodeName); found && !slices.Contains(out, host) {
		out = append(out, host)
	}
	return out
}

func (r *Reconciler) ofDPU(ctx context.Context, dpu string) []reconcile.Request {
	return kube.RequestsOf(ctx, r.o.Host.Client, &moorv1alpha1.DPUStorageNodeList{}, client.MatchingFields{index.DPUStorageNodeByDPU: dpu})
}
