package attacher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
)

// Finalizer is the finalizer of a driver's attacher: external-attacher's rule.
func Finalizer(driver string) string {
	return "external-attacher/" + strings.ReplaceAll(driver, "/", "-")
}

// Reconciler attaches and detaches the volumes of one CSI driver.
type Reconciler struct {
	// DPU is the cluster of the attachments, with the indexes of index.Attacher. Those
	// that are tried again are read live, since the cache may show a finalizer which is
	// gone, and so are Secrets.
	DPU kube.Cluster
	// Driver is the vendor's CSI controller, and DriverName its name.
	Driver     Driver
	DriverName string
	// Features are what the driver can do. One that cannot publish has every
	// attachment marked as attached, as external-attacher does.
	Features Features
	// Timeout bounds each call of the driver.
	Timeout time.Duration
	// DefaultFSType is the file system of a volume that names none.
	DefaultFSType string
	Clock         clock.PassiveClock
}

// Retry says how fast a failed attachment is tried again.
type Retry struct {
	// Start is the first pause, which doubles up to Max.
	Start, Max time.Duration
	// Workers is how many attachments are worked on at once.
	Workers int
}

// SetupWithManager watches SVVolumeAttachments, and the PersistentVolumes that
// they wait for; for a driver that fences by epochs also VolumeAttachments.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, retry Retry) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retry.Start, retry.Max)
	// Its own writes must not wake the reconciler, or a failing attachment
	// would be tried without a pause.
	changed := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	}}
	created := predicate.Funcs{
		UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("svvolumeattachment").
		For(&storagev1alpha1.SVVolumeAttachment{}, builder.WithPredicates(changed)).
		Watches(&corev1.PersistentVolume{}, handler.EnqueueRequestsFromMapFunc(r.waitingFor), builder.WithPredicates(created)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: retry.Workers, RateLimiter: limiter,
			// The name labels metrics only; attachers of two drivers may share it.
			SkipNameValidation: ptr.To(true),
		})
	if r.Features.Fence {
		b = b.Watches(&storagev1alpha1.VolumeAttachment{}, handler.EnqueueRequestsFromMapFunc(toFence))
	}
	return b.Complete(kube.Retrying(r))
}

// waitingFor returns the attachments of a PersistentVolume that just appeared. At
// the start that is every one there is, so each must cost no more than its own
// attachments.
func (r *Reconciler) waitingFor(ctx context.Context, pv client.Object) []reconcile.Request {
	var list storagev1alpha1.SVVolumeAttachmentList
	of := client.MatchingFields{index.SVVolumeAttachmentByPersistentVolume: pv.GetName()}
	if err := r.DPU.Client.List(ctx, &list, of, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the retry of each attachment finds it, later
	}
	return kube.Requests(list.Items)
}

func volumeOf(sv *storagev1alpha1.SVVolumeAttachment) string {
	if name := sv.Spec.Source.PersistentVolumeName; name != nil {
		return *name
	}
	return ""
}

// Reconcile brings one attachment a step nearer to what it asks for.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	sv := &storagev1alpha1.SVVolumeAttachment{}
	found, err := kube.Find(ctx, r.DPU.Client, req.NamespacedName, sv)
	if err != nil || !found {
		return ctrl.Result{}, err
	}
	if !r.holds(sv) {
		return ctrl.Result{}, r.carry(ctx, sv)
	}
	// What fails here holds up nothing else: the vendor's other word may come.
	fenced := r.fence(ctx, sv)
	return ctrl.Result{}, errors.Join(r.carry(ctx, sv), fenced)
}

// carry has the driver attach or detach, as the attachment asks.
func (r *Reconciler) carry(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment) error {
	if !sv.DeletionTimestamp.IsZero() {
		if !r.holds(sv) {
			return nil
		}
		return r.told(ctx, sv, r.detach(ctx, sv), detachError)
	}
	if sv.Status.Attached || (sv.Spec.Attacher != "" && sv.Spec.Attacher != r.DriverName) {
		return nil
	}
	pv, err := r.volume(ctx, sv)
	if err == nil && !r.ours(sv, pv) {
		return nil
	}
	if err == nil {
		err = r.attach(ctx, sv, pv)
	}
	return r.told(ctx, sv, err, attachError)
}

// holds reports whether the finalizer is there.
func (r *Reconciler) holds(sv *storagev1alpha1.SVVolumeAttachment) bool {
	return controllerutil.ContainsFinalizer(sv, Finalizer(r.DriverName))
}

// volume reads the PersistentVolume of an attachment.
func (r *Reconciler) volume(ctx context.Context, sv *storagev1alpha1.SVVolumeAttachment) (*corev1.PersistentVolume, error) {
	name := volumeOf(sv)
	if name == "" {
		return nil, kube.WaitFor("spec.source.persistentVolumeName is empty: inline volumes cannot be attached to a DPU")
	}
	pv := &corev1.PersistentVolume{}
	found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Name: name}, pv)
	if err != nil {
		return nil, err
	}
	if !found {
		if sv.Spec.Attacher == "" && !r.holds(sv) {
			// Perhaps another driver's; its watch wakes us if it appears.
			return pv, nil
		}
		return nil, kube.WaitFor("PersistentVolume %s does not exist", name)
	}
	return pv, nil
}

// ours reports whether the attachment is this driver's: the volume says so,
// since spec.attacher is usually empty.
func (r *Reconciler) ours(sv *storagev1alpha1.SVVolumeAttachment, pv *corev1.PersistentVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == r.DriverName &&
		(sv.Spec.Attacher == "" || sv.Spec.Attacher == r.DriverName)
}

// nodeID returns the driver's name for the node: the one in its CSINode, or
// else the node's own name.
func (r *Reconciler) nodeID(ctx context.Context, node string) (string, error) {
	n := &storagev1.CSINode{}
	if _, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Name: node}, n); err != nil {
		return "", err
	}
	for _, d := range n.Spec.Drivers {
		if d.Name == r.DriverName && d.NodeID != "" {
			return d.NodeID, nil
		}
	}
	return node, nil
}

// secrets reads the Secret that a driver wants with its calls; none if the
// volume names none.
func (r *Reconciler) secrets(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	secret := &corev1.Secret{}
	if err := r.DPU.Live.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, secret); err != nil {
		return nil, fmt.Errorf("read Secret %s/%s for the vendor's driver: %w", ref.Namespace, ref.Name, err)
	}
	out := make(map[string]string, len(secret.Data))
	for k, v := range secret.Data {
		out[k] = string(v)
	}
	return out, nil
}
