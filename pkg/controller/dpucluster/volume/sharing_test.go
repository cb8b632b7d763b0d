package volume_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestSharing: a vendor makes no volume for more hosts than it allows to have one.
func TestSharing(t *testing.T) {
	for name, tc := range map[string]struct {
		bounds map[string]int32
		shares int32
		copies bool // of a snapshot, which vendor b has taken
		want   string
		words  []string
	}{
		"no bounds":                     {nil, 9, false, "a", nil},
		"for one host":                  {map[string]int32{"a": 1, "b": 1}, 0, false, "a", nil},
		"as many as are allowed":        {map[string]int32{"a": 3, "b": 2}, 3, false, "a", nil},
		"by the vendor that allows it":  {map[string]int32{"a": 2, "b": 3}, 3, false, "b", nil},
		"by the vendor without a bound": {map[string]int32{"a": 2}, 3, false, "b", nil},
		"more than any allows":          {map[string]int32{"a": 2, "b": 1}, 3, false, "", []string{"had by 3 hosts", "StorageVendor a at most 2, StorageVendor b at most 1", "lower maxShares"}},
		"a copy":                        {map[string]int32{"a": 1, "b": 3}, 3, true, "b", nil},
		"a copy, more than is allowed":  {map[string]int32{"b": 2}, 3, true, "", []string{"StorageVendor b at most 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFixture(t)
			for vendor, most := range tc.bounds {
				kubetest.Change(m.Cluster, kubetest.StorageVendor(vendor), func(v *storagev1alpha1.StorageVendor) { v.Spec.MaxShares = &most })
			}
			v := kubetest.Volume("v", "gold")
			v.Spec.Request.MaxShares = tc.shares
			if tc.copies {
				m.keep("")
				v = restored(v)
			}
			m.Add(v)
			m.settle("v")
			got := m.volume("v")
			if got.Spec.Volume.StorageVendorName != tc.want || m.Has(&corev1.PersistentVolumeClaim{}, "v-pvc") != (tc.want != "") {
				t.Errorf("vendor %q, want %q; %+v", got.Spec.Volume.StorageVendorName, tc.want, got.Status)
			}
			for _, words := range tc.words {
				if !strings.Contains(got.Status.Message, words) {
					t.Errorf("message %q lacks %q", got.Status.Message, words)
				}
			}
		})
	}
}
