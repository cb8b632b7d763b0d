package workload

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/test/kit"
)

// Replicated waits until every volume has a primary and a replica that only
// lacks its namespace, and nothing else.
func (w *Workload) Replicated(ctx context.Context) error {
	return kit.Until(ctx, "every volume has a primary and a replica", func(ctx context.Context) (bool, error) {
		primaries, replicas, others, err := w.copies(ctx)
		return primaries == len(w.volumes) && replicas == len(w.volumes) && others == 0, err
	})
}

// Alone waits until every volume has its primary and no other attachment.
func (w *Workload) Alone(ctx context.Context) error {
	return kit.Until(ctx, "every volume is attached once", func(ctx context.Context) (bool, error) {
		primaries, replicas, others, err := w.copies(ctx)
		return primaries == len(w.volumes) && replicas+others == 0, err
	})
}

// copies counts the attachments of the volumes: primaries and replicas that
// are ready, and others.
func (w *Workload) copies(ctx context.Context) (primaries, replicas, others int, err error) {
	var list storagev1alpha1.DPUVolumeAttachmentList
	if err := w.o.Clients.Host.List(ctx, &list, client.InNamespace(kit.Namespace)); err != nil {
		return 0, 0, 0, fmt.Errorf("list the attachments: %w", err)
	}
	ours := map[string]bool{}
	for _, v := range w.volumes {
		ours[v.Name] = true
	}
	for i := range list.Items {
		a := &list.Items[i]
		shown := a.Status.DPUAttached != nil && *a.Status.DPUAttached
		switch {
		case !ours[a.Spec.DPUVolumeName]:
		case !a.DeletionTimestamp.IsZero():
			others++
		case a.Spec.Role == storagev1alpha1.RoleReplica && meta.IsStatusConditionTrue(a.Status.Conditions, storagev1alpha1.ConditionPreEmulated):
			replicas++
		case a.Spec.Role != storagev1alpha1.RoleReplica && shown:
			primaries++
		default:
			others++
		}
	}
	return primaries, replicas, others, nil
}
