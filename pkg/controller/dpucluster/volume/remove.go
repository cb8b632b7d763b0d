package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
)

// remove takes the volume away: its attachments have to go first, then its
// pvc, then the vendor's volume; the finalizer goes last. A Volume that
// never got a claim has nothing to wait for.
func (r *Reconciler) remove(ctx context.Context, v *storagev1alpha1.Volume) error {
	if !controllerutil.ContainsFinalizer(v, storagev1alpha1.FinalizerVolume) {
		return nil
	}
	for _, phase := range []func(context.Context, *storagev1alpha1.Volume) error{r.awaitDetached, r.removePVC, r.awaitPVs} {
		if err := phase(ctx, v); err != nil {
			return err
		}
	}
	if len(v.Spec.Request.MutableParameters)+len(v.Spec.Volume.MutableParameters) > 0 {
		if err := r.sweepClasses(ctx, v); err != nil {
			return err
		}
	}
	return kube.RemoveFinalizers(ctx, r.DPU.Client, v, storagev1alpha1.FinalizerVolume)
}

func (r *Reconciler) awaitDetached(ctx context.Context, v *storagev1alpha1.Volume) error {
	list := &storagev1alpha1.VolumeAttachmentList{}
	err := r.DPU.Client.List(ctx, list, client.InNamespace(v.Namespace), client.MatchingFields{index.VolumeAttachmentByVolume: v.Name})
	if err != nil {
		return fmt.Errorf("find the attachments of Volume %s: %w", v.Name, err)
	}
	if len(list.Items) == 0 {
		return nil
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	slices.Sort(names)
	return kube.WaitFor("to be deleted once it is attached nowhere: waiting for VolumeAttachment %s", strings.Join(names, ", "))
}

// removePVC deletes the claim, if it is this Volume's, and waits until it is
// gone. That it is gone is asked of the API server: the cache may not yet show
// a claim made a moment ago.
func (r *Reconciler) removePVC(ctx context.Context, v *storagev1alpha1.Volume) error {
	pvc := &corev1.PersistentVolumeClaim{}
	found, err := kube.Find(ctx, r.DPU.Client, pvcKey(v), pvc)
	if err == nil && !found {
		found, err = kube.Find(ctx, r.DPU.Live, pvcKey(v), pvc)
	}
	if err != nil || !found || !ownedBy(pvc, v) {
		return err
	}
	if err := kube.Delete(ctx, r.DPU.Client, pvc); err != nil {
		return err
	}
	return kube.WaitFor("waiting for the vendor's PersistentVolumeClaim %s to go", pvc.Name)
}

// awaitPVs waits until the vendor has deleted what it made for the claim. A
// PersistentVolume that is to be retained is kept on purpose: it is not
// waited for.
func (r *Reconciler) awaitPVs(ctx context.Context, v *storagev1alpha1.Volume) error {
	list := &corev1.PersistentVolumeList{}
	if err := r.DPU.Client.List(ctx, list, client.MatchingFields{podvolume.PersistentVolumeByClaim: pvcKey(v).String()}); err != nil {
		return fmt.Errorf("find the PersistentVolumes of claim %s: %w", pvcKey(v), err)
	}
	for i := range list.Items {
		pv := &list.Items[i]
		if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
			continue
		}
		message := fmt.Sprintf("waiting for the vendor to delete PersistentVolume %s", pv.Name)
		if pv.Status.Phase == corev1.VolumeFailed {
			message += ", which failed: " + pv.Status.Message
		}
		return kube.WaitFor("%s", message)
	}
	return nil
}
