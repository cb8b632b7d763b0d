package volume

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
)

// dpfLets passes the end of what DPF attached: a Volume may wait for it to be taken over.
var dpfLets = predicate.TypedFuncs[*storagev1alpha1.VolumeAttachment]{
	CreateFunc: func(event.TypedCreateEvent[*storagev1alpha1.VolumeAttachment]) bool { return false },
	UpdateFunc: func(event.TypedUpdateEvent[*storagev1alpha1.VolumeAttachment]) bool { return false },
	DeleteFunc: func(e event.TypedDeleteEvent[*storagev1alpha1.VolumeAttachment]) bool { return byDPF(e.Object) },
}

// byDPF reports whether DPF made the attachment: Moor marks each that it makes.
func byDPF(a *storagev1alpha1.VolumeAttachment) bool {
	return a.Labels[storagev1alpha1.LabelOwnerUID] == ""
}

// attachedOf maps an attachment to the DPUVolume of its Volume, which has the same name.
func (r *Reconciler) attachedOf(_ context.Context, a *storagev1alpha1.VolumeAttachment) []reconcile.Request {
	if a.Spec.Source.VolumeRef == nil {
		return nil
	}
	return []reconcile.Request{kube.RequestFor(r.Clusters.Namespace, a.Spec.Source.VolumeRef.Name)}
}

// adopt takes over a Volume that DPF made for this very DPUVolume, once nothing is attached that DPF
// made too: no writer claim says who may write there, so none may be granted beside it. Until the
// Volume is taken over there is no claim of it (hostcluster/attachment).
func (r *Reconciler) adopt(ctx context.Context, volume *storagev1alpha1.DPUVolume, mirror *storagev1alpha1.Volume) error {
	if !hostcluster.MadeByDPF(mirror, volume) {
		return kube.WaitFor("a Volume %s of an earlier DPUVolume of this name is still in DPU cluster %s; it has to go first",
			mirror.Name, r.Clusters.DPUClusterName)
	}
	var attachments storagev1alpha1.VolumeAttachmentList
	if err := r.Clusters.DPU.Live.List(ctx, &attachments, client.InNamespace(mirror.Namespace)); err != nil {
		return fmt.Errorf("see whether Volume %s is attached: %w", mirror.Name, err)
	}
	for i := range attachments.Items {
		a := &attachments.Items[i]
		if ref := a.Spec.Source.VolumeRef; ref != nil && ref.Name == mirror.Name && byDPF(a) {
			return kube.WaitFor("Volume %s in DPU cluster %s was made by DPF and is taken over when nothing is attached that DPF made: "+
				"end the pods that use it, and have DPF remove VolumeAttachment %s there (DPU %s)", mirror.Name, r.Clusters.DPUClusterName, a.Name, a.Spec.NodeName)
		}
	}
	want := mirrorOf(volume, r.Clusters)
	_, err := kube.PatchExact(ctx, r.Clusters.DPU.Client, mirror, func(m *storagev1alpha1.Volume) {
		metav1.SetMetaDataLabel(&m.ObjectMeta, storagev1alpha1.LabelOwnerUID, want.Labels[storagev1alpha1.LabelOwnerUID])
		m.Spec.StorageParameters = want.Spec.StorageParameters
	})
	if err != nil {
		return fmt.Errorf("take over Volume %s, which DPF made: %w", mirror.Name, err)
	}
	return nil
}
