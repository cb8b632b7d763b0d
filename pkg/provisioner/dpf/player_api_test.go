//go:build api

package dpf_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// snapshots does what the controllers behind DPUVolumeSnapshots do: each is
// taken at once, with the size of its volume.
func (p player) snapshots(ctx context.Context, volumes []storagev1alpha1.DPUVolume) error {
	sizes := map[string]resource.Quantity{}
	for i := range volumes {
		if state := volumes[i].Status.State; state != nil && state.VolumeInfo != nil {
			sizes[volumes[i].Name] = state.VolumeInfo.Capacity[corev1.ResourceStorage]
		}
	}
	var list moorv1alpha1.DPUVolumeSnapshotList
	if err := p.c.List(ctx, &list, client.InNamespace(p.namespace)); err != nil {
		return err
	}
	instants := map[string]metav1.Time{}
	for i := range list.Items {
		if s := &list.Items[i]; s.Spec.Group != nil && s.Status.Taken != nil {
			instants[s.Spec.Group.Name] = s.Status.Taken.Time
		}
	}
	for i := range list.Items {
		s, instant := &list.Items[i], metav1.Now()
		if s.Spec.Group != nil {
			if of, ok := instants[s.Spec.Group.Name]; ok {
				instant = of
			}
			instants[s.Spec.Group.Name] = instant
		}
		if err := p.snapshot(ctx, s, sizes[s.Spec.DPUVolumeName], instant); err != nil {
			return err
		}
	}
	return nil
}

func (p player) snapshot(ctx context.Context, s *moorv1alpha1.DPUVolumeSnapshot, size resource.Quantity, instant metav1.Time) error {
	if !s.DeletionTimestamp.IsZero() {
		return kube.RemoveFinalizers(ctx, p.c, s, moorv1alpha1.FinalizerDPUVolumeSnapshot)
	}
	if _, err := kube.Patch(ctx, p.c, s, func(s *moorv1alpha1.DPUVolumeSnapshot) {
		controllerutil.AddFinalizer(s, moorv1alpha1.FinalizerDPUVolumeSnapshot)
	}); err != nil {
		return client.IgnoreNotFound(err)
	}
	if p.idle || s.Status.Taken != nil {
		return nil
	}
	_, err := kube.PatchStatus(ctx, p.c, s, func(s *moorv1alpha1.DPUVolumeSnapshot) {
		s.Status.ReadyToUse = true
		s.Status.Origin = &moorv1alpha1.SnapshotOrigin{
			StorageVendorName: "vendor", CSIDriverName: "driver", VolumeSnapshotClassName: "class", ClaimName: "claim", VolumeMode: corev1.PersistentVolumeBlock,
		}
		s.Status.Taken = &moorv1alpha1.Taken{Time: instant, RestoreSize: size}
	})
	return client.IgnoreNotFound(err)
}
