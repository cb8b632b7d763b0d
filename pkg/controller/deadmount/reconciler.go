package deadmount

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// Reconciler looks at the dead mounts of one host.
type Reconciler struct {
	// Host has a cache of DPUStorageNodes, DPUVolumes, PersistentVolumes and pods, with the
	// indexes of index.Host.
	Host kube.Cluster
	// Namespace is that of the DPUVolumes.
	Namespace string
	// Drivers are the names of the CSI drivers.
	Drivers  []string
	Clock    clock.PassiveClock
	Recorder record.EventRecorder

	// told is what was said last of each host and volume. Lost with the process, it is said
	// once more. One worker alone uses it.
	told map[[2]string]string
}

// SetupWithManager watches what hosts tell of dead mounts, what is to be done about them, and
// pods, which a cache may show later than the host has told of them.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("deadmount").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		For(&moorv1alpha1.DPUStorageNode{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return len(deadMounts(e.Object)) > 0 },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return !equality.Semantic.DeepEqual(deadMounts(e.ObjectOld), deadMounts(e.ObjectNew)) || hostAlive(e.ObjectOld) != hostAlive(e.ObjectNew)
			},
		})).
		Watches(&storagev1alpha1.DPUVolume{}, handler.EnqueueRequestsFromMapFunc(r.ofVolume), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(e event.UpdateEvent) bool {
				before, now := e.ObjectOld.(*storagev1alpha1.DPUVolume), e.ObjectNew.(*storagev1alpha1.DPUVolume)
				return before.Spec.OnDeadMount() != now.Spec.OnDeadMount()
			},
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.ofPod), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				return e.ObjectOld.(*corev1.Pod).Spec.NodeName != e.ObjectNew.(*corev1.Pod).Spec.NodeName
			},
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Complete(kube.Retrying(r))
}

// ofVolume maps to the hosts to which the volume is attached.
func (r *Reconciler) ofVolume(ctx context.Context, o client.Object) []reconcile.Request {
	var list storagev1alpha1.DPUVolumeAttachmentList
	if err := r.Host.Client.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingFields{index.DPUVolumeAttachmentByVolume: o.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the attachments of a volume", "volume", o.GetName())
	}
	var out []reconcile.Request
	for i := range list.Items {
		out = append(out, kube.RequestFor("", list.Items[i].Spec.DPUNodeName))
	}
	return out
}

// ofPod maps to the pod's host, if that tells of a dead mount of it.
func (r *Reconciler) ofPod(ctx context.Context, o client.Object) []reconcile.Request {
	host, node := o.(*corev1.Pod).Spec.NodeName, &moorv1alpha1.DPUStorageNode{}
	if host == "" {
		return nil
	}
	found, err := kube.Find(ctx, r.Host.Client, client.ObjectKey{Name: host}, node, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "read the host of a pod", "pod", client.ObjectKeyFromObject(o))
	}
	if !found || !slices.ContainsFunc(deadMounts(node), func(d moorv1alpha1.DeadMount) bool { return slices.Contains(d.Pods, o.GetUID()) }) {
		return nil
	}
	return []reconcile.Request{kube.RequestFor("", host)}
}

func deadMounts(o client.Object) []moorv1alpha1.DeadMount {
	return o.(*moorv1alpha1.DPUStorageNode).Status.DeadMounts()
}

// hostAlive is false of a host that is known to be dead: what it said last is old, and its
// pods are the failover's.
func hostAlive(o client.Object) bool {
	return !meta.IsStatusConditionFalse(o.(*moorv1alpha1.DPUStorageNode).Status.Conditions, moorv1alpha1.ConditionHostAlive)
}

// Reconcile tells of the dead mounts of a host, and deletes the pods that are to have
// their volumes mounted anew.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	node := &moorv1alpha1.DPUStorageNode{}
	found, err := kube.Find(ctx, r.Host.Client, req.NamespacedName, node)
	if err != nil {
		return ctrl.Result{}, err
	}
	var dead []moorv1alpha1.DeadMount
	if found && hostAlive(node) {
		dead = deadMounts(node)
	}
	r.forget(req.Name, dead)
	if len(dead) == 0 {
		return ctrl.Result{}, nil
	}
	pods, err := r.users().AllPodsOnNode(ctx, node.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	var next time.Duration
	var failed error
	for _, d := range dead {
		again, err := r.cure(ctx, node.Name, d, pods)
		failed = errors.Join(failed, err)
		if again > 0 && (next == 0 || again < next) {
			next = again
		}
	}
	return ctrl.Result{RequeueAfter: next}, failed
}

// forget forgets what was said of a host's mounts that are dead no more.
func (r *Reconciler) forget(node string, dead []moorv1alpha1.DeadMount) {
	for key := range r.told {
		if key[0] == node && !slices.ContainsFunc(dead, func(d moorv1alpha1.DeadMount) bool { return d.Volume == key[1] }) {
			delete(r.told, key)
		}
	}
}

// cure sees to one volume, and returns when to look again.
func (r *Reconciler) cure(ctx context.Context, node string, d moorv1alpha1.DeadMount, pods []corev1.Pod) (time.Duration, error) {
	volume := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, r.Host.Client, client.ObjectKey{Namespace: r.Namespace, Name: d.Volume}, volume)
	if err != nil || !found {
		return 0, err
	}
	users, err := r.usersOf(ctx, d, pods)
	if err != nil || len(users) == 0 { // they go already
		return 0, err
	}
	returning := slices.DeleteFunc(slices.Clone(users), func(p *corev1.Pod) bool { return !podvolume.Returns(p) })
	what := decide(volume, d.DeviceReady, len(returning), r.Clock.Now())
	if what.restart == nil {
		r.tell(node, d, volume, users, what.words)
		return what.again, nil
	}
	// Written first: a crash in between then costs one time that did not happen, and never
	// one that is not counted.
	if _, err := kube.PatchStatusExact(ctx, r.Host.Client, volume, func(v *storagev1alpha1.DPUVolume) { v.Status.Restarts = what.restart }); err != nil {
		return 0, err
	}
	r.tell(node, d, volume, users, what.words)
	return 0, r.restart(ctx, d, returning)
}

// usersOf are those of the pods of a host that have a dead mount of the volume and stay, as
// the API server itself has them. That the host names a pod is not enough: it has to use the
// volume, too.
func (r *Reconciler) usersOf(ctx context.Context, d moorv1alpha1.DeadMount, pods []corev1.Pod) ([]*corev1.Pod, error) {
	var out []*corev1.Pod
	for i := range pods {
		p := &pods[i]
		if !slices.Contains(d.Pods, p.UID) || !p.DeletionTimestamp.IsZero() {
			continue
		}
		volumes, err := r.users().HandlesOf(ctx, p)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(volumes, d.Volume) {
			continue
		}
		live := &corev1.Pod{}
		found, err := kube.Find(ctx, r.Host.Live, client.ObjectKeyFromObject(p), live)
		if err != nil {
			return nil, err
		}
		if found && live.UID == p.UID && live.DeletionTimestamp.IsZero() {
			out = append(out, live)
		}
	}
	return out, nil
}

func (r *Reconciler) users() podvolume.Users {
	return podvolume.Users{Host: r.Host, Drivers: r.Drivers}
}

// tell says on the volume and on its pods what is wrong and what is done, once.
func (r *Reconciler) tell(node string, d moorv1alpha1.DeadMount, volume *storagev1alpha1.DPUVolume, users []*corev1.Pod, words string) {
	key := [2]string{node, d.Volume}
	said := fmt.Sprintf("%v %s %s", d.Pods, d.Message, words)
	if r.told[key] == said {
		return
	}
	if r.told == nil {
		r.told = map[[2]string]string{}
	}
	r.told[key] = said
	const message = "the mount on host %s is dead: %s: %s"
	r.Recorder.Eventf(volume, corev1.EventTypeWarning, storagev1alpha1.EventMountDead, message, node, d.Message, words)
	for _, p := range users {
		its := words
		if !podvolume.Returns(p) {
			its = bare
		}
		r.Recorder.Eventf(p, corev1.EventTypeWarning, storagev1alpha1.EventMountDead, "volume %s: "+message, d.Volume, node, d.Message, its)
	}
}

// restart deletes pods, in order: their kubelet is there to clean up.
func (r *Reconciler) restart(ctx context.Context, d moorv1alpha1.DeadMount, pods []*corev1.Pod) error {
	var failed error
	for _, p := range pods {
		if err := kube.Delete(ctx, r.Host.Client, p); err != nil {
			failed = errors.Join(failed, fmt.Errorf("delete pod %s/%s, whose mount of volume %s is dead: %w", p.Namespace, p.Name, d.Volume, err))
			continue
		}
		r.Recorder.Eventf(p, corev1.EventTypeWarning, storagev1alpha1.EventMountDeadReleased, "deleted, to have volume %s mounted anew: its mount was dead", d.Volume)
	}
	return failed
}
