package volume

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/storageclass"
)

// Room tells how much room the vendors of a policy have, as far as they tell.
// One that does not tell may do so later.
type Room struct{ options request.Options }

var _ provisioner.Room = (*Room)(nil)

// NewRoom reads the policies.
func NewRoom(o request.Options) *Room { return &Room{options: o} }

// Capacity returns the room under the policy that parameters name; without
// parameters, that of the policy which has most, since two policies may share
// their vendors.
func (r *Room) Capacity(ctx context.Context, parameters map[string]string, from provisioner.Place) (provisioner.Capacity, error) {
	if len(parameters) > 0 {
		class, err := storageclass.Parse(parameters)
		if err != nil {
			return provisioner.Capacity{}, err
		}
		return r.of(ctx, class.Policy, from)
	}
	most, told, err := r.most(ctx, from)
	if err == nil && !told {
		err = fmt.Errorf("%w: no vendor of any DPUStoragePolicy in namespace %s tells how much room it has", provisioner.ErrUnavailable, r.options.Namespace)
	}
	return most, err
}

// most is the room of the policy that has most; told is false if none tells.
func (r *Room) most(ctx context.Context, from provisioner.Place) (most provisioner.Capacity, told bool, err error) {
	var list storagev1alpha1.DPUStoragePolicyList
	if err := r.options.Client.List(ctx, &list, client.InNamespace(r.options.Namespace)); err != nil {
		return most, false, request.Refused("list the policies", err)
	}
	for i := range list.Items {
		if c := list.Items[i].Status.Capacity; c != nil {
			if here := capacity(c, from); !told || here.Available > most.Available {
				most, told = here, true
			}
		}
	}
	return most, told, nil
}

func (r *Room) of(ctx context.Context, name string, from provisioner.Place) (provisioner.Capacity, error) {
	policy := &storagev1alpha1.DPUStoragePolicy{}
	found, err := kube.Find(ctx, r.options.Client, client.ObjectKey{Namespace: r.options.Namespace, Name: name}, policy)
	switch {
	case err != nil:
		return provisioner.Capacity{}, request.Refused("read policy "+name, err)
	case !found:
		return provisioner.Capacity{}, fmt.Errorf("%w: DPUStoragePolicy %s does not exist in namespace %s", provisioner.ErrInvalid, name, r.options.Namespace)
	case policy.Status.Capacity == nil:
		return provisioner.Capacity{}, fmt.Errorf("%w: no vendor of DPUStoragePolicy %s tells how much room it has", provisioner.ErrUnavailable, name)
	}
	return capacity(policy.Status.Capacity, from), nil
}

// capacity is the room of a policy that is reached from a place; nil: anywhere.
// Vendors that make no difference tell of no places.
func capacity(c *storagev1alpha1.PolicyCapacity, from provisioner.Place) provisioner.Capacity {
	if from == nil || len(c.Places) == 0 {
		return provisioner.Capacity{Available: c.Available.Value(), Largest: largest(c.MaximumVolumeSize)}
	}
	var out provisioner.Capacity
	for i := range c.Places {
		if p := &c.Places[i]; provisioner.ReachFrom(from, []provisioner.Place{p.Topology}) == provisioner.Reached {
			out.Available += p.Available.Value()
			out.Largest = max(out.Largest, largest(p.MaximumVolumeSize))
		}
	}
	return out
}

func largest(q *resource.Quantity) int64 {
	if q == nil {
		return 0
	}
	return q.Value()
}
