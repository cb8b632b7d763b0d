package volume

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

func TestSelectVendor(t *testing.T) {
	last := func(n int) int { return n - 1 }
	first := func(int) int { return 0 }
	for _, tc := range []struct {
		name       string
		alg        storagev1alpha1.StorageSelectionAlg
		candidates []Candidate
		intN       func(int) int
		want       string
	}{
		{"one", storagev1alpha1.AlgLocalNVolumes, []Candidate{{"a", 9}}, nil, "a"},
		{"fewest", storagev1alpha1.AlgLocalNVolumes, []Candidate{{"a", 3}, {"b", 1}, {"c", 2}}, nil, "b"},
		{"none at all is the fewest", storagev1alpha1.AlgLocalNVolumes, []Candidate{{"a", 1}, {"z", 0}}, nil, "z"},
		{"tie goes to the alphabet, not to the order", storagev1alpha1.AlgLocalNVolumes, []Candidate{{"c", 1}, {"b", 1}, {"d", 1}}, nil, "b"},
		{"all empty", storagev1alpha1.AlgLocalNVolumes, []Candidate{{"y", 0}, {"x", 0}}, nil, "x"},
		{"no algorithm counts", "", []Candidate{{"a", 2}, {"b", 1}}, nil, "b"},
		{"an unknown algorithm counts", "Newest", []Candidate{{"a", 2}, {"b", 1}}, nil, "b"},
		{"random does not count: last", storagev1alpha1.AlgRandom, []Candidate{{"a", 0}, {"b", 7}}, last, "b"},
		{"random does not count: first", storagev1alpha1.AlgRandom, []Candidate{{"a", 7}, {"b", 0}}, first, "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := SelectVendor(tc.alg, tc.candidates, tc.intN); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestRandomReachesEveryVendor(t *testing.T) {
	n := 0
	turn := func(of int) int { n++; return n % of }
	seen := map[string]bool{}
	for range 3 {
		seen[SelectVendor(storagev1alpha1.AlgRandom, []Candidate{{"a", 0}, {"b", 0}, {"c", 0}}, turn)] = true
	}
	if len(seen) != 3 {
		t.Errorf("only %v", seen)
	}
}

func TestChoicesAreForgotten(t *testing.T) {
	var c choices
	key := types.NamespacedName{Name: "v"}
	none := func() ([]storagev1alpha1.Volume, error) { return nil, nil }
	if vendor, err := c.choose(key, none, func(func(string) int) string { return "a" }); err != nil || vendor != "a" || len(c.vendor) != 1 {
		t.Fatalf("chosen is %q, %v, %v", vendor, c.vendor, err)
	}
	c.know(key, "")
	if len(c.vendor) != 0 || c.count[types.NamespacedName{Name: "a"}] != 0 {
		t.Errorf("still remembers %v, %v", c.vendor, c.count)
	}
}
