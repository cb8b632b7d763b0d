// Package nodelifecycle turns the heartbeats of DPUStorageNodes in the host
// cluster into the conditions HostAlive, DPUAlive, Ready and PathHealthy, and removes
// the object of a Node that was removed once nothing is attached there. It writes
// no other condition and decides nothing about who may write to a volume.
package nodelifecycle

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/record"
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
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// retryAfter is when a removed Node's object is looked at again while
// something is attached there.
const retryAfter = 30 * time.Second

// Reconciler keeps the conditions of one DPUStorageNode.
type Reconciler struct {
	// Host has an index of attachments by node.
	Host kube.Cluster
	// DPU is only read.
	DPU kube.Cluster
	// Namespace of the users' objects.
	Namespace string
	// Observer remembers the heartbeats.
	Observer *nodehealth.Observer
	// Recorder tells of removals.
	Recorder record.EventRecorder
}

// SetupWithManager watches what is observed of hosts and DPUs, their DPUStorageNodes in
// both clusters, and Nodes that go. A heartbeat that comes when it is due starts no
// pass.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	goes := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("drivernode").
		For(&moorv1alpha1.DPUStorageNode{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: changed})).
		WatchesRawSource(r.Observer.Source(matters)).
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(goes)).
		WatchesRawSource(source.Kind(r.DPU.Cache, &moorv1alpha1.DPUStorageNode{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofDPU),
			predicate.TypedFuncs[*moorv1alpha1.DPUStorageNode]{UpdateFunc: func(e event.TypedUpdateEvent[*moorv1alpha1.DPUStorageNode]) bool {
				return dpuChanged(e.ObjectOld, e.ObjectNew)
			}})).
		Complete(kube.Retrying(r))
}

// matters reports whether two observations may lead to different conditions: no
// condition is about the kubelet.
func matters(before, after nodehealth.Observation) bool {
	before.Kubelet = after.Kubelet
	return before != after
}

// changed passes what a pass reads of a host's object beside the heartbeats, and the
// conditions that it writes.
func changed(e event.UpdateEvent) bool {
	before, after := e.ObjectOld.(*moorv1alpha1.DPUStorageNode), e.ObjectNew.(*moorv1alpha1.DPUStorageNode)
	return kube.Resync(e) || before.Generation != after.Generation || !equality.Semantic.DeepEqual(before.Spec, after.Spec) || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		dpuChanged(before, after) || !equality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions)
}

// dpuChanged passes what a pass reads of what a DPU tells, beside its heartbeats.
func dpuChanged(before, after *moorv1alpha1.DPUStorageNode) bool {
	return snapReady(before) != snapReady(after) || allLost(before) != allLost(after) || !equality.Semantic.DeepEqual(before.Status.LostPaths(), after.Status.LostPaths())
}

func allLost(n *moorv1alpha1.DPUStorageNode) bool {
	return n.Status.DPU != nil && n.Status.DPU.AllPathsLost
}

// snapReady is what a DPU says of SNAP; "" if it has said nothing yet.
func snapReady(n *moorv1alpha1.DPUStorageNode) string {
	if n.Status.DPU == nil {
		return ""
	}
	return strconv.FormatBool(n.Status.DPU.SNAPReady)
}

func (r *Reconciler) ofDPU(ctx context.Context, dpu *moorv1alpha1.DPUStorageNode) []reconcile.Request {
	return kube.RequestsOf(ctx, r.Host.Client, &moorv1alpha1.DPUStorageNodeList{}, client.MatchingFields{index.DPUStorageNodeByDPU: dpu.Name})
}

// Reconcile writes what the heartbeats say, if it differs from what stands there.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	node := &moorv1alpha1.DPUStorageNode{}
	found, err := kube.Find(ctx, r.Host.Client, req.NamespacedName, node)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !found || !node.DeletionTimestamp.IsZero() {
		r.Observer.Forget(req.Name)
		return ctrl.Result{}, nil
	}
	if err := nodehealth.FromDPU(ctx, r.DPU.Client, node); err != nil {
		return ctrl.Result{}, err
	}
	observation := r.Observer.Observe(node)
	stays, gone, err := r.removed(ctx, node, observation)
	if err != nil {
		return ctrl.Result{}, err
	}
	if gone {
		r.Recorder.Event(node, corev1.EventTypeNormal, moorv1alpha1.ReasonNodeRemoved, "the Node was removed and nothing is attached there: this object goes too")
		return ctrl.Result{}, kube.Delete(ctx, r.Host.Client, node)
	}
	var again time.Duration
	if len(stays) > 0 {
		again = retryAfter
	}
	return ctrl.Result{RequeueAfter: again}, r.write(ctx, node, observation, stays)
}

// write changes the conditions with the resourceVersion that was read: fence
// writes one of its own in the same list.
func (r *Reconciler) write(ctx context.Context, node *moorv1alpha1.DPUStorageNode, observation nodehealth.Observation, stays []string) error {
	before := node.DeepCopy()
	for _, c := range conditions(observation, node.Status, stays) {
		c.ObservedGeneration = node.Generation
		meta.SetStatusCondition(&node.Status.Conditions, c)
	}
	if equality.Semantic.DeepEqual(before.Status, node.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Host.Client.Status().Patch(ctx, node, patch); err != nil {
		return fmt.Errorf("write the conditions of DPUStorageNode %s: %w", node.Name, err)
	}
	return nil
}

// removed reports whether the host's Node was removed, and what is still
// attached there. An object whose host never beat was made ahead of its Node,
// and one whose host beats belongs to a Node that comes back. A ZeroTrust host
// need not be a Node at all.
func (r *Reconciler) removed(ctx context.Context, node *moorv1alpha1.DPUStorageNode, observation nodehealth.Observation) (stays []string, gone bool, err error) {
	if observation.ZeroTrust || node.Status.Host == nil || node.Status.Host.Sequence == 0 || observation.Host.Heard() {
		return nil, false, nil
	}
	for _, reader := range []client.Reader{r.Host.Client, r.Host.Live} {
		found, err := kube.Find(ctx, reader, client.ObjectKey{Name: node.Name}, &corev1.Node{})
		if err != nil || found {
			return nil, false, err
		}
	}
	var list storagev1alpha1.DPUVolumeAttachmentList
	if err := r.Host.Client.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingFields{index.DPUVolumeAttachmentByNode: node.Name}); err != nil {
		return nil, false, fmt.Errorf("list what is attached to removed node %s: %w", node.Name, err)
	}
	for _, a := range list.Items {
		stays = append(stays, a.Name)
	}
	return stays, len(stays) == 0, nil
}

func staysMessage(stays []string) string {
	slices.Sort(stays)
	named := strings.Join(stays[:min(len(stays), mostNamed)], ", ")
	return fmt.Sprintf("the Node was removed, but these DPUVolumeAttachments stay: %s%s; delete them, and this object goes too", named, more(len(stays)))
}
