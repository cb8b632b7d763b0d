package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// TestPlaces: the room of each place is told apart, whatever the order.
func TestPlaces(t *testing.T) {
	at := func(rack, available, largest string) storagev1.CSIStorageCapacity {
		out := storagev1.CSIStorageCapacity{Capacity: ptr.To(resource.MustParse(available)), MaximumVolumeSize: ptr.To(resource.MustParse(largest))}
		if rack != "" {
			out.NodeTopology = &metav1.LabelSelector{MatchLabels: map[string]string{"rack": rack}}
		}
		return out
	}
	told := []storagev1.CSIStorageCapacity{at("2", "1Gi", "1Gi"), at("", "8Gi", "3Gi"), at("1", "2Gi", "2Gi"), at("2", "4Gi", "512Mi")}
	want := []storagev1alpha1.PlaceCapacity{
		{Available: resource.MustParse("8Gi"), MaximumVolumeSize: ptr.To(resource.MustParse("3Gi"))},
		{Topology: map[string]string{"rack": "1"}, Available: resource.MustParse("2Gi"), MaximumVolumeSize: ptr.To(resource.MustParse("2Gi"))},
		{Topology: map[string]string{"rack": "2"}, Available: resource.MustParse("5Gi"), MaximumVolumeSize: ptr.To(resource.MustParse("1Gi"))},
	}
	for range len(told) {
		got := sum(told)
		if diff := cmp.Diff(want, got.Places); diff != "" || got.Available.Value() != 15<<30 {
			t.Errorf("available %v (-want +got):\n%s", got.Available, diff)
		}
		told = append(told[1:], told[0])
	}
}
