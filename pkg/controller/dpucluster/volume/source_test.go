package volume_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// copyOf is a volume v that begins as a copy, under a policy of both vendors.
func copyOf(from storagev1alpha1.CopySource) *storagev1alpha1.Volume {
	v := kubetest.Volume("v", "gold")
	v.Spec.Request.Source = &from
	return v
}

// kept is a StorageSnapshot s that vendor b has taken.
func kept(ready bool) *moorv1alpha1.StorageSnapshot {
	s := &moorv1alpha1.StorageSnapshot{ObjectMeta: kubetest.DPUObject("s")}
	s.Spec.VolumeName = "gone"
	s.Spec.Origin, s.Spec.Taken = &moorv1alpha1.SnapshotOrigin{StorageVendorName: "b", CSIDriverName: "b.csi"}, &moorv1alpha1.Taken{}
	s.Status.VolumeSnapshotName, s.Status.ReadyToUse = "s", ready
	return s
}

func TestACopyIsMadeByTheVendorOfItsSource(t *testing.T) {
	for name, c := range map[string]struct {
		from   storagev1alpha1.CopySource
		vendor string
		want   *corev1.TypedLocalObjectReference
	}{
		"of a volume": {
			storagev1alpha1.CopySource{VolumeName: "src"},
			"a",
			&corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "src-pvc"},
		},
		"of a snapshot": {
			storagev1alpha1.CopySource{SnapshotName: "s"},
			"b",
			&corev1.TypedLocalObjectReference{APIGroup: ptr.To(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: "s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFixture(t)
			m.available("src", corev1.PersistentVolumeReclaimDelete)
			m.Add(copyOf(c.from), kept(true))
			m.pass("v")
			pvc := &corev1.PersistentVolumeClaim{}
			m.Get(pvc, "v-pvc")
			if diff := cmp.Diff(c.want, pvc.Spec.DataSource); diff != "" {
				t.Errorf("source of the claim (-want +got):\n%s", diff)
			}
			if v := m.volume("v"); v.Spec.Volume.StorageVendorName != c.vendor || *pvc.Spec.StorageClassName != c.vendor+"-class" {
				t.Errorf("vendor %s, class %s", v.Spec.Volume.StorageVendorName, *pvc.Spec.StorageClassName)
			}
		})
	}
}

// No claim is made, and no vendor chosen, before the source can be copied: a
// pvc without its source would be an empty volume.
func TestACopyWaitsForItsSource(t *testing.T) {
	for name, c := range map[string]struct {
		from   storagev1alpha1.CopySource
		change func(*fixture)
		words  string
	}{
		"no such volume": {
			storagev1alpha1.CopySource{VolumeName: "none"},
			func(*fixture) {},
			"Volume none, of which it is to be a copy, is gone: delete this volume",
		},
		"a volume that is not made yet": {
			storagev1alpha1.CopySource{VolumeName: "src"},
			func(m *fixture) { m.Add(kubetest.Volume("src", "gold")) },
			"waiting for Volume src, of which it is to be a copy, to become Available",
		},
		"no such snapshot": {
			storagev1alpha1.CopySource{SnapshotName: "none"},
			func(*fixture) {},
			"StorageSnapshot none, of which it is to be made, is gone: delete this volume",
		},
		"a snapshot that is not ready": {
			storagev1alpha1.CopySource{SnapshotName: "s"},
			func(m *fixture) { m.Add(kept(false)) },
			"waiting for StorageSnapshot s, of which it is to be made, to become ready",
		},
		"a vendor that the policy does not name": {
			storagev1alpha1.CopySource{SnapshotName: "s"},
			func(m *fixture) {
				m.Add(kept(true))
				kubetest.Change(m.Cluster, &storagev1alpha1.StoragePolicy{ObjectMeta: kubetest.DPUObject("gold")}, func(p *storagev1alpha1.StoragePolicy) { p.Spec.StorageVendors = []string{"a"} })
			},
			"StorageSnapshot s is of StorageVendor b, which StoragePolicy gold does not name",
		},
		"two sources": {
			storagev1alpha1.CopySource{VolumeName: "src", SnapshotName: "s"},
			func(*fixture) {},
			"spec.request.source has to name either a Volume or a StorageSnapshot",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFixture(t)
			c.change(m)
			m.Add(copyOf(c.from))
			m.pass("v")
			m.wantMessage(c.words)
			if m.Has(&corev1.PersistentVolumeClaim{}, "v-pvc") {
				t.Error("a claim was made all the same")
			}
			if got := m.volume("v").Spec.Volume.StorageVendorName; got != "" {
				t.Errorf("vendor %s was chosen all the same", got)
			}
		})
	}
}
