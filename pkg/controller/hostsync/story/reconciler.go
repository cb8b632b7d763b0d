// Package story tells the failover of a volume where its users look: it repeats
// the events of a DPUVolume that tell it on the claim and on the pods that use
// it. A pod is told what happened in its own life; what came before is in the
// words of Promoted. A PersistentVolume that has not the name of its DPUVolume,
// which is one that csi-provisioner did not make, is not found.
package story

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/controller/hostsync"
)

// told are the reasons that users are told, and whether a pod is told, too.
var told = map[string]struct{ pods bool }{
	storagev1alpha1.EventFailoverDetected: {pods: true},
	storagev1alpha1.EventFailoverFencing:  {pods: true},
	storagev1alpha1.EventFailoverHeld:     {pods: true},
	storagev1alpha1.EventFailoverFenced:   {pods: true},
	storagev1alpha1.EventFailoverReleased: {}, // its pod has an event of its own
	storagev1alpha1.EventPromoted:         {pods: true},
	storagev1alpha1.EventAttached:         {pods: true},
}

// Reconciler repeats one event about a DPUVolume.
type Reconciler struct {
	// Host reads from a cache of the events about DPUVolumes, and writes.
	Host client.Client
	// Live reads the API server itself: claims and pods are not cached, as
	// this happens seldom.
	Live client.Reader
	// Driver is the name of the CSI driver.
	Driver string
}

// SetupWithManager watches the events about DPUVolumes.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	ours := predicate.NewPredicateFuncs(func(o client.Object) bool {
		e, ok := o.(*corev1.Event)
		return ok && concerns(e)
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("story").
		For(&corev1.Event{}, builder.WithPredicates(ours)).
		Complete(kube.Retrying(r))
}

func concerns(e *corev1.Event) bool {
	_, ok := told[e.Reason]
	return ok && e.InvolvedObject.Kind == "DPUVolume"
}

// Reconcile repeats the event on the claim that is bound to the volume, and on
// the pods that use it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	event := &corev1.Event{}
	found, err := kube.Find(ctx, r.Host, req.NamespacedName, event)
	if err != nil || !found || !concerns(event) {
		return ctrl.Result{}, err
	}
	claim, err := r.claimOf(ctx, event.InvolvedObject.Name)
	if err != nil || claim == nil {
		return ctrl.Result{}, err
	}
	words := fmt.Sprintf("volume %s: %s", event.InvolvedObject.Name, event.Message)
	listeners := []corev1.ObjectReference{*claim}
	if told[event.Reason].pods {
		pods, err := r.podsOf(ctx, claim, event.LastTimestamp)
		if err != nil {
			return ctrl.Result{}, err
		}
		listeners = append(listeners, pods...)
	}
	for _, about := range listeners {
		if err := hostsync.Retell(ctx, r.Host, event, about, words); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// claimOf is the claim bound to a volume; nil if there is none.
func (r *Reconciler) claimOf(ctx context.Context, volume string) (*corev1.ObjectReference, error) {
	pv := &corev1.PersistentVolume{}
	found, err := kube.Find(ctx, r.Live, client.ObjectKey{Name: volume}, pv)
	if err != nil || !found || pv.Spec.ClaimRef == nil {
		return nil, err
	}
	if podvolume.HandleOf(r.Driver, pv) != volume {
		return nil, nil
	}
	ref := pv.Spec.ClaimRef
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}, nil
}

// podsOf are the pods on a claim that were there by a time. The API server's
// own cache answers: what it lacks is younger than the event.
func (r *Reconciler) podsOf(ctx context.Context, claim *corev1.ObjectReference, by metav1.Time) ([]corev1.ObjectReference, error) {
	var list corev1.PodList
	err := r.Live.List(ctx, &list, client.InNamespace(claim.Namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
	if err != nil {
		return nil, fmt.Errorf("list the pods on claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	var out []corev1.ObjectReference
	for i := range list.Items {
		p := &list.Items[i]
		if slices.Contains(podvolume.Claims(p), claim.Namespace+"/"+claim.Name) && !podvolume.Finished(p) && !p.CreationTimestamp.After(by.Time) {
			out = append(out, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID})
		}
	}
	return out, nil
}
