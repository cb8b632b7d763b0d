package snapshot

import (
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// The annotations that mark the class of a driver that is taken where several are
// there, as they do for snapshot-controller.
const (
	isDefault      = "snapshot.storage.kubernetes.io/is-default-class"
	isGroupDefault = "groupsnapshot.storage.kubernetes.io/is-default-class"
)

// candidate is a class of snapshots, or of groups of them.
type candidate struct {
	name, driver string
	isDefault    bool
}

func candidateOf(o client.Object, driver, mark string) candidate {
	return candidate{o.GetName(), driver, o.GetAnnotations()[mark] == "true"}
}

// selectClass chooses the class of a driver: the only one, or the one that is
// marked as the default.
func selectClass(kind, mark string, classes []candidate, driver string) (string, error) {
	var all, defaults []string
	for _, c := range classes {
		if c.driver != driver {
			continue
		}
		all = append(all, c.name)
		if c.isDefault {
			defaults = append(defaults, c.name)
		}
	}
	slices.Sort(all)
	switch {
	case len(defaults) == 1:
		return defaults[0], nil
	case len(all) == 1:
		return all[0], nil
	case len(all) == 0:
		return "", kube.WaitFor("the vendor cannot make snapshots, or nobody said how: the DPU cluster has no %s of driver %s", kind, driver)
	}
	return "", kube.WaitFor("driver %s has the %ses %s: mark exactly one with the annotation %s: \"true\"",
		driver, kind, strings.Join(all, ", "), mark)
}

// judge says what a VolumeSnapshot still lacks to be the snapshot that is asked
// for; nil once it holds the data. ours is false if it belongs to somebody else.
func judge(s *moorv1alpha1.StorageSnapshot, made *snapshotv1.VolumeSnapshot, ours bool) error {
	switch {
	case !ours:
		return kube.WaitFor("VolumeSnapshot %s exists already and does not belong to this snapshot: delete it, or choose another name for the snapshot", made.Name)
	case !made.DeletionTimestamp.IsZero():
		return kube.WaitFor("the vendor's VolumeSnapshot %s is being deleted", made.Name)
	case s.Spec.Taken != nil && made.Status == nil:
		return kube.WaitFor("the vendor's VolumeSnapshot %s holds nothing any more: delete the snapshot", made.Name)
	case made.Status == nil || made.Status.CreationTime == nil || made.Status.RestoreSize == nil:
		return kube.WaitSince(made.CreationTimestamp.Time, "waiting for the vendor's VolumeSnapshot %s%s", made.Name, saidBy(made))
	case s.Spec.Taken != nil && !made.Status.CreationTime.Equal(&s.Spec.Taken.Time):
		return kube.WaitFor("VolumeSnapshot %s holds the data of another instant, %s: it is not the snapshot that was taken; delete this one",
			made.Name, made.Status.CreationTime.UTC().Format("2006-01-02T15:04:05Z"))
	}
	return nil
}

// saidBy is what went wrong with a VolumeSnapshot last, to be appended.
func saidBy(made *snapshotv1.VolumeSnapshot) string {
	if made.Status == nil {
		return ""
	}
	return said(made.Status.Error)
}

func said(wrong *snapshotv1.VolumeSnapshotError) string {
	if wrong == nil || wrong.Message == nil {
		return ""
	}
	return ": " + *wrong.Message
}
