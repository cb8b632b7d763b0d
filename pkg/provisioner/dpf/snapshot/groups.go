package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
)

// Groups makes DPUVolumeSnapshots that name a group, one for each of its
// volumes. The vendor is asked once for all of them, and each says of which
// volumes the group is: it is whole also where not all of them are made yet.
type Groups struct{ snapshots *Snapshots }

var _ provisioner.Groups = (*Groups)(nil)

// NewGroups makes groups of snapshots.
func NewGroups(snapshots *Snapshots) *Groups { return &Groups{snapshots} }

// Create makes the DPUVolumeSnapshots of the group and waits until volumes can
// be made of them.
func (g *Groups) Create(ctx context.Context, spec provisioner.GroupSpec) (provisioner.Group, error) {
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, g.snapshots.options.Patience(ctx))
	defer cancel()
	what := fmt.Sprintf("create snapshots %s of volumes %v", spec.Name, spec.VolumeIDs)
	asked, err := g.ask(ctx, spec)
	if err != nil {
		return provisioner.Group{}, fmt.Errorf("%s: %w", what, err)
	}
	last, failed := make([]*moorv1alpha1.DPUVolumeSnapshot, len(asked)), error(nil)
	for i, o := range asked {
		if last[i], err = g.snapshots.taken(ctx, o, what); err != nil && failed == nil {
			failed = err
		}
	}
	if failed != nil {
		return provisioner.Group{}, g.giveUp(whole, asked, last, failed)
	}
	return group(kube.ObjectName(spec.Name), last), nil
}

// ask makes the objects, or reads those of that name. They have numbers for
// names: so another group of this name meets the first of them, whatever its
// volumes are.
func (g *Groups) ask(ctx context.Context, spec provisioner.GroupSpec) ([]*moorv1alpha1.DPUVolumeSnapshot, error) {
	volumes, err := groupVolumes(spec)
	if err != nil {
		return nil, err
	}
	of := &moorv1alpha1.SnapshotGroup{Name: kube.ObjectName(spec.Name), VolumeNames: volumes}
	first, err := g.snapshots.read(ctx, member(of.Name, 0))
	switch {
	case errors.Is(err, provisioner.ErrNotFound):
		for _, v := range volumes {
			if err := g.snapshots.possible(ctx, v); err != nil {
				return nil, err
			}
		}
	case err != nil:
		return nil, err
	case !equality.Semantic.DeepEqual(first.Spec.Group, of):
		return nil, differs(first)
	}
	return g.make(ctx, of)
}

func (g *Groups) make(ctx context.Context, of *moorv1alpha1.SnapshotGroup) ([]*moorv1alpha1.DPUVolumeSnapshot, error) {
	var out []*moorv1alpha1.DPUVolumeSnapshot
	for i, v := range of.VolumeNames {
		o := &moorv1alpha1.DPUVolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: g.snapshots.options.Namespace, Name: member(of.Name, i)},
			Spec:       moorv1alpha1.DPUVolumeSnapshotSpec{DPUVolumeName: v, Group: of.DeepCopy()},
		}
		want := o.Spec.DeepCopy()
		if _, err := kube.Create(ctx, g.snapshots.options.Client, o); err != nil {
			return nil, request.Refused("make snapshot "+o.Name, err)
		}
		if !equality.Semantic.DeepEqual(&o.Spec, want) {
			return nil, differs(o)
		}
		out = append(out, o)
	}
	return out, nil
}

func member(group string, i int) string { return kube.ObjectName(fmt.Sprintf("%s-%d", group, i)) }

func differs(o *moorv1alpha1.DPUVolumeSnapshot) error {
	if o.Spec.Group == nil {
		return fmt.Errorf("%w: DPUVolumeSnapshot %s is there and of no group: delete it, or apply crds/host if it was made for one", provisioner.ErrExists, o.Name)
	}
	return fmt.Errorf("%w: it is of volumes %v", provisioner.ErrExists, o.Spec.Group.VolumeNames)
}

// groupVolumes checks a request and returns its volumes in order.
func groupVolumes(spec provisioner.GroupSpec) ([]string, error) {
	volumes := slices.Sorted(slices.Values(spec.VolumeIDs))
	switch {
	case spec.Name == "" || len(volumes) == 0 || volumes[0] == "":
		return nil, fmt.Errorf("%w: the group or its volumes are not named", provisioner.ErrInvalid)
	case len(slices.Compact(slices.Clone(volumes))) != len(volumes):
		return nil, fmt.Errorf("%w: a volume is named twice", provisioner.ErrInvalid)
	}
	return volumes, noParameters("VolumeGroupSnapshotClass", spec.Parameters)
}

// giveUp takes the group back if the vendor was never asked for it; see giveUp
// of one request.
func (g *Groups) giveUp(ctx context.Context, asked, last []*moorv1alpha1.DPUVolumeSnapshot, cause error) error {
	for i, o := range last {
		if !unasked(o, asked[i].UID) {
			return cause
		}
	}
	err := cause
	for _, o := range last {
		if err = request.GiveUp(ctx, g.snapshots.options, g.snapshots.awaiter, o, cause); !errors.Is(err, provisioner.ErrPrecondition) {
			return cause // that one could not be taken back
		}
	}
	return err
}

// Delete deletes the DPUVolumeSnapshots of the group and waits until they are
// gone, and with them the vendor's.
func (g *Groups) Delete(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, g.snapshots.options.Patience(ctx))
	defer cancel()
	members, err := g.whole(ctx, id)
	if err != nil {
		return err
	}
	for _, o := range members { // all of them first: each waits for the others
		if err := kube.Delete(ctx, g.snapshots.options.Client, o.DeepCopy()); err != nil {
			return request.Refused("delete group "+id, err)
		}
	}
	for _, o := range members {
		if err := g.snapshots.delete(ctx, o.DeepCopy()); err != nil {
			return fmt.Errorf("delete group %s: %w", id, err)
		}
	}
	return nil
}

// Get returns the group as the cache shows it; ErrNotFound for one that the
// vendor has not taken yet.
func (g *Groups) Get(ctx context.Context, id string) (provisioner.Group, error) {
	members, err := g.members(ctx, id)
	if err != nil {
		return provisioner.Group{}, err
	}
	for _, o := range members {
		if o.Status.Taken == nil || len(members) != len(o.Spec.Group.VolumeNames) {
			return provisioner.Group{}, fmt.Errorf("group %s: %w: it is not taken yet", id, provisioner.ErrNotFound)
		}
	}
	if len(members) == 0 {
		return provisioner.Group{}, fmt.Errorf("group %s: %w in namespace %s", id, provisioner.ErrNotFound, g.snapshots.options.Namespace)
	}
	return group(id, members), nil
}

// whole is members for what is to be deleted: of a group that the cache does not show whole,
// another process may have made more a moment ago, so those are what the server has.
func (g *Groups) whole(ctx context.Context, id string) ([]*moorv1alpha1.DPUVolumeSnapshot, error) {
	members, err := g.members(ctx, id)
	o := g.snapshots.options
	if err != nil || o.Live == nil || len(members) > 0 && len(members) == len(members[0].Spec.Group.VolumeNames) {
		return members, err
	}
	var list moorv1alpha1.DPUVolumeSnapshotList
	if err := o.Live.List(ctx, &list, client.InNamespace(o.Namespace)); err != nil {
		return nil, request.Refused("list the snapshots of group "+id, err)
	}
	var out []*moorv1alpha1.DPUVolumeSnapshot
	for i := range list.Items {
		if s := &list.Items[i]; s.Spec.Group != nil && s.Spec.Group.Name == id {
			out = append(out, s)
		}
	}
	return out, nil
}

// members are the group's objects, ordered by volume. They are the cache's own:
// they must not be changed.
func (g *Groups) members(ctx context.Context, id string) ([]*moorv1alpha1.DPUVolumeSnapshot, error) {
	var list moorv1alpha1.DPUVolumeSnapshotList
	o := g.snapshots.options
	err := o.Client.List(ctx, &list, client.InNamespace(o.Namespace), client.MatchingFields{indexGroup: id}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, request.Refused("list the snapshots of group "+id, err)
	}
	of := map[string]*moorv1alpha1.DPUVolumeSnapshot{}
	for i := range list.Items {
		of[list.Items[i].Spec.DPUVolumeName] = &list.Items[i]
	}
	var out []*moorv1alpha1.DPUVolumeSnapshot
	for _, volume := range slices.Sorted(maps.Keys(of)) {
		out = append(out, of[volume])
	}
	return out, nil
}

// group is one that is taken, in the platform's words.
func group(id string, members []*moorv1alpha1.DPUVolumeSnapshot) provisioner.Group {
	out := provisioner.Group{ID: id, Created: members[0].Status.Taken.Time.Time}
	for _, o := range members {
		out.Snapshots = append(out.Snapshots, snapshot(o))
	}
	return out
}
