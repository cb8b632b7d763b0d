package dpf

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Room tells how much room the vendors of a policy have, as far as they tell.
// One that does not tell may do so later.
type Room struct{ options Options }

var _ provisioner.Room = (*Room)(nil)

// Capacity returns the room under the policy that parameters name; without one,
// that of the policy which has most, since two policies may share their vendors.
func (r *Room) Capacity(ctx context.Context, parameters map[string]string) (provisioner.Capacity, error) {
	if name := parameters[ParameterPolicy]; name != "" {
		return r.of(ctx, name)
	}
	most, told, err := r.most(ctx)
	if err == nil && !told {
		err = fmt.Errorf("%w: no vendor of any DPUStoragePolicy in namespace %s tells how much room it has", provisioner.ErrUnavailable, r.options.Namespace)
	}
	return most, err
}

// most is the room of the policy that has most; told is false if none tells.
func (r *Room) most(ctx context.Context) (most provisioner.Capacity, told bool, err error) {
	var list storagev1alpha1.DPUStoragePolicyList
	if err := r.options.Client.List(ctx, &list, client.InNamespace(r.options.Namespace)); err != nil {
		return most, false, refused("list the policies", err)
	}
	for i := range list.Items {
		if c := list.Items[i].Status.Capacity; c != nil && (!told || c.Available.Value() > most.Available) {
			most, told = capacity(c), true
		}
	}
	return most, told, nil
}

func (r *Room) of(ctx context.Context, name string) (provisioner.Capacity, error) {
	policy := &storagev1alpha1.DPUStoragePolicy{}
	found, err := kube.Find(ctx, r.options.Client, client.ObjectKey{Namespace: r.options.Namespace, Name: name}, policy)
	switch {
	case err != nil:
		return provisioner.Capacity{}, refused("read policy "+name, err)
	case !found:
		return provisioner.Capacity{}, fmt.Errorf("%w: DPUStoragePolicy %s does not exist in namespace %s", provisioner.ErrInvalid, name, r.options.Namespace)
	case policy.Status.Capacity == nil:
		return provisioner.Capacity{}, fmt.Errorf("%w: no vendor of DPUStoragePolicy %s tells how much room it has", provisioner.ErrUnavailable, name)
	}
	return capacity(policy.Status.Capacity), nil
}

func capacity(c *storagev1alpha1.PolicyCapacity) provisioner.Capacity {
	out := provisioner.Capacity{Available: c.Available.Value()}
	if c.MaximumVolumeSize != nil {
		out.Largest = c.MaximumVolumeSize.Value()
	}
	return out
}
