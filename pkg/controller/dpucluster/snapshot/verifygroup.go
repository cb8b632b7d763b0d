package snapshot

import (
	"fmt"
	"slices"

	groupsnapshotv1beta2 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1beta2"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// refusal says why a group whose VolumeGroupSnapshot does not exist may not be asked
// for; "" if it may.
func refusal(group *moorv1alpha1.SnapshotGroup, siblings []moorv1alpha1.StorageSnapshot) string {
	for i := range siblings {
		o := &siblings[i]
		switch {
		case o.Spec.Taken != nil:
			return fmt.Sprintf("the vendor's VolumeGroupSnapshot %s is gone, and perhaps the data of all its snapshots with it: restore it, or delete them", group.Name)
		case !o.DeletionTimestamp.IsZero():
			return fmt.Sprintf("StorageSnapshot %s of the same group is being deleted: delete this one too", o.Name)
		case !sameVolumes(o.Spec.Group, group):
			return fmt.Sprintf("StorageSnapshot %s says that group %s has other volumes: delete the one that is wrong", o.Name, group.Name)
		}
	}
	return ""
}

func sameVolumes(a, b *moorv1alpha1.SnapshotGroup) bool {
	return slices.Equal(slices.Sorted(slices.Values(a.VolumeNames)), slices.Sorted(slices.Values(b.VolumeNames)))
}

// isGroupOf reports whether a VolumeGroupSnapshot is the one of the group of s: it
// looks for the mark of that group, and for nothing else.
func isGroupOf(s *moorv1alpha1.StorageSnapshot, group *groupsnapshotv1beta2.VolumeGroupSnapshot) bool {
	selector := group.Spec.Source.Selector
	if selector == nil || len(selector.MatchLabels) != 1 {
		return false
	}
	_, marked := selector.MatchLabels[labelOf(s)]
	return marked
}

// verifyGroup returns why a VolumeGroupSnapshot cannot be used; nil if it can.
func verifyGroup(s *moorv1alpha1.StorageSnapshot, group *groupsnapshotv1beta2.VolumeGroupSnapshot) error {
	switch {
	case !isGroupOf(s, group):
		return kube.WaitFor("VolumeGroupSnapshot %s exists already and does not belong to this group: delete it, or choose another name for the group", group.Name)
	case !group.DeletionTimestamp.IsZero():
		return kube.WaitFor("the vendor's VolumeGroupSnapshot %s is being deleted", group.Name)
	}
	return nil
}

// withoutMember says what a snapshot of which there is no VolumeSnapshot waits
// for.
func withoutMember(s *moorv1alpha1.StorageSnapshot, group *groupsnapshotv1beta2.VolumeGroupSnapshot) error {
	switch {
	case s.Spec.Taken != nil:
		return kube.WaitFor("the VolumeSnapshot of claim %s in the vendor's group %s is gone, and perhaps the data with it: delete the snapshots of the group",
			s.Spec.Origin.ClaimName, group.Name)
	case group.Status != nil && ptr.Deref(group.Status.ReadyToUse, false):
		return kube.WaitSince(group.CreationTimestamp.Time, "the vendor's group %s is ready, and has no VolumeSnapshot of claim %s: delete the snapshots of the group",
			group.Name, s.Spec.Origin.ClaimName)
	}
	return kube.WaitSince(group.CreationTimestamp.Time, "waiting for the vendor's VolumeGroupSnapshot %s%s", group.Name, errorOfGroup(group))
}

// errorOfGroup is what went wrong with a group last, to be appended to a message.
func errorOfGroup(group *groupsnapshotv1beta2.VolumeGroupSnapshot) string {
	if group.Status == nil {
		return ""
	}
	return messageOf(group.Status.Error)
}

// memberOf is the VolumeSnapshot of a claim in a group; nil if there is none.
func memberOf(all []snapshotv1.VolumeSnapshot, group *groupsnapshotv1beta2.VolumeGroupSnapshot, claim string) *snapshotv1.VolumeSnapshot {
	for i := range all {
		o := &all[i]
		owned := slices.ContainsFunc(o.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == group.UID })
		if owned && ptr.Deref(o.Spec.Source.PersistentVolumeClaimName, "") == claim {
			return o
		}
	}
	return nil
}

// partOf reports whether a VolumeSnapshot was made with the group of that name.
func partOf(made *snapshotv1.VolumeSnapshot, group string) bool {
	return groupNameOf(made) == group
}

// groupNameOf is the name of the VolumeGroupSnapshot that a VolumeSnapshot was
// made with; "" if alone.
func groupNameOf(made *snapshotv1.VolumeSnapshot) string {
	for _, ref := range made.OwnerReferences {
		if ref.Kind == "VolumeGroupSnapshot" {
			return ref.Name
		}
	}
	return ""
}

// stillWanted is the name of one that is not being deleted; "" if there is none.
func stillWanted(siblings []moorv1alpha1.StorageSnapshot) string {
	for i := range siblings {
		if siblings[i].DeletionTimestamp.IsZero() {
			return siblings[i].Name
		}
	}
	return ""
}
