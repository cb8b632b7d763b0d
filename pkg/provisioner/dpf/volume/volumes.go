// Package volume makes DPUVolumes and waits until their vendors have made what is
// behind them; it lists them, lets them grow and change, and tells how much room
// the vendors have. It chooses no vendor: snap-controller does.
package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/attachment"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/storageclass"
)

// Volumes makes DPUVolumes and waits until they are bound.
type Volumes struct {
	options request.Options
	awaiter *kube.Awaiter[*storagev1alpha1.DPUVolume]
}

var _ provisioner.Volumes = (*Volumes)(nil)

// New watches the DPUVolumes.
func New(ctx context.Context, o request.Options) (*Volumes, error) {
	awaiter, err := kube.NewAwaiter(ctx, o.Cache, func() *storagev1alpha1.DPUVolume { return &storagev1alpha1.DPUVolume{} })
	return &Volumes{options: o, awaiter: awaiter}, err
}

// Create makes the DPUVolume spec.Name and waits until its vendor's volume is
// bound.
func (v *Volumes) Create(ctx context.Context, spec provisioner.VolumeSpec) (provisioner.Volume, error) {
	return v.createFrom(ctx, spec, nil)
}

// createFrom makes the DPUVolume, as a copy of source if that is not nil.
func (v *Volumes) createFrom(ctx context.Context, spec provisioner.VolumeSpec, source *storagev1alpha1.DPUVolumeSource) (provisioner.Volume, error) {
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, v.options.Patience(ctx))
	defer cancel()
	if err := possible(spec); err != nil {
		return provisioner.Volume{}, fmt.Errorf("create volume %q: %w", spec.Name, err)
	}
	class, err := storageclass.Parse(spec.Parameters)
	if err != nil {
		return provisioner.Volume{}, fmt.Errorf("create volume %s: %w", spec.Name, err)
	}
	want, err := v.object(spec, class, source)
	if err != nil {
		return provisioner.Volume{}, fmt.Errorf("create volume %s: %w", spec.Name, err)
	}
	have := want.DeepCopy()
	if _, err := kube.Create(ctx, v.options.Client, have); err != nil {
		return provisioner.Volume{}, request.Refused(fmt.Sprintf("create volume %s", spec.Name), err)
	}
	if !sameRequest(have.Spec, want.Spec) {
		return provisioner.Volume{}, fmt.Errorf("create volume %s: %w: it has another mode, other access modes, another policy, other parameters or another source", spec.Name, provisioner.ErrExists)
	}
	uid := have.UID
	bound, err := v.awaiter.Await(ctx, client.ObjectKeyFromObject(want), func(o *storagev1alpha1.DPUVolume, found bool) (bool, error) {
		if !found || o.UID != uid {
			return false, nil
		}
		if !o.DeletionTimestamp.IsZero() {
			return false, fmt.Errorf("%w: it is being deleted", provisioner.ErrBusy)
		}
		return o.Status.Phase == storagev1alpha1.DPUVolumeBound, inaccessible(o)
	})
	if errors.Is(err, provisioner.ErrExhausted) {
		return provisioner.Volume{}, unreachable(whole, v.options, v.awaiter, bound, fmt.Errorf("create volume %s: %w", spec.Name, err))
	}
	if err != nil {
		err = request.Waited(err, "create volume "+spec.Name, bound.Status.Conditions)
		if notStarted(bound, uid) {
			return provisioner.Volume{}, request.GiveUp(whole, v.options, v.awaiter, bound, err)
		}
		return provisioner.Volume{}, err
	}
	if err := v.awaitMutable(ctx, whole, bound, spec.Mutable); err != nil {
		return provisioner.Volume{}, fmt.Errorf("create volume %s: %w", spec.Name, err)
	}
	made, err := volumeOf(bound, storageclass.FunctionsIn(spec.Parameters))
	if err != nil {
		return made, err
	}
	return made, asAsked(made, spec)
}

// asAsked refuses a volume that exists and is at another place or of another size.
func asAsked(made provisioner.Volume, spec provisioner.VolumeSpec) error {
	if !reached(made.AccessibleTopology, spec.AccessibleFrom) {
		return fmt.Errorf("create volume %s: %w: it is reached from %v, and from none of the places asked for", spec.Name, provisioner.ErrExists, made.AccessibleTopology)
	}
	if !fits(made.CapacityBytes, spec) {
		return fmt.Errorf("create volume %s: %w: it has %d bytes; asked for are at least %d and at most %d (0: any)",
			spec.Name, provisioner.ErrExists, made.CapacityBytes, spec.CapacityBytes, spec.LimitBytes)
	}
	return nil
}

// possible refuses what no volume can be, and what the API server would take
// all the same.
func possible(spec provisioner.VolumeSpec) error {
	switch {
	case spec.Name == "":
		return fmt.Errorf("%w: it has no name", provisioner.ErrInvalid)
	case spec.CapacityBytes < 0 || spec.LimitBytes < 0:
		return fmt.Errorf("%w: its size is negative", provisioner.ErrInvalid)
	case spec.LimitBytes > 0 && spec.LimitBytes < spec.CapacityBytes:
		return fmt.Errorf("%w: at least %d and at most %d bytes are asked for", provisioner.ErrOutOfRange, spec.CapacityBytes, spec.LimitBytes)
	}
	return nil
}

// fits reports whether a volume of that size is what spec asks for.
func fits(size int64, spec provisioner.VolumeSpec) bool {
	return size >= spec.CapacityBytes && (spec.LimitBytes == 0 || size <= spec.LimitBytes)
}

// Delete deletes the DPUVolume and waits until it is gone, and with it the
// vendor's volume. While it is attached it is left alone: a DPUVolume that is
// being deleted cannot be used again.
func (v *Volumes) Delete(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, v.options.Timeout)
	defer cancel()
	users, err := attachment.Users(ctx, v.options, id)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return fmt.Errorf("delete volume %s: %w: it is attached to node %s", id, provisioner.ErrInUse, users[0].Spec.DPUNodeName)
	}
	obj := &storagev1alpha1.DPUVolume{ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: v.options.Namespace}}
	if err := v.options.Client.Delete(ctx, obj); err != nil {
		if kube.IsNotFound(err) {
			return nil
		}
		return request.Refused("delete volume "+id, err)
	}
	last, err := request.AwaitDeleted(ctx, v.options, v.awaiter, obj)
	return request.Waited(err, "delete volume "+id, last.Status.Conditions)
}

// Get returns the volume as the cache shows it.
func (v *Volumes) Get(ctx context.Context, id string) (provisioner.Volume, error) {
	obj := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, v.options.Client, v.key(id), obj)
	if err != nil {
		return provisioner.Volume{}, request.Refused("read volume "+id, err)
	}
	if !found {
		return provisioner.Volume{}, fmt.Errorf("volume %s: %w in namespace %s", id, provisioner.ErrNotFound, v.options.Namespace)
	}
	return volumeOf(obj, nil)
}

func (v *Volumes) key(id string) types.NamespacedName {
	return types.NamespacedName{Namespace: v.options.Namespace, Name: id}
}

func (v *Volumes) object(spec provisioner.VolumeSpec, class storageclass.Class, source *storagev1alpha1.DPUVolumeSource) (*storagev1alpha1.DPUVolume, error) {
	replicas, err := class.Replication(spec.AccessModes)
	if err != nil {
		return nil, err
	}
	mode := corev1.PersistentVolumeMode(spec.Mode)
	obj := &storagev1alpha1.DPUVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: kube.ObjectName(spec.Name), Namespace: v.options.Namespace,
			Finalizers: []string{storagev1alpha1.FinalizerDPUVolume}, // snap-host-controller would add it
		},
		Spec: storagev1alpha1.DPUVolumeSpec{
			DPUStoragePolicyName: class.Policy,
			Parameters:           class.Vendor,
			VolumeMode:           &mode,
			Replication:          replicas,
			DeadMount:            class.DeadMount,
			Source:               source,
			AccessibleFrom:       spec.AccessibleFrom[:min(len(spec.AccessibleFrom), storagev1alpha1.MostPlaces)],
			MutableParameters:    maps.Clone(spec.Mutable),
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(spec.CapacityBytes, resource.BinarySI)},
			},
		},
	}
	for _, m := range spec.AccessModes {
		obj.Spec.AccessModes = append(obj.Spec.AccessModes, corev1.PersistentVolumeAccessMode(m))
	}
	if spec.LimitBytes > 0 {
		obj.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(spec.LimitBytes, resource.BinarySI)}
	}
	return obj, nil
}

// volumeOf is a DPUVolume in the platform's terms. functions is how its host sees
// it, which is known to the call that makes it only: nil for the others.
func volumeOf(o *storagev1alpha1.DPUVolume, functions map[string]string) (provisioner.Volume, error) {
	out := provisioner.Volume{
		ID:         o.Name,
		Mode:       provisioner.Filesystem,
		Parameters: storageclass.ParametersOf(&o.Spec),
		Context:    map[string]string{storagev1alpha1.VolumeContextPolicy: o.Spec.DPUStoragePolicyName},
	}
	maps.Copy(out.Parameters, functions)
	maps.Copy(out.Context, functions)
	if o.Spec.VolumeMode != nil {
		out.Mode = provisioner.VolumeMode(*o.Spec.VolumeMode)
	}
	if from := o.Spec.Source; from != nil {
		out.Source = provisioner.Source{VolumeID: from.DPUVolumeName, SnapshotID: from.DPUVolumeSnapshotName}
	}
	for _, m := range o.Spec.AccessModes {
		out.AccessModes = append(out.AccessModes, provisioner.AccessMode(m))
	}
	state := o.Status.State
	if state == nil || state.VolumeInfo == nil {
		if o.Status.Phase == storagev1alpha1.DPUVolumeBound {
			return out, fmt.Errorf("volume %s is bound, but its status does not say how large it is", o.Name)
		}
		return out, nil
	}
	out.Context[storagev1alpha1.VolumeContextVendor] = state.SelectedDPUStorageVendorName
	out.Context[storagev1alpha1.VolumeContextPlugin] = state.StorageVendorPluginName
	size := state.VolumeInfo.Capacity[corev1.ResourceStorage]
	out.CapacityBytes = size.Value()
	out.AccessibleTopology = state.VolumeInfo.AccessibleTopology
	return out, nil
}

// sameRequest compares what was asked for but the size and the places, which are
// judged by what was made (fits, reached).
func sameRequest(a, b storagev1alpha1.DPUVolumeSpec) bool {
	return a.DPUStoragePolicyName == b.DPUStoragePolicyName &&
		equality.Semantic.DeepEqual(a.AccessModes, b.AccessModes) &&
		equality.Semantic.DeepEqual(a.VolumeMode, b.VolumeMode) &&
		equality.Semantic.DeepEqual(a.Replication, b.Replication) && a.DeadMount == b.DeadMount &&
		equality.Semantic.DeepEqual(a.Source, b.Source) &&
		maps.Equal(a.Parameters, b.Parameters)
}

// notStarted reports whether nothing has been begun for the volume: no vendor was
// ever chosen.
func notStarted(volume *storagev1alpha1.DPUVolume, uid types.UID) bool {
	return volume.UID == uid && volume.DeletionTimestamp.IsZero() &&
		!meta.IsStatusConditionTrue(volume.Status.Conditions, storagev1alpha1.ConditionScheduled) &&
		volume.Status.Phase != storagev1alpha1.DPUVolumeBound
}
