package wake

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// Annotation is what is changed of a pod to wake its kubelet: the time, by the
// clock of whoever did it. It means nothing else, and may be removed.
const Annotation = "storage.moor.dev/kubelet-woken"

// patience says how long after the first look nobody may ask for a volume until
// the kubelet is woken, the first time and the following ones. One that is awake
// asks within half a second; one that does not wake the third time is ill in
// another way.
var patience = []time.Duration{1500 * time.Millisecond, 4 * time.Second, 10 * time.Second}

// Reconciler watches one pod at a time.
type Reconciler struct {
	// Host reads pods, PersistentVolumes and attachments from a cache with the
	// indexes of Index, and writes.
	Host client.Client
	// Namespace is that of the attachments.
	Namespace string
	// Driver is the name of the CSI driver.
	Driver   string
	Clock    clock.PassiveClock
	Recorder record.EventRecorder

	// waits are the pods that are being waited for. Lost with the process, it
	// costs a delay. One worker alone uses it.
	waits map[types.NamespacedName]wait
}

// wait is how long a kubelet has been waited for.
type wait struct {
	pod   types.UID
	since time.Time
	// woken counts how often.
	woken int
}

// Reconcile wakes the pod's kubelet if one of the pod's volumes is not asked for
// in time.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	found, err := kube.Find(ctx, r.Host, req.NamespacedName, pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	volume := ""
	if found && starting(pod) {
		if volume, err = r.unasked(ctx, pod); err != nil {
			return ctrl.Result{}, err
		}
	}
	if volume == "" {
		delete(r.waits, req.NamespacedName)
		return ctrl.Result{}, nil
	}
	return r.wait(ctx, req.NamespacedName, pod, volume)
}

// starting reports whether a kubelet has the pod and does not run it yet.
func starting(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" && p.Status.Phase == corev1.PodPending && p.DeletionTimestamp.IsZero()
}

// wait waits on, or wakes.
func (r *Reconciler) wait(ctx context.Context, name types.NamespacedName, pod *corev1.Pod, volume string) (ctrl.Result, error) {
	w := r.waits[name]
	if w.pod != pod.UID {
		w = wait{pod: pod.UID, since: r.Clock.Now()}
	}
	waited := r.Clock.Since(w.since)
	if w.woken < len(patience) && waited >= patience[w.woken] {
		if err := r.wake(ctx, pod, volume, waited); err != nil {
			return ctrl.Result{}, err
		}
		w.woken++
	}
	if r.waits == nil {
		r.waits = map[types.NamespacedName]wait{}
	}
	r.waits[name] = w
	if w.woken == len(patience) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(patience[w.woken]-waited, time.Millisecond)}, nil
}

// unasked is a volume of ours that is bound for the pod and that its node has
// not asked for; "" if there is none.
func (r *Reconciler) unasked(ctx context.Context, pod *corev1.Pod) (string, error) {
	for _, claim := range podvolume.Claims(pod) {
		var bound corev1.PersistentVolumeList
		if err := r.Host.List(ctx, &bound, client.MatchingFields{indexBound: claim}); err != nil {
			return "", fmt.Errorf("find the PersistentVolume of claim %s: %w", claim, err)
		}
		for i := range bound.Items {
			volume := podvolume.HandleOf(r.Driver, &bound.Items[i])
			if volume == "" || bound.Items[i].Status.Phase != corev1.VolumeBound {
				continue
			}
			if asked, err := r.asked(ctx, pod.Spec.NodeName, volume); err != nil || !asked {
				return volume, err
			}
		}
	}
	return "", nil
}

// asked reports whether the node asks for the volume. What is being given back
// does not count, nor does a replica.
func (r *Reconciler) asked(ctx context.Context, node, volume string) (bool, error) {
	var list storagev1alpha1.DPUVolumeAttachmentList
	err := r.Host.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingFields{indexPlace: place(node, volume)})
	if err != nil {
		return false, fmt.Errorf("find the attachment of volume %s to %s: %w", volume, node, err)
	}
	return slices.ContainsFunc(list.Items, func(a storagev1alpha1.DPUVolumeAttachment) bool {
		return a.DeletionTimestamp.IsZero() && a.Spec.Role != storagev1alpha1.RoleReplica
	}), nil
}

func (r *Reconciler) wake(ctx context.Context, pod *corev1.Pod, volume string, waited time.Duration) error {
	changed := pod.DeepCopy()
	changed.Annotations = map[string]string{Annotation: r.Clock.Now().UTC().Format(time.RFC3339Nano)}
	// The cache keeps no annotations; the patch is of this one alone.
	base := pod.DeepCopy()
	base.Annotations = nil
	if err := client.IgnoreNotFound(r.Host.Patch(ctx, changed, client.MergeFrom(base))); err != nil {
		return fmt.Errorf("wake the kubelet of %s for pod %s/%s: %w", pod.Spec.NodeName, pod.Namespace, pod.Name, err)
	}
	r.Recorder.Eventf(pod, corev1.EventTypeNormal, storagev1alpha1.EventKubeletWoken,
		"%s has not asked for volume %s for %s: its kubelet is made to look at the pod again", pod.Spec.NodeName, volume, waited.Round(100*time.Millisecond))
	return nil
}
