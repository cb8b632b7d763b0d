package volume

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

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

func TestAChoiceInTheCacheCountsOnce(t *testing.T) {
	c := kubetest.NewDPU(t)
	v := kubetest.Volume("v1", "gold")
	v.Spec.Volume.StorageVendorName = "a"
	c.Add(v)
	p := &pass{volume: v, cluster: c.Cluster}
	made := map[types.NamespacedName]string{{Namespace: kubetest.DPUNamespace, Name: "v1"}: "a", {Namespace: kubetest.DPUNamespace, Name: "v2"}: "b"}
	for vendor, want := range map[string]int{"a": 1, "b": 1, "c": 0} {
		if n, err := p.countVolumes(t.Context(), vendor, made); err != nil || n != want {
			t.Errorf("vendor %s: %d volumes, want %d (%v)", vendor, n, want, err)
		}
	}
}
