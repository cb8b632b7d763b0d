package volume

import (
	"context"
	"fmt"
	"maps"
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
type Inventory struct{ options request.Options }

var _ provisioner.Inventory = (*Inventory)(nil)

// NewInventory reads the objects.
func NewInventory(o request.Options) *Inventory { return &Inventory{options: o} }

// List returns a page of the volumes that are there, ordered by name. A volume
// that its vendor has not made yet is none.
func (i *Inventory) List(ctx context.Context, page provisioner.Page) ([]provisioner.Entry, string, error) {
	there, err := Bound(ctx, i.options)
	if err != nil {
		return nil, "", err
	}
	ids, next := page.Cut(slices.Sorted(maps.Keys(there)))
	nodes, err := i.nodes(ctx)
	if err != nil {
		return nil, "", err
	}
	entries := make([]provisioner.Entry, 0, len(ids))
	for _, id := range ids {
		v, err := volumeOf(there[id], nil)
		if err != nil {
			return nil, "", err
		}
		entries = append(entries, provisioner.Entry{Volume: v, Nodes: nodes[id]})
	}
	return entries, next, nil
}

// Bound are the volumes that their vendors have made, by name. They are the
// cache's own: they must not be changed.
func Bound(ctx context.Context, o request.Options) (map[string]*storagev1alpha1.DPUVolume, error) {
	var list storagev1alpha1.DPUVolumeList
	if err := o.Client.List(ctx, &list, client.InNamespace(o.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, request.Refused("list the volumes", err)
	}
	out := make(map[string]*storagev1alpha1.DPUVolume, len(list.Items))
	for n := range list.Items {
		if v := &list.Items[n]; v.Status.Phase == storagev1alpha1.DPUVolumeBound {
			out[v.Name] = v
		}
	}
	return out, nil
}

// Look returns one volume; ErrNotFound for one that is not there, or not yet.
func (i *Inventory) Look(ctx context.Context, id string) (provisioner.Entry, error) {
	o := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, i.options.Client, types.NamespacedName{Namespace: i.options.Namespace, Name: id}, o)
	if err != nil {
		return provisioner.Entry{}, request.Refused("read volume "+id, err)
	}
	if !found || o.Status.Phase != storagev1alpha1.DPUVolumeBound {
		return provisioner.Entry{}, fmt.Errorf("volume %s: %w in namespace %s, or not made yet", id, provisioner.ErrNotFound, i.options.Namespace)
	}
	v, err := volumeOf(o, nil)
	if err != nil {
		return provisioner.Entry{}, err
	}
	nodes, err := i.nodes(ctx, client.MatchingFields{attachment.IndexVolume: id})
	return provisioner.Entry{Volume: v, Nodes: nodes[id]}, err
}

// nodes are those that have each volume, or each of those selected, in order.
func (i *Inventory) nodes(ctx context.Context, of ...client.ListOption) (map[string][]string, error) {
	var list storagev1alpha1.DPUVolumeAttachmentList
	of = append(of, client.InNamespace(i.options.Namespace), client.UnsafeDisableDeepCopy)
	if err := i.options.Client.List(ctx, &list, of...); err != nil {
		return nil, request.Refused("list the attachments", err)
	}
	out := map[string][]string{}
	for n := range list.Items {
		if a := &list.Items[n]; a.Spec.Role != storagev1alpha1.RoleReplica && (attachment.Shown(a) || attachment.TakenAway(a)) {
			out[a.Spec.DPUVolumeName] = append(out[a.Spec.DPUVolumeName], a.Spec.DPUNodeName)
		}
	}
	for _, nodes := range out {
		slices.Sort(nodes)
	}
	return out, nil
}
