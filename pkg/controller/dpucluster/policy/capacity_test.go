package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

func TestSum(t *testing.T) {
	place := func(available, largest string) storagev1.CSIStorageCapacity {
		out := storagev1.CSIStorageCapacity{}
		if available != "" {
			out.Capacity = ptr.To(resource.MustParse(available))
		}
		if largest != "" {
			out.MaximumVolumeSize = ptr.To(resource.MustParse(largest))
		}
		return out
	}
	for name, c := range map[string]struct {
		told               []storagev1.CSIStorageCapacity
		available, largest string
	}{
		"nothing is told":       {nil, "", ""},
		"nothing was learnt":    {[]storagev1.CSIStorageCapacity{place("", "")}, "", ""},
		"one place":             {[]storagev1.CSIStorageCapacity{place("1Gi", "")}, "1Gi", ""},
		"several, one is full":  {[]storagev1.CSIStorageCapacity{place("1Gi", "512Mi"), place("0", "1Gi"), place("3Gi", "")}, "4Gi", "1Gi"},
		"one of two was learnt": {[]storagev1.CSIStorageCapacity{place("", "2Gi"), place("2Gi", "1Gi")}, "2Gi", "1Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			var want *storagev1alpha1.PolicyCapacity
			if c.available != "" {
				want = &storagev1alpha1.PolicyCapacity{Available: resource.MustParse(c.available)}
				if c.largest != "" {
					want.MaximumVolumeSize = ptr.To(resource.MustParse(c.largest))
				}
			}
			if diff := cmp.Diff(want, sum(c.told)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
