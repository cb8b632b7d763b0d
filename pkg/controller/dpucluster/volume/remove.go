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
func (p *pass) remove(ctx context.Context) error {
	v := p.volume
	if !controllerutil.ContainsFinalizer(v, storagev1alpha1.FinalizerVolume) {
		return nil
	}
	for _, phase := range []func(context.Context) error{p.awaitDetached, p.removePVC, p.awaitPVs} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	if len(v.Spec.Request.MutableParameters)+len(v.Spec.Volume.MutableParameters) > 0 {
		if err := p.sweepClasses(ctx); err != nil {
			return err
		}
	}
	return kube.RemoveFinalizers(ctx, p.cluster.Client, v, storagev1alpha1.FinalizerVolume)
}

func (p *pass) awaitDetached(ctx context.Context) error {
	v := p.volume
	list := &storagev1alpha1.VolumeAttachmentList{}
	err := p.cluster.Client.List(ctx, list, client.InNamespace(v.Namespace), client.MatchingFields{index.VolumeAttachmentByVolume: v.Name})
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
func (p *pass) removePVC(ctx context.Context) error {
	v := p.volume
	pvc := &corev1.PersistentVolumeClaim{}
	found, err := kube.Find(ctx, p.cluster.Client, pvcKey(v), pvc)
	if err == nil && !found {
		found, err = kube.Find(ctx, p.cluster.Live, pvcKey(v), pvc)
	}
	if err != nil || !found || !ownedBy(pvc, v) {
		return err
	}
	if err := kube.Delete(ctx, p.cluster.Client, pvc); err != nil {
		return err
	}
	return kube.WaitFor("waiting for the vendor's PersistentVolumeClaim %s to go", pvc.Name)
}

// awaitPVs waits until the vendor has deleted what it made for the claim. A
// PersistentVolume that is to be retained is kept on purpose: it is not
// waited for, and told of, since nothing else names it once the Volume is gone.
func (p *pass) awaitPVs(ctx context.Context) error {
	list := &corev1.PersistentVolumeList{}
	if err := p.cluster.Client.List(ctx, list, client.MatchingFields{podvolume.PersistentVolumeByClaim: pvcKey(p.volume).String()}); err != nil {
		return fmt.Errorf("find the PersistentVolumes of claim %s: %w", pvcKey(p.volume), err)
	}
	var kept []string
	for i := range list.Items {
		pv := &list.Items[i]
		if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
			kept = append(kept, pv.Name)
			continue
		}
		message := fmt.Sprintf("waiting for the vendor to delete PersistentVolume %s", pv.Name)
		if pv.Status.Phase == corev1.VolumeFailed {
			message += ", which failed: " + pv.Status.Message
		}
		return kube.WaitFor("%s", message)
	}
	if len(kept) > 0 {
		slices.Sort(kept)
		p.recorder.Eventf(p.volume, corev1.EventTypeWarning, storagev1alpha1.EventVolumeRetained,
			"the Volume is deleted, and the vendor keeps its data, as the reclaimPolicy is Retain: delete PersistentVolume %s, and the data at the vendor, when it is not wanted any more", strings.Join(kept, ", "))
	}
	return nil
}
