package snapshot

import (
	"slices"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// isDefault marks the class of a driver that is taken where several are there,
// as it does for snapshot-controller.
const isDefault = "snapshot.storage.kubernetes.io/is-default-class"

// selectClass chooses the VolumeSnapshotClass of a driver: the only one, or the
// one that is marked as the default.
func selectClass(classes []snapshotv1.VolumeSnapshotClass, driver string) (string, error) {
	var all, defaults []string
	for i := range classes {
		if classes[i].Driver != driver {
			continue
		}
		all = append(all, classes[i].Name)
		if classes[i].Annotations[isDefault] == "true" {
			defaults = append(defaults, classes[i].Name)
		}
	}
	slices.Sort(all)
	switch {
	case len(defaults) == 1:
		return defaults[0], nil
	case len(all) == 1:
		return all[0], nil
	case len(all) == 0:
		return "", kube.WaitFor("the vendor cannot make snapshots, or nobody said how: the DPU cluster has no VolumeSnapshotClass of driver %s", driver)
	}
	return "", kube.WaitFor("driver %s has the VolumeSnapshotClasses %s: mark exactly one with the annotation %s: \"true\"",
		driver, strings.Join(all, ", "), isDefault)
}

// judge says what a VolumeSnapshot still lacks to be the snapshot that is asked
// for; nil once it holds the data.
func judge(s *moorv1alpha1.StorageSnapshot, made *snapshotv1.VolumeSnapshot) error {
	switch {
	case !metav1.IsControlledBy(made, s):
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
	if made.Status == nil || made.Status.Error == nil || made.Status.Error.Message == nil {
		return ""
	}
	return ": " + *made.Status.Error.Message
}
