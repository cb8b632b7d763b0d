// Package snapshot makes DPUVolumeSnapshots, alone and in groups, and waits until
// the vendor has the data.
package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
)

// Snapshots makes DPUVolumeSnapshots and waits until the vendor has the data.
type Snapshots struct {
	options request.Options
	awaiter *kube.Awaiter[*moorv1alpha1.DPUVolumeSnapshot]
}

var _ provisioner.Snapshots = (*Snapshots)(nil)

// New adds its index to the cache; call it before the cache starts.
func New(ctx context.Context, o request.Options) (*Snapshots, error) {
	if err := kube.AddIndexes(ctx, o.Cache, Index()); err != nil {
		return nil, err
	}
	awaiter, err := kube.NewAwaiter(ctx, o.Cache, func() *moorv1alpha1.DPUVolumeSnapshot { return &moorv1alpha1.DPUVolumeSnapshot{} })
	return &Snapshots{options: o, awaiter: awaiter}, err
}

// Create makes the DPUVolumeSnapshot spec.Name and waits until a volume can be
// made of it. If only the data is kept by the end of the wait, it says so.
func (s *Snapshots) Create(ctx context.Context, spec provisioner.SnapshotSpec) (provisioner.Snapshot, error) {
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, s.options.Patience(ctx))
	defer cancel()
	what := fmt.Sprintf("create snapshot %s of volume %s", spec.Name, spec.VolumeID)
	have, err := s.ask(ctx, spec)
	if err != nil {
		return provisioner.Snapshot{}, fmt.Errorf("%s: %w", what, err)
	}
	last, err := s.taken(ctx, have, what)
	if err != nil {
		if unasked(last, have.UID) {
			err = request.GiveUp(whole, s.options, s.awaiter, last, err)
		}
		return provisioner.Snapshot{}, err
	}
	return snapshot(last), nil
}

// taken waits until a volume can be made of a snapshot. If only the data is kept
// by the end of the wait, that is enough.
func (s *Snapshots) taken(ctx context.Context, asked *moorv1alpha1.DPUVolumeSnapshot, what string) (*moorv1alpha1.DPUVolumeSnapshot, error) {
	uid := asked.UID
	last, err := s.awaiter.Await(ctx, client.ObjectKeyFromObject(asked), func(o *moorv1alpha1.DPUVolumeSnapshot, found bool) (bool, error) {
		if !found || o.UID != uid {
			return false, nil
		}
		if !o.DeletionTimestamp.IsZero() {
			return false, fmt.Errorf("%w: it is being deleted", provisioner.ErrBusy)
		}
		return o.Status.Taken != nil && o.Status.ReadyToUse, nil
	})
	if err != nil && (last.UID != uid || last.Status.Taken == nil || !last.DeletionTimestamp.IsZero()) {
		return last, request.Waited(err, what, last.Status.Conditions)
	}
	return last, nil
}

// unasked reports whether no vendor has been asked for a snapshot.
func unasked(o *moorv1alpha1.DPUVolumeSnapshot, uid types.UID) bool {
	return o.UID == uid && o.DeletionTimestamp.IsZero() && o.Status.Origin == nil
}

// ask makes the object, or reads the one of that name.
func (s *Snapshots) ask(ctx context.Context, spec provisioner.SnapshotSpec) (*moorv1alpha1.DPUVolumeSnapshot, error) {
	if spec.Name == "" || spec.VolumeID == "" {
		return nil, fmt.Errorf("%w: the snapshot or the volume is not named", provisioner.ErrInvalid)
	}
	if err := noParameters("VolumeSnapshotClass", spec.Parameters); err != nil {
		return nil, err
	}
	have := &moorv1alpha1.DPUVolumeSnapshot{}
	key := s.key(kube.ObjectName(spec.Name))
	found, err := kube.Find(ctx, s.options.Client, key, have)
	if err != nil {
		return nil, request.Refused("read it", err)
	}
	if !found {
		if err := s.possible(ctx, spec.VolumeID); err != nil {
			return nil, err
		}
		have.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
		have.Spec.DPUVolumeName = spec.VolumeID
		if _, err := kube.Create(ctx, s.options.Client, have); err != nil {
			return nil, request.Refused("make it", err)
		}
	}
	if have.Spec.DPUVolumeName != spec.VolumeID || have.Spec.Group != nil {
		return nil, fmt.Errorf("%w: it is of volume %s, or of a group", provisioner.ErrExists, have.Spec.DPUVolumeName)
	}
	return have, nil
}

// noParameters refuses those of a class of the host cluster.
func noParameters(class string, parameters map[string]string) error {
	if len(parameters) == 0 {
		return nil
	}
	return fmt.Errorf("%w: the %s has the parameters %s: those of a vendor belong into its %s in the DPU cluster",
		provisioner.ErrInvalid, class, strings.Join(slices.Sorted(maps.Keys(parameters)), ", "), class)
}

// possible refuses a volume that is not there, or not yet.
func (s *Snapshots) possible(ctx context.Context, volumeID string) error {
	o := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, s.options.Client, s.key(volumeID), o)
	switch {
	case err != nil:
		return request.Refused("read volume "+volumeID, err)
	case !found || !o.DeletionTimestamp.IsZero():
		return fmt.Errorf("volume %s: %w in namespace %s", volumeID, provisioner.ErrNotFound, s.options.Namespace)
	case o.Status.Phase != storagev1alpha1.DPUVolumeBound:
		return fmt.Errorf("volume %s: %w: its vendor has not made it yet", volumeID, provisioner.ErrBusy)
	}
	return nil
}

// Delete deletes the DPUVolumeSnapshot and waits until it is gone, and with it
// the vendor's snapshot. ErrInvalid for one of a group.
func (s *Snapshots) Delete(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, s.options.Patience(ctx))
	defer cancel()
	obj := &moorv1alpha1.DPUVolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: s.options.Namespace, Name: id}}
	if have, err := s.read(ctx, id); err == nil && have.Spec.Group != nil {
		return fmt.Errorf("delete snapshot %s: %w: it is of group %s, and goes with it", id, provisioner.ErrInvalid, have.Spec.Group.Name)
	}
	return s.delete(ctx, obj)
}

func (s *Snapshots) delete(ctx context.Context, obj *moorv1alpha1.DPUVolumeSnapshot) error {
	id := obj.Name
	if err := s.options.Client.Delete(ctx, obj); err != nil {
		if kube.IgnoreNotFound(err) == nil {
			return nil
		}
		return request.Refused("delete snapshot "+id, err)
	}
	last, err := request.AwaitDeleted(ctx, s.options, s.awaiter, obj)
	return request.Waited(err, "delete snapshot "+id, last.Status.Conditions)
}

// Get returns the snapshot as the cache shows it; ErrNotFound for one that the
// vendor has not taken yet.
func (s *Snapshots) Get(ctx context.Context, id string) (provisioner.Snapshot, error) {
	o, err := s.read(ctx, id)
	if err != nil {
		return provisioner.Snapshot{}, err
	}
	if o.Status.Taken == nil {
		return provisioner.Snapshot{}, fmt.Errorf("snapshot %s: %w: it is not taken yet", id, provisioner.ErrNotFound)
	}
	return snapshot(o), nil
}

// List returns a page of the snapshots that are taken, ordered by name.
func (s *Snapshots) List(ctx context.Context, filter provisioner.SnapshotFilter, page provisioner.Page) ([]provisioner.Snapshot, string, error) {
	var list moorv1alpha1.DPUVolumeSnapshotList
	if err := s.options.Client.List(ctx, &list, client.InNamespace(s.options.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, "", request.Refused("list the snapshots", err)
	}
	there := map[string]*moorv1alpha1.DPUVolumeSnapshot{}
	for n := range list.Items {
		if o := &list.Items[n]; o.Status.Taken != nil && (filter.VolumeID == "" || filter.VolumeID == o.Spec.DPUVolumeName) {
			there[o.Name] = o
		}
	}
	ids, next := page.Cut(slices.Sorted(maps.Keys(there)))
	out := make([]provisioner.Snapshot, 0, len(ids))
	for _, id := range ids {
		out = append(out, snapshot(there[id]))
	}
	return out, next, nil
}

// Original is the size and the mode of the volume that a snapshot was made of.
func (s *Snapshots) Original(ctx context.Context, id string) (int64, provisioner.VolumeMode, error) {
	if s == nil {
		return 0, "", fmt.Errorf("snapshot %s: %w: there are no snapshots here", id, provisioner.ErrNotFound)
	}
	o, err := s.read(ctx, id)
	switch {
	case err != nil:
		return 0, "", err
	case !o.DeletionTimestamp.IsZero():
		return 0, "", fmt.Errorf("snapshot %s: %w: it is being deleted", id, provisioner.ErrNotFound)
	case o.Status.Taken == nil || !o.Status.ReadyToUse:
		return 0, "", fmt.Errorf("snapshot %s: %w: it is not ready to be used yet", id, provisioner.ErrBusy)
	}
	mode := provisioner.Filesystem
	if o.Status.Origin != nil && o.Status.Origin.VolumeMode != "" {
		mode = provisioner.VolumeMode(o.Status.Origin.VolumeMode)
	}
	return o.Status.Taken.RestoreSize.Value(), mode, nil
}

func (s *Snapshots) read(ctx context.Context, id string) (*moorv1alpha1.DPUVolumeSnapshot, error) {
	o := &moorv1alpha1.DPUVolumeSnapshot{}
	found, err := kube.Find(ctx, s.options.Client, s.key(id), o)
	if err != nil {
		return nil, request.Refused("read snapshot "+id, err)
	}
	if !found {
		return nil, fmt.Errorf("snapshot %s: %w in namespace %s", id, provisioner.ErrNotFound, s.options.Namespace)
	}
	return o, nil
}

func (s *Snapshots) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.options.Namespace, Name: name}
}

// snapshot is one that is taken, in the platform's words.
func snapshot(o *moorv1alpha1.DPUVolumeSnapshot) provisioner.Snapshot {
	out := provisioner.Snapshot{
		ID: o.Name, VolumeID: o.Spec.DPUVolumeName, SizeBytes: o.Status.Taken.RestoreSize.Value(),
		Created: o.Status.Taken.Time.Time, Ready: o.Status.ReadyToUse,
	}
	if o.Status.Origin != nil {
		out.AccessibleTopology = o.Status.Origin.AccessibleTopology
	}
	if o.Spec.Group != nil {
		out.GroupID = o.Spec.Group.Name
	}
	return out
}

// indexGroup is by which field the cache finds the snapshots of a group.
const indexGroup = "dpf.group"

// Index finds the snapshots of a group.
func Index() kube.Index {
	return kube.IndexOf(indexGroup, func(o *moorv1alpha1.DPUVolumeSnapshot) []string {
		if o.Spec.Group == nil {
			return nil
		}
		return []string{o.Spec.Group.Name}
	})
}
