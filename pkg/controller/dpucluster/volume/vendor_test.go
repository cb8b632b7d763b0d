package volume

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// Volumes that arrive together must not all go to one vendor because the
// cache shows none of the choices yet.
func TestChoicesNotYetInTheCacheCount(t *testing.T) {
	c := kubetest.NewDPU(t)
	policy := kubetest.StoragePolicy("gold", "a", "b")
	made := &choices{}
	count := map[string]int{}
	for _, name := range []string{"v1", "v2", "v3", "v4"} {
		vendor, err := (&pass{volume: kubetest.Volume(name, "gold"), cluster: c.Cluster, choices: made}).choose(t.Context(), policy)
		if err != nil {
			t.Fatal(err)
		}
		count[vendor]++
	}
	if count["a"] != 2 || count["b"] != 2 {
		t.Errorf("spread %v, want two each", count)
	}
}

// TestVolumesCountOnce: chosen, seen by a pass or there at the start, a volume counts once,
// for its vendor of now, until it is gone.
func TestVolumesCountOnce(t *testing.T) {
	c := kubetest.NewDPU(t)
	for name, vendor := range map[string]string{"v1": "a", "v2": "b", "v3": "a", "bare": ""} {
		v := kubetest.Volume(name, "gold")
		v.Spec.Volume.StorageVendorName = vendor
		c.Add(v)
	}
	made := &choices{}
	key := func(name string) types.NamespacedName {
		return types.NamespacedName{Namespace: kubetest.DPUNamespace, Name: name}
	}
	counts := func() map[string]int {
		t.Helper()
		out := map[string]int{}
		p := &pass{cluster: c.Cluster}
		_, err := made.choose(key("asks"), func() ([]storagev1alpha1.Volume, error) { return p.volumes(t.Context()) }, func(count func(string) int) string {
			for _, vendor := range []string{"a", "b", "c"} {
				out[vendor] = count(vendor)
			}
			return "c"
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := func(a, b, other int) {
		t.Helper()
		if d := cmp.Diff(map[string]int{"a": a, "b": b, "c": other}, counts()); d != "" {
			t.Errorf("volumes of each vendor (-want +got):\n%s", d)
		}
	}
	want(2, 1, 0)
	made.know(key("v1"), "a") // as it is known already
	made.know(key("v4"), "b")
	want(2, 2, 0)
	made.know(key("v1"), "") // gone
	made.know(key("asks"), "c")
	want(1, 2, 0) // that which asks does not count
}

// BenchmarkBurst is a volume of many that arrive together, where there are many already.
func BenchmarkBurst(b *testing.B) {
	for _, n := range []int{1000, 10000, 50000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			there := make([]storagev1alpha1.Volume, n)
			for i := range there {
				there[i].Name, there[i].Spec.Volume.StorageVendorName = "v"+strconv.Itoa(i), "a"
			}
			made, i := &choices{}, 0
			arrive := func() {
				i++
				_, err := made.choose(types.NamespacedName{Name: "new" + strconv.Itoa(i%1000)}, func() ([]storagev1alpha1.Volume, error) { return there, nil }, func(count func(string) int) string {
					return SelectVendor(storagev1alpha1.AlgLocalNVolumes, []Candidate{{"a", count("a")}, {"b", count("b")}}, nil)
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			arrive() // the first looks at all that there are
			for b.Loop() {
				arrive()
			}
		})
	}
}
