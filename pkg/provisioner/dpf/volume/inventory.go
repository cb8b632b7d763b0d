package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/attachment"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
)

// Inventory tells of the volumes that vendors have made, from the cache alone.
//
// The nodes that have a volume are those of its primaries whose device the host
// can see, until the attachment is gone. A replica does not count: its host sees
// nothing that a pod could use, Kubernetes never asked for it, and
// external-attacher, which compares this list with what it attached, would take
// the replica's node for one that has the volume. A primary on its way counts
// from the moment it is shown, which is when the call that asks for it returns;
// and one that a fence took away until Kubernetes gives it back, or else
// external-attacher would ask for it anew in the middle of a failover, and could
// not give it back before that call ends.
type Inventory struct {
	options request.Options
	order   *Order
}

var _ provisioner.Inventory = (*Inventory)(nil)

// NewInventory reads the objects.
func NewInventory(o request.Options) *Inventory { return &Inventory{options: o, order: NewOrder(o)} }

// List returns a page of the volumes that are there, ordered by name. A volume
// that its vendor has not made yet is none.
func (i *Inventory) List(ctx context.Context, page provisioner.Page) ([]provisioner.Entry, string, error) {
	order, err := i.order.From(ctx, page)
	if err != nil {
		return nil, "", err
	}
	var entries []provisioner.Entry
	for n, id := range order {
		e, err := i.Look(ctx, id)
		if errors.Is(err, provisioner.ErrNotFound) {
			continue // it went since the listing began
		}
		if err != nil {
			return nil, "", err
		}
		entries = append(entries, e)
		if len(entries) == page.Max && n+1 < len(order) {
			return entries, id, nil
		}
	}
	return entries, "", nil
}

// Look returns one volume; ErrNotFound for one that is not there, or not yet.
func (i *Inventory) Look(ctx context.Context, id string) (provisioner.Entry, error) {
	o := &storagev1alpha1.DPUVolume{}
	err := i.options.Client.Get(ctx, types.NamespacedName{Namespace: i.options.Namespace, Name: id}, o, client.UnsafeDisableDeepCopy)
	if kube.IgnoreNotFound(err) != nil {
		return provisioner.Entry{}, request.Refused("read volume "+id, err)
	}
	if err != nil || o.Status.Phase != storagev1alpha1.DPUVolumeBound {
		return provisioner.Entry{}, fmt.Errorf("volume %s: %w in namespace %s, or not made yet", id, provisioner.ErrNotFound, i.options.Namespace)
	}
	v, err := volumeOf(o, nil)
	if err != nil {
		return provisioner.Entry{}, err
	}
	nodes, err := i.nodes(ctx, id)
	return provisioner.Entry{Volume: v, Nodes: nodes}, err
}

// nodes are those that have a volume, in order.
func (i *Inventory) nodes(ctx context.Context, id string) ([]string, error) {
	all, err := attachment.All(ctx, i.options, id)
	if err != nil {
		return nil, err
	}
	var out []string
	for n := range all {
		if a := &all[n]; a.Spec.Role != storagev1alpha1.RoleReplica && (attachment.Shown(a) || attachment.TakenAway(a)) {
			out = append(out, a.Spec.DPUNodeName)
		}
	}
	slices.Sort(out)
	return out, nil
}
