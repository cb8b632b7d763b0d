package events

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// mirrored are the reasons that are repeated, and whether pods get them too.
var mirrored = map[string]struct{ pods bool }{
	storagev1alpha1.EventFailoverDetected: {pods: true},
	storagev1alpha1.EventFailoverFencing:  {pods: true},
	storagev1alpha1.EventFailoverHeld:     {pods: true},
	storagev1alpha1.EventFailoverFenced:   {pods: true},
	storagev1alpha1.EventFailoverReleased: {}, // its pod has an event of its own
	storagev1alpha1.EventPromoted:         {pods: true},
	storagev1alpha1.EventAttached:         {pods: true},
	storagev1alpha1.EventPathLost:         {pods: true},
	storagev1alpha1.EventPathFound:        {pods: true},
	storagev1alpha1.EventMountDead:        {}, // and of its pod
}

// delay keeps the copies out of the way of the failover itself: its first second
// is the API server's busiest. A pod that is gone by then needs no event.
const delay = time.Second

// Each event is up to four writes. Those of a few volumes are repeated at once, and those of
// a host with many one after the other, but within a minute: else a third of all that is
// written while their pods wait are words about it.
const (
	perSecond = 2
	burst     = 12
	atMost    = time.Minute
)

// FailoverReconciler repeats the events of a DPUVolume that report its failover on
// the PersistentVolumeClaim and on the pods that use it. A pod gets the events of
// its own lifetime; the message of Promoted sums up what came before. A
// PersistentVolume whose name is not that of its DPUVolume, which csi-provisioner
// did not make, is not found.
type FailoverReconciler struct {
	// Clusters.Host has a cache of the events about DPUVolumes, of PersistentVolumes and
	// of pods, with the indexes of index.Host.
	Clusters hostcluster.Clusters
	// Drivers are the names of the CSI drivers.
	Drivers []string
}

// SetupWithManager watches the events about DPUVolumes.
func (r *FailoverReconciler) SetupWithManager(mgr ctrl.Manager) error {
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool {
		e, ok := o.(*corev1.Event)
		return ok && concerns(e) && !done(e)
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("failoverevents").
		Watches(&corev1.Event{}, later(), builder.WithPredicates(ours)).
		Complete(kube.Retrying(r))
}

// later enqueues events when the delay is over and it is their turn.
func later() handler.EventHandler {
	turns := rate.NewLimiter(perSecond, burst)
	turn := func() time.Duration {
		r := turns.Reserve()
		wait := r.Delay()
		if wait > atMost {
			r.Cancel() // so that the next ones do not wait for it
			return atMost
		}
		return wait
	}
	enqueue := func(o client.Object, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		queue.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}, delay+turn())
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(e.Object, queue)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(e.ObjectNew, queue)
		},
	}
}

// done reports whether the event was repeated as it is now. It is kept on the event:
// the copies are in no cache, and a new leader sees all events of the last hour.
func done(e *corev1.Event) bool {
	return e.Annotations[storagev1alpha1.AnnotationMirrored] == strconv.Itoa(int(e.Count))
}

// keep notes that the event was repeated as it was read.
func (r *FailoverReconciler) keep(ctx context.Context, e *corev1.Event) error {
	_, err := kube.Patch(ctx, r.Clusters.Host.Client, e, func(e *corev1.Event) {
		metav1.SetMetaDataAnnotation(&e.ObjectMeta, storagev1alpha1.AnnotationMirrored, strconv.Itoa(int(e.Count)))
	})
	return kube.IgnoreNotFound(err)
}

func concerns(e *corev1.Event) bool {
	_, ok := mirrored[e.Reason]
	return ok && e.InvolvedObject.Kind == "DPUVolume"
}

// Reconcile repeats the event on the claim that is bound to the volume, and on
// the pods that use it.
func (r *FailoverReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	e := &corev1.Event{}
	found, err := kube.Find(ctx, r.Clusters.Host.Client, req.NamespacedName, e)
	if err != nil || !found || !concerns(e) || done(e) {
		return ctrl.Result{}, err
	}
	whose, err := r.Clusters.OfVolume(ctx, "", client.ObjectKey{Namespace: e.InvolvedObject.Namespace, Name: e.InvolvedObject.Name})
	if err != nil || whose == hostcluster.Theirs {
		return ctrl.Result{}, err
	}
	claim, err := r.claimOf(ctx, e.InvolvedObject.Name)
	if err != nil || claim == nil {
		return ctrl.Result{}, err
	}
	message := fmt.Sprintf("volume %s: %s", e.InvolvedObject.Name, e.Message)
	objects := []corev1.ObjectReference{*claim}
	if mirrored[e.Reason].pods {
		pods, err := r.podsOf(ctx, claim, e.LastTimestamp)
		if err != nil {
			return ctrl.Result{}, err
		}
		objects = append(objects, pods...)
	}
	for _, about := range objects {
		if err := mirror(ctx, r.Clusters.Host.Client, copyOf(e, about, message)); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, r.keep(ctx, e)
}

// claimOf is the claim bound to a volume; nil if there is none.
func (r *FailoverReconciler) claimOf(ctx context.Context, volume string) (*corev1.ObjectReference, error) {
	pv := &corev1.PersistentVolume{}
	found, err := kube.Find(ctx, r.Clusters.Host.Client, client.ObjectKey{Name: volume}, pv)
	if err != nil || !found || pv.Spec.ClaimRef == nil {
		return nil, err
	}
	if podvolume.HandleOf(pv, r.Drivers...) != volume {
		return nil, nil
	}
	ref := pv.Spec.ClaimRef
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}, nil
}

// podsOf are the pods on a claim that were there by a time.
func (r *FailoverReconciler) podsOf(ctx context.Context, claim *corev1.ObjectReference, by metav1.Time) ([]corev1.ObjectReference, error) {
	pods, err := podvolume.Users{Host: r.Clusters.Host, Drivers: r.Drivers}.Pods(ctx, claim.Namespace+"/"+claim.Name)
	if err != nil {
		return nil, err
	}
	var out []corev1.ObjectReference
	for i := range pods {
		if p := &pods[i]; !p.CreationTimestamp.After(by.Time) {
			out = append(out, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID})
		}
	}
	return out, nil
}
