package snapshot

import (
	"context"
	"fmt"
	"slices"

	groupsnapshotv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

func labelOf(s *moorv1alpha1.StorageSnapshot) string {
	return kube.LabelKey(storagev1alpha1.LabelGroupPrefix, s.Spec.Group.Name)
}

// takeGroup asks the vendor for the whole group, once, when the first
// of its snapshots comes, and records what was made of this one's volume.
func (r *Reconciler) takeGroup(ctx context.Context, s *moorv1alpha1.StorageSnapshot) (*snapshotv1.VolumeSnapshot, error) {
	none := &snapshotv1.VolumeSnapshot{}
	group, found, err := r.group(ctx, r.DPU.Client, s)
	if err != nil {
		return none, err
	}
	if !found {
		if group, err = r.askGroup(ctx, s); err != nil {
			return none, err
		}
	}
	if err := verifyGroup(s, group); err != nil {
		return none, err
	}
	made, err := r.member(ctx, s, group)
	if err != nil {
		return none, err
	}
	if err := verify(s, made, true); err != nil {
		return made, err
	}
	return made, r.recordTaken(ctx, s, made)
}

// group is the VolumeGroupSnapshot by which the vendor is asked.
func (r *Reconciler) group(ctx context.Context, from client.Reader, s *moorv1alpha1.StorageSnapshot) (*groupsnapshotv1beta2.VolumeGroupSnapshot, bool, error) {
	group := &groupsnapshotv1beta2.VolumeGroupSnapshot{}
	found, err := kube.Find(ctx, from, types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.Group.Name}, group)
	return group, found, err
}

// askGroup marks the claims of all volumes of the group and makes the
// VolumeGroupSnapshot that finds them by the mark. A group of which anything was
// taken is never asked for again: it would be of another instant.
func (r *Reconciler) askGroup(ctx context.Context, s *moorv1alpha1.StorageSnapshot) (*groupsnapshotv1beta2.VolumeGroupSnapshot, error) {
	siblings, err := r.siblings(ctx, s)
	if err != nil {
		return nil, err
	}
	if message := refusal(s.Spec.Group, siblings); message != "" {
		return nil, kube.WaitFor("%s", message)
	}
	claims, err := r.claims(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, name := range claims {
		if err := r.mark(ctx, s, name, true); err != nil {
			return nil, err
		}
	}
	group := desiredGroup(s)
	_, err = kube.CreateLive(ctx, r.DPU.Client, r.DPU.Live, group)
	return group, err
}

// siblings are all snapshots of the group, s among them, as the API server has
// them.
func (r *Reconciler) siblings(ctx context.Context, s *moorv1alpha1.StorageSnapshot) ([]moorv1alpha1.StorageSnapshot, error) {
	list := &moorv1alpha1.StorageSnapshotList{}
	if err := r.DPU.Live.List(ctx, list, client.InNamespace(s.Namespace)); err != nil {
		return nil, fmt.Errorf("list the snapshots of group %s: %w", s.Spec.Group.Name, err)
	}
	return slices.DeleteFunc(list.Items, func(o moorv1alpha1.StorageSnapshot) bool {
		return o.Spec.Group == nil || o.Spec.Group.Name != s.Spec.Group.Name
	}), nil
}

// claims are the vendor's claims of the group's volumes, which have to be of the
// driver that the snapshot has recorded.
func (r *Reconciler) claims(ctx context.Context, s *moorv1alpha1.StorageSnapshot) ([]string, error) {
	var out []string
	for _, name := range s.Spec.Group.VolumeNames {
		v := &storagev1alpha1.Volume{}
		found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Namespace: s.Namespace, Name: name}, v)
		switch {
		case err != nil:
			return nil, err
		case !found || !v.DeletionTimestamp.IsZero():
			return nil, kube.WaitFor("Volume %s of the group is gone, and nothing was kept of it: delete the snapshots of the group", name)
		case v.Status.State != storagev1alpha1.VolumeAvailable || v.Spec.Volume.CSIReference.PVCRef == nil:
			return nil, kube.WaitFor("waiting for Volume %s of the group to become Available: %s", name, v.Status.Message)
		case v.Spec.Volume.CSIReference.CSIDriverName != s.Spec.Origin.CSIDriverName:
			return nil, kube.WaitFor("Volume %s is of driver %s, others of the group of %s: one driver has to keep them all at one instant; delete the snapshots of the group",
				name, v.Spec.Volume.CSIReference.CSIDriverName, s.Spec.Origin.CSIDriverName)
		}
		out = append(out, v.Spec.Volume.CSIReference.PVCRef.Name)
	}
	return out, nil
}

// mark puts the group's label on a claim, or takes it off one that may be gone.
func (r *Reconciler) mark(ctx context.Context, s *moorv1alpha1.StorageSnapshot, name string, on bool) error {
	claim := &corev1.PersistentVolumeClaim{}
	found, err := kube.Find(ctx, r.DPU.Client, types.NamespacedName{Namespace: s.Namespace, Name: name}, claim)
	switch {
	case err != nil:
		return err
	case !found && on:
		return kube.WaitFor("the vendor's PersistentVolumeClaim %s is gone: delete the snapshots of the group", name)
	case !found:
		return nil
	}
	_, err = kube.Patch(ctx, r.DPU.Client, claim, func(c *corev1.PersistentVolumeClaim) {
		if !on {
			delete(c.Labels, labelOf(s))
			return
		}
		if c.Labels == nil {
			c.Labels = map[string]string{}
		}
		c.Labels[labelOf(s)] = ""
	})
	return kube.IgnoreNotFound(err)
}

func desiredGroup(s *moorv1alpha1.StorageSnapshot) *groupsnapshotv1beta2.VolumeGroupSnapshot {
	return &groupsnapshotv1beta2.VolumeGroupSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Spec.Group.Name},
		Spec: groupsnapshotv1beta2.VolumeGroupSnapshotSpec{
			Source:                       groupsnapshotv1beta2.VolumeGroupSnapshotSource{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{labelOf(s): ""}}},
			VolumeGroupSnapshotClassName: &s.Spec.Origin.VolumeSnapshotClassName,
		},
	}
}

// member is the VolumeSnapshot that snapshot-controller has made of the claim of
// s in the group.
func (r *Reconciler) member(ctx context.Context, s *moorv1alpha1.StorageSnapshot, group *groupsnapshotv1beta2.VolumeGroupSnapshot) (*snapshotv1.VolumeSnapshot, error) {
	list := &snapshotv1.VolumeSnapshotList{}
	if err := r.DPU.Client.List(ctx, list, client.InNamespace(s.Namespace)); err != nil {
		return nil, fmt.Errorf("list the VolumeSnapshots of group %s: %w", group.Name, err)
	}
	made := memberOf(list.Items, group, s.Spec.Origin.ClaimName)
	if made != nil {
		return made, nil
	}
	return nil, withoutMember(s, group)
}

func (r *Reconciler) groupClass(ctx context.Context, driver string) (string, error) {
	list := &groupsnapshotv1beta2.VolumeGroupSnapshotClassList{}
	if err := r.DPU.Client.List(ctx, list); err != nil {
		return "", fmt.Errorf("find the VolumeGroupSnapshotClass of driver %s: %w", driver, err)
	}
	var classes []candidate
	for i := range list.Items {
		classes = append(classes, candidateOf(&list.Items[i], list.Items[i].Driver, isGroupDefault))
	}
	return selectClass("VolumeGroupSnapshotClass", isGroupDefault, classes, driver)
}

// removeGroup has the vendor's group deleted once none of its snapshots is
// wanted any more, waits until it is gone, and lets go.
func (r *Reconciler) removeGroup(ctx context.Context, s *moorv1alpha1.StorageSnapshot, installed bool) error {
	siblings, err := r.siblings(ctx, s)
	if err != nil {
		return err
	}
	if name := stillWanted(siblings); name != "" {
		return kube.WaitFor("StorageSnapshot %s of the same group is wanted still: the snapshots of a group go together; delete that one too", name)
	}
	if installed {
		if err := r.withdrawGroup(ctx, s); err != nil {
			return err
		}
	}
	if s.Spec.Origin != nil {
		if err := r.mark(ctx, s, s.Spec.Origin.ClaimName, false); err != nil {
			return err
		}
	}
	return kube.RemoveFinalizers(ctx, r.DPU.Client, s, moorv1alpha1.FinalizerStorageSnapshot)
}

// withdrawGroup is done when the API server itself has neither the
// VolumeGroupSnapshot nor what was made of the claim of s.
func (r *Reconciler) withdrawGroup(ctx context.Context, s *moorv1alpha1.StorageSnapshot) error {
	group, found, err := r.group(ctx, r.DPU.Client, s)
	if err == nil && !found {
		group, found, err = r.group(ctx, r.DPU.Live, s)
	}
	if err != nil {
		return err
	}
	if found && isGroupOf(s, group) {
		if err := kube.Delete(ctx, r.DPU.Client, group); err != nil {
			return err
		}
		return kube.WaitFor("waiting for the vendor's VolumeGroupSnapshot %s to go%s", group.Name, errorOfGroup(group))
	}
	made := &snapshotv1.VolumeSnapshot{}
	if s.Status.VolumeSnapshotName == "" {
		return nil
	}
	found, err = kube.Find(ctx, r.DPU.Live, types.NamespacedName{Namespace: s.Namespace, Name: s.Status.VolumeSnapshotName}, made)
	if err == nil && found && partOf(made, s.Spec.Group.Name) {
		err = kube.WaitFor("waiting for the vendor's VolumeSnapshot %s to go%s", made.Name, errorOf(made))
	}
	return err
}
