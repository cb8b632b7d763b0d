package dpudrain

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
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
)

// lookAgain is after what time a host is looked at again that is not drained and of which
// nothing is heard: what is left of it is watched, and budgets are not, which evict asks.
const lookAgain = 30 * time.Second

// Reconciler drains the DPU of one host.
type Reconciler struct {
	// Host and DPU are the clusters, with the indexes of package index.
	Host, DPU kube.Cluster
	// Namespace of the users' objects, and TargetNamespace of their mirrors.
	Namespace, TargetNamespace string
	// Drivers are the names of the CSI drivers.
	Drivers  []string
	Clock    clock.PassiveClock
	Recorder record.EventRecorder

	// refused are the pods whose eviction was refused a moment ago, and why: what is
	// forgotten is asked for once more.
	refused kube.Recent[refusal]
}

// SetupWithManager watches the wish of a person, and what is left on hosts with one.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("dpudrain").
		For(&moorv1alpha1.DPUStorageNode{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return concerned(e.Object) },
			UpdateFunc: wakes,
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Watches(&storagev1alpha1.DPUVolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(r.ofAttachment)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod)).
		WatchesRawSource(source.Kind(r.DPU.Cache, &moorv1alpha1.WriterClaim{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofClaim))).
		WatchesRawSource(source.Kind(r.DPU.Cache, &storagev1alpha1.VolumeAttachment{}, handler.TypedEnqueueRequestsFromMapFunc(r.ofShown))).
		Complete(kube.Retrying(r))
}

// concerned reports whether a host is drained, or was and still says so.
func concerned(o client.Object) bool {
	n := o.(*moorv1alpha1.DPUStorageNode)
	return n.Spec.Drain != nil || meta.FindStatusCondition(n.Status.Conditions, moorv1alpha1.ConditionDrained) != nil
}

// wakes passes what a pass reads of a host that is concerned; a heartbeat is not.
func wakes(e event.UpdateEvent) bool {
	was, is := e.ObjectOld.(*moorv1alpha1.DPUStorageNode), e.ObjectNew.(*moorv1alpha1.DPUStorageNode)
	if !concerned(was) && !concerned(is) {
		return false
	}
	return kube.Resync(e) || !equality.Semantic.DeepEqual(was.Spec, is.Spec) || !equality.Semantic.DeepEqual(was.Status.Conditions, is.Status.Conditions)
}

func (r *Reconciler) ofAttachment(ctx context.Context, o client.Object) []reconcile.Request {
	return r.drained(ctx, o.(*storagev1alpha1.DPUVolumeAttachment).Spec.DPUNodeName)
}

func (r *Reconciler) ofPod(ctx context.Context, o client.Object) []reconcile.Request {
	return r.drained(ctx, o.(*corev1.Pod).Spec.NodeName)
}

func (r *Reconciler) ofClaim(ctx context.Context, c *moorv1alpha1.WriterClaim) []reconcile.Request {
	if c.Status == nil || c.Status.Holder == "" {
		return nil
	}
	return r.ofDPU(ctx, c.Status.Holder)
}

func (r *Reconciler) ofShown(ctx context.Context, a *storagev1alpha1.VolumeAttachment) []reconcile.Request {
	return r.ofDPU(ctx, a.Spec.NodeName)
}

// ofDPU are the requests of the hosts of a DPU that is being drained.
func (r *Reconciler) ofDPU(ctx context.Context, dpu string) []reconcile.Request {
	var hosts moorv1alpha1.DPUStorageNodeList
	of := client.MatchingFields{index.DPUStorageNodeByDPU: dpu}
	if err := r.Host.Client.List(ctx, &hosts, of, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "find the host of a DPU", "dpu", dpu)
	}
	var out []reconcile.Request
	for i := range hosts.Items {
		if hosts.Items[i].Spec.Drain != nil {
			out = append(out, kube.RequestFor("", hosts.Items[i].Name))
		}
	}
	return out
}

// drained is the request of a host, if it is being drained.
func (r *Reconciler) drained(ctx context.Context, host string) []reconcile.Request {
	node := &moorv1alpha1.DPUStorageNode{}
	if host == "" {
		return nil
	}
	found, err := kube.Find(ctx, r.Host.Client, client.ObjectKey{Name: host}, node, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "read a host", "host", host)
	}
	if !found || node.Spec.Drain == nil {
		return nil
	}
	return []reconcile.Request{kube.RequestFor("", host)}
}

// Reconcile brings the drain of one host a step further, or ends it. The host is read from
// the API server: nothing is evicted by a wish that was taken back.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	node := &moorv1alpha1.DPUStorageNode{}
	found, err := kube.Find(ctx, r.Host.Live, req.NamespacedName, node)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	if node.Spec.Drain == nil {
		return ctrl.Result{}, r.end(ctx, node)
	}
	if err := r.begin(ctx, node); err != nil {
		return ctrl.Result{}, err
	}
	f, err := r.pass(ctx, node)
	if err != nil {
		f.doubt = err.Error()
	}
	v := decide(f)
	if told := r.report(ctx, node, v); err == nil {
		err = told
	}
	if v.status == metav1.ConditionTrue { // what comes wakes it
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: f.again()}, err
}

// pass evicts pods, and finds what is left. What caches show is enough to say that
// something is; that nothing is, the API servers alone can say.
func (r *Reconciler) pass(ctx context.Context, node *moorv1alpha1.DPUStorageNode) (*findings, error) {
	f := &findings{dpu: node.Spec.DPUName}
	if f.dpu == "" {
		f.doubt = "spec.dpuName is empty: it is not known which DPU is drained"
		return f, nil
	}
	pods, err := r.podsOf(ctx, node.Name)
	if err != nil {
		return f, err
	}
	f.pods = r.evict(ctx, node, r.age(node), pods)
	if err := r.find(ctx, f, node.Name, r.Host.Client, r.DPU.Client); err != nil || f.left() {
		return f, err
	}
	f.live = true
	return f, r.find(ctx, f, node.Name, r.Host.Live, r.DPU.Live)
}

// age is for how long the DPU has been drained, or has not been again.
func (r *Reconciler) age(node *moorv1alpha1.DPUStorageNode) time.Duration {
	c := meta.FindStatusCondition(node.Status.Conditions, moorv1alpha1.ConditionDrained)
	if c == nil {
		return 0
	}
	return r.Clock.Now().Sub(c.LastTransitionTime.Time)
}

// begin says that the DPU is being drained before anything is done for it.
func (r *Reconciler) begin(ctx context.Context, node *moorv1alpha1.DPUStorageNode) error {
	if meta.FindStatusCondition(node.Status.Conditions, moorv1alpha1.ConditionDrained) != nil {
		return nil
	}
	v := verdict{metav1.ConditionFalse, moorv1alpha1.ReasonEvicting, "the drain begins"}
	if err := r.write(ctx, node, v); err != nil {
		return err
	}
	r.Recorder.Event(node, corev1.EventTypeNormal, moorv1alpha1.EventDrainBegun, node.Spec.Draining())
	return nil
}

// report writes the condition, and tells when the DPU can be rebooted.
func (r *Reconciler) report(ctx context.Context, node *moorv1alpha1.DPUStorageNode, v verdict) error {
	was := meta.IsStatusConditionTrue(node.Status.Conditions, moorv1alpha1.ConditionDrained)
	if err := r.write(ctx, node, v); err != nil {
		return err
	}
	if !was && v.status == metav1.ConditionTrue {
		r.Recorder.Event(node, corev1.EventTypeNormal, moorv1alpha1.EventDrained, v.message)
	}
	return nil
}

// end takes the condition away with the wish.
func (r *Reconciler) end(ctx context.Context, node *moorv1alpha1.DPUStorageNode) error {
	removed := false
	if _, err := kube.PatchStatusExact(ctx, r.Host.Client, node, func(n *moorv1alpha1.DPUStorageNode) {
		removed = meta.RemoveStatusCondition(&n.Status.Conditions, moorv1alpha1.ConditionDrained)
	}); err != nil || !removed {
		return err
	}
	r.Recorder.Event(node, corev1.EventTypeNormal, moorv1alpha1.EventDrainEnded, fmt.Sprintf("the drain of DPU %s was taken back: pods may come, and replicas are made there again", node.Spec.DPUName))
	return nil
}

// write writes the condition with the resourceVersion that was read: what the DPU is drained
// for has not changed since, and others write conditions in the same list.
func (r *Reconciler) write(ctx context.Context, node *moorv1alpha1.DPUStorageNode, v verdict) error {
	_, err := kube.PatchStatusExact(ctx, r.Host.Client, node, func(n *moorv1alpha1.DPUStorageNode) {
		meta.SetStatusCondition(&n.Status.Conditions, metav1.Condition{
			Type: moorv1alpha1.ConditionDrained, Status: v.status, Reason: v.reason, Message: v.message,
			ObservedGeneration: n.Generation, LastTransitionTime: metav1.NewTime(r.Clock.Now()),
		})
	})
	return err
}
