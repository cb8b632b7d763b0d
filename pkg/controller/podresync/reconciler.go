package podresync

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
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// patience says how long after the first look a volume may stay unasked for until
// the kubelet is woken, the first time and the following ones. One that is awake
// asks within half a second; one that does not wake the third time is ill in
// another way.
var patience = []time.Duration{1500 * time.Millisecond, 4 * time.Second, 10 * time.Second}

// resizePatience is the same of a volume that has grown, of which no kubelet learns by
// itself.
var resizePatience = []time.Duration{0, 4 * time.Second, 10 * time.Second}

// Reconciler watches one pod at a time.
type Reconciler struct {
	// Host has a cache of pods, claims, PersistentVolumes, attachments and the
	// kubelets' BackOffEvents, with the indexes of index.Host.
	Host kube.Cluster
	// NodesAsk: hosts ask for their volumes by themselves.
	NodesAsk bool
	// Serves reports whether the volumes of a host's pods are seen to here: there may be
	// several DPU clusters. Nil: those of all are.
	Serves func(ctx context.Context, host string) (bool, error)
	// Namespace is that of the attachments.
	Namespace string
	// Drivers are the names of the CSI drivers.
	Drivers  []string
	Clock    clock.PassiveClock
	Recorder record.EventRecorder

	// waits are the pods that are being waited for. Lost with the process, it
	// costs a delay. One worker alone uses it.
	waits map[types.NamespacedName]wait
}

// cause is why a kubelet has to look at a pod; none if it is empty.
type cause struct {
	// message says what it has not done.
	message  string
	patience []time.Duration
}

// wait is how long a kubelet has been waited for.
type wait struct {
	pod   types.UID
	why   string
	since time.Time
	// resyncs counts how often.
	resyncs int
}

// Reconcile wakes the pod's kubelet if it has not seen to one of the pod's volumes
// in time.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	found, err := kube.Find(ctx, r.Host.Client, req.NamespacedName, pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	if found && r.Serves != nil {
		if found, err = r.Serves(ctx, pod.Spec.NodeName); err != nil {
			return ctrl.Result{}, err
		}
	}
	var why cause
	if found {
		if why, err = r.cause(ctx, pod); err != nil {
			return ctrl.Result{}, err
		}
	}
	if why.message == "" {
		delete(r.waits, req.NamespacedName)
		return ctrl.Result{}, nil
	}
	return r.wait(ctx, req.NamespacedName, pod, why)
}

// phase is what a kubelet has a pod for: Pending to start it, Running to run it,
// or "".
func phase(p *corev1.Pod) corev1.PodPhase {
	if p.Spec.NodeName == "" || !p.DeletionTimestamp.IsZero() || podvolume.Finished(p) {
		return ""
	}
	return p.Status.Phase
}

// cause finds out what the pod's kubelet has not done.
func (r *Reconciler) cause(ctx context.Context, pod *corev1.Pod) (cause, error) {
	switch phase(pod) {
	case corev1.PodPending:
		find, message := r.backedOffVolume, "has left the pod alone with"
		if r.NodesAsk {
			find, message = r.unattachedVolume, "has not asked for"
		}
		volume, err := find(ctx, pod)
		if volume == "" || err != nil {
			return cause{}, err
		}
		return cause{fmt.Sprintf("%s %s volume %s", pod.Spec.NodeName, message, volume), patience}, nil
	case corev1.PodRunning:
		volume, size, err := r.grownVolume(ctx, pod)
		if volume == "" || err != nil {
			return cause{}, err
		}
		return cause{fmt.Sprintf("%s has not seen that volume %s has grown to %s", pod.Spec.NodeName, volume, size), resizePatience}, nil
	}
	return cause{}, nil
}

// wait waits on, or wakes.
func (r *Reconciler) wait(ctx context.Context, name types.NamespacedName, pod *corev1.Pod, why cause) (ctrl.Result, error) {
	w := r.waits[name]
	if w.pod != pod.UID || w.why != why.message {
		w = wait{pod: pod.UID, why: why.message, since: r.Clock.Now()}
	}
	waited := r.Clock.Since(w.since)
	if w.resyncs < len(why.patience) && waited >= why.patience[w.resyncs] {
		if err := r.resync(ctx, pod, why.message, waited); err != nil {
			return ctrl.Result{}, err
		}
		w.resyncs++
	}
	if r.waits == nil {
		r.waits = map[types.NamespacedName]wait{}
	}
	r.waits[name] = w
	if w.resyncs == len(why.patience) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: max(why.patience[w.resyncs]-waited, time.Millisecond)}, nil
}

// unattachedVolume is a volume of ours that is bound for the pod and that its node has
// not asked for; "" if there is none.
func (r *Reconciler) unattachedVolume(ctx context.Context, pod *corev1.Pod) (string, error) {
	return r.first(ctx, pod, func(volume string) (bool, error) {
		attached, err := r.attached(ctx, pod.Spec.NodeName, volume)
		return !attached, err
	})
}

// first is the first volume of ours that is bound for the pod and is wanted; "" if
// there is none.
func (r *Reconciler) first(ctx context.Context, pod *corev1.Pod, wanted func(volume string) (bool, error)) (string, error) {
	for _, claim := range podvolume.Claims(pod) {
		volumes, err := r.users().BoundHandles(ctx, claim)
		if err != nil {
			return "", err
		}
		for _, volume := range volumes {
			if found, err := wanted(volume); err != nil || found {
				return volume, err
			}
		}
	}
	return "", nil
}

func (r *Reconciler) users() podvolume.Users {
	return podvolume.Users{Host: r.Host, Drivers: r.Drivers}
}

// attached reports whether the node asks for the volume. What is being given back
// does not count, nor does a replica.
func (r *Reconciler) attached(ctx context.Context, node, volume string) (bool, error) {
	var list storagev1alpha1.DPUVolumeAttachmentList
	err := r.Host.Client.List(ctx, &list, client.InNamespace(r.Namespace), client.MatchingFields{index.DPUVolumeAttachmentByNode: node}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, fmt.Errorf("find the attachment of volume %s to %s: %w", volume, node, err)
	}
	return slices.ContainsFunc(list.Items, func(a storagev1alpha1.DPUVolumeAttachment) bool {
		return a.Spec.DPUVolumeName == volume && a.DeletionTimestamp.IsZero() && a.Spec.Role != storagev1alpha1.RoleReplica
	}), nil
}

func (r *Reconciler) resync(ctx context.Context, pod *corev1.Pod, message string, waited time.Duration) error {
	changed := pod.DeepCopy()
	changed.Annotations = map[string]string{storagev1alpha1.AnnotationKubeletWoken: r.Clock.Now().UTC().Format(time.RFC3339Nano)}
	// The cache keeps no annotations; the patch is of this one alone.
	base := pod.DeepCopy()
	base.Annotations = nil
	if err := kube.IgnoreNotFound(r.Host.Client.Patch(ctx, changed, client.MergeFrom(base))); err != nil {
		return fmt.Errorf("wake the kubelet of %s for pod %s/%s: %w", pod.Spec.NodeName, pod.Namespace, pod.Name, err)
	}
	r.Recorder.Eventf(pod, corev1.EventTypeNormal, storagev1alpha1.EventKubeletWoken,
		"%s%s: its kubelet is made to look at the pod again", message, lasting(waited))
	return nil
}

// lasting says how long something has lasted; nothing of what has just begun.
func lasting(d time.Duration) string {
	if d = d.Round(100 * time.Millisecond); d > 0 {
		return " for " + d.String()
	}
	return ""
}
