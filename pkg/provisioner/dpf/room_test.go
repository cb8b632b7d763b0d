package dpf

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/provisioner"
)

func policyWithRoom(name, available, largest string) *storagev1alpha1.DPUStoragePolicy {
	p := &storagev1alpha1.DPUStoragePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if available != "" {
		p.Status.Capacity = &storagev1alpha1.PolicyCapacity{Available: resource.MustParse(available)}
	}
	if largest != "" {
		p.Status.Capacity.MaximumVolumeSize = ptr.To(resource.MustParse(largest))
	}
	return p
}

// of are the parameters of a StorageClass with the policy; "" is none.
func of(policy string) map[string]string {
	if policy == "" {
		return nil
	}
	return map[string]string{storagev1alpha1.ParameterPolicy: policy}
}

func TestCapacity(t *testing.T) {
	all := []client.Object{policyWithRoom("silent", "", ""), policyWithRoom("full", "0", ""), policyWithRoom("small", "1Gi", "512Mi"), policyWithRoom("large", "2Gi", "")}
	for name, c := range map[string]struct {
		there  []client.Object
		policy string
		want   provisioner.Capacity
		err    error
	}{
		"of a policy":       {all, "small", provisioner.Capacity{Available: 1 << 30, Largest: 512 << 20}, nil},
		"of a full one":     {all, "full", provisioner.Capacity{}, nil},
		"of none":           {all, "", provisioner.Capacity{Available: 2 << 30}, nil},
		"of an unknown one": {all, "typo", provisioner.Capacity{}, provisioner.ErrInvalid},
		"not told":          {all, "silent", provisioner.Capacity{}, provisioner.ErrUnavailable},
		"none told":         {all[:1], "", provisioner.Capacity{}, provisioner.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil, c.there...)
			got, err := h.platform.Room.Capacity(t.Context(), of(c.policy), nil)
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("got %+v, %v; want %+v, %v", got, err, c.want, c.err)
			}
		})
	}
}

// TestCapacityOfAPlace: what is told of places that are reached from there, and
// of vendors that make no difference.
func TestCapacityOfAPlace(t *testing.T) {
	p := policyWithRoom("p", "7Gi", "4Gi")
	p.Status.Capacity.Places = []storagev1alpha1.PlaceCapacity{
		{Available: resource.MustParse("1Gi")},
		{Topology: map[string]string{"rack": "1"}, Available: resource.MustParse("2Gi"), MaximumVolumeSize: ptr.To(resource.MustParse("1Gi"))},
		{Topology: map[string]string{"rack": "2"}, Available: resource.MustParse("4Gi"), MaximumVolumeSize: ptr.To(resource.MustParse("4Gi"))},
	}
	room := newHost(t, nil, p).platform.Room
	for name, c := range map[string]struct {
		from provisioner.Place
		want provisioner.Capacity
	}{
		"anywhere":     {nil, provisioner.Capacity{Available: 7 << 30, Largest: 4 << 30}},
		"in a rack":    {provisioner.Place{"rack": "1", "dpu": "d"}, provisioner.Capacity{Available: 3 << 30, Largest: 1 << 30}},
		"elsewhere":    {provisioner.Place{"rack": "9"}, provisioner.Capacity{Available: 1 << 30}},
		"nothing told": {provisioner.Place{}, provisioner.Capacity{Available: 1 << 30}},
	} {
		for _, policy := range []string{"p", ""} {
			got, err := room.Capacity(t.Context(), of(policy), c.from)
			if err != nil || got != c.want {
				t.Errorf("%s, policy %q: got %+v, %v; want %+v", name, policy, got, err, c.want)
			}
		}
	}
}
