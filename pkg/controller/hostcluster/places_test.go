package hostcluster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestCapacity: what is free for a policy is told of each DPU cluster apart, and of all together;
// each controller changes what it told itself.
func TestCapacity(t *testing.T) {
	s := openSeveral(t)
	alone := &storagev1alpha1.PolicyCapacity{Available: resource.MustParse("100Gi"), Places: []storagev1alpha1.PlaceCapacity{
		{Topology: map[string]string{"rack": "1"}, Available: resource.MustParse("100Gi")},
	}}
	kubetest.Change(s.host, kubetest.DPUStoragePolicy("policy"), func(p *storagev1alpha1.DPUStoragePolicy) { p.Status.Capacity = alone })
	tells := func(where *life, c *storagev1alpha1.PolicyCapacity) {
		mirror := &storagev1alpha1.StoragePolicy{ObjectMeta: kubetest.DPUObject("policy")}
		kubetest.Change(where.DPU, mirror, func(p *storagev1alpha1.StoragePolicy) { p.Status.Capacity = c })
	}
	all := func(size string) *storagev1alpha1.PolicyCapacity {
		return &storagev1alpha1.PolicyCapacity{Available: resource.MustParse(size)}
	}
	racks := &storagev1alpha1.PolicyCapacity{Available: resource.MustParse("5Gi"), Places: []storagev1alpha1.PlaceCapacity{
		{Available: resource.MustParse("4Gi")},
		{Topology: map[string]string{"rack": "1"}, Available: resource.MustParse("1Gi")},
	}}
	in := func(rack, cluster, size string) storagev1alpha1.PlaceCapacity {
		topology := map[string]string{moorv1alpha1.TopologyDPUCluster: cluster}
		if rack != "" {
			topology["rack"] = rack
		}
		return storagev1alpha1.PlaceCapacity{Topology: topology, Available: resource.MustParse(size)}
	}
	for _, step := range []struct {
		name       string
		east, west *storagev1alpha1.PolicyCapacity
		want       *storagev1alpha1.PolicyCapacity
	}{
		{"one tells", all("3Gi"), nil, &storagev1alpha1.PolicyCapacity{Available: resource.MustParse("3Gi"), Places: []storagev1alpha1.PlaceCapacity{
			in("", "dpf.east", "3Gi"),
		}}},
		{"both", all("3Gi"), racks, &storagev1alpha1.PolicyCapacity{Available: resource.MustParse("8Gi"), Places: []storagev1alpha1.PlaceCapacity{
			in("1", "dpf.west", "1Gi"), in("", "dpf.east", "3Gi"), in("", "dpf.west", "4Gi"),
		}}},
		{"the first has less", all("1Gi"), racks, &storagev1alpha1.PolicyCapacity{Available: resource.MustParse("6Gi"), Places: []storagev1alpha1.PlaceCapacity{
			in("1", "dpf.west", "1Gi"), in("", "dpf.east", "1Gi"), in("", "dpf.west", "4Gi"),
		}}},
		{"the first tells no more", nil, racks, &storagev1alpha1.PolicyCapacity{Available: resource.MustParse("5Gi"), Places: []storagev1alpha1.PlaceCapacity{
			in("1", "dpf.west", "1Gi"), in("", "dpf.west", "4Gi"),
		}}},
		{"none tells", nil, nil, nil},
	} {
		tells(s.east, step.east)
		tells(s.west, step.west)
		s.settle()
		got, _ := kubetest.Read(s.host, kubetest.DPUStoragePolicy("policy"))
		if diff := cmp.Diff(step.want, got.Status.Capacity); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}
