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

func TestCapacity(t *testing.T) {
	all := []client.Object{policyWithRoom("silent", "", ""), policyWithRoom("full", "0", ""), policyWithRoom("small", "1Gi", "512Mi"), policyWithRoom("large", "2Gi", "")}
	for name, c := range map[string]struct {
		there  []client.Object
		policy string
		want   provisioner.Capacity
		err    error
	}{
		"of a policy":         {all, "small", provisioner.Capacity{Available: 1 << 30, Largest: 512 << 20}, nil},
		"of a full one":       {all, "full", provisioner.Capacity{}, nil},
		"of none":             {all, "", provisioner.Capacity{Available: 2 << 30}, nil},
		"of an unknown one":   {all, "typo", provisioner.Capacity{}, provisioner.ErrInvalid},
		"nobody tells of it":  {all, "silent", provisioner.Capacity{}, provisioner.ErrUnavailable},
		"nobody tells of any": {all[:1], "", provisioner.Capacity{}, provisioner.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nil, c.there...)
			got, err := (&Room{options: Options{Client: h, Namespace: namespace}}).Capacity(t.Context(), map[string]string{ParameterPolicy: c.policy})
			if got != c.want || !errors.Is(err, c.err) {
				t.Errorf("got %+v, %v; want %+v, %v", got, err, c.want, c.err)
			}
		})
	}
}
