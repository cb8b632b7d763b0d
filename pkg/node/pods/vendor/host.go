// Package vendor makes PavProvisioners a storage vendor for DPUs: it has a volume staged by a pod on this DPU,
// and hands what that has made to the SNAP service, as a block device or a file system.
//
// SNAP opens no path that a pod has written: the staged volume is shown at a place of its own first, as it is
// to pods. What a device was made of is recorded, so that one whose staging pod has died is known not to be
// there any more. The next Open makes another in its place. A block device that the host sees is replaced by one
// of another name: snap-node-driver takes the one away before it shows the other, and until then SNAP has both.
// A file system that the host sees is replaced once it does not see it any more: its tag has the device's name
// in it, and Kubernetes gives the tag of the first to each pod until the volume is attached anew.
package vendor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/filestore"
	"github.com/moor-storage/moor/internal/keylock"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/snaprpc"
	"github.com/moor-storage/moor/pkg/node/pods/ask"
	"github.com/moor-storage/moor/pkg/node/pods/show"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/pods"
)

// Targets shows staged volumes; *show.Targets is the real one.
type Targets interface {
	Show(w show.Want) error
	Hide(target string) error
}

// Options is what the Host works on.
type Options struct {
	// Node is the name of this DPU, and Namespace that of the claims and VolumeAttachments which
	// snap-controller makes.
	Node, Namespace string
	// Volumes is the directory where volumes are shown, which SNAP sees at the same path, and Records that
	// of what is known of them. Both are made when needed, and are this Host's alone.
	Volumes, Records string
	// Stagings has volumes staged on this DPU.
	Stagings ask.Stagings
	// Targets shows them.
	Targets Targets
	// SNAP is the service that shows devices to the host.
	SNAP SNAP
}

// Host implements provisioner.Host on a DPU.
type Host struct {
	o       Options
	records filestore.Store[record]
	locks   keylock.Locks
}

// New makes the Host.
func New(o Options) *Host {
	return &Host{o: o, records: filestore.Store[record]{Dir: o.Records}}
}

// record is the device of a volume, and what it was made of.
type record struct {
	Volume string `json:"volume"`
	// Device is one of the two names of the volume's devices (namesOf). Before is the other, while SNAP may
	// have the device in whose place this one is.
	Device string                 `json:"device"`
	Before string                 `json:"before,omitempty"`
	Mode   provisioner.VolumeMode `json:"mode"`
	// Staging is the PodStaging, and Pod the pod of it that has made what is there.
	Staging types.UID `json:"staging"`
	Pod     types.UID `json:"pod"`
}

// is reports whether a PodStaging has what the device was made of.
func (r record) is(p *moorv1alpha1.PodStaging) bool {
	return p.DeletionTimestamp.IsZero() && p.Status.Phase == moorv1alpha1.PodStagingStaged &&
		p.Status.Report != nil && r.Staging == p.UID && r.Pod == p.Status.Report.PodUID
}

func (r record) device() provisioner.Device {
	return provisioner.Device{VolumeID: r.Volume, Name: r.Device, Mode: r.Mode}
}

// keyOf is the name of what is recorded of a volume.
func keyOf(volume string) string { return snaprpc.FSDevName(volume) }

// namesOf are the names that a volume's device has in turn: the first, and the second if the host may still
// see the first. That of an fsdev may have 17 bytes to be shown.
func namesOf(volume string) [2]string { return [2]string{"p" + keyOf(volume), "q" + keyOf(volume)} }

// target is where what a device is made of is shown.
func (h *Host) target(device string) string { return filepath.Join(h.o.Volumes, device) }

// staging is the name of the PodStaging of a volume on this DPU: it has one user at a time.
func (h *Host) staging(volume string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", []string{"dpu", h.o.Node, h.o.Namespace, volume}))
	return pods.StagingName(hex.EncodeToString(sum[:16]))
}

// lock has calls for a volume exclude each other.
func (h *Host) lock(volume string) (unlock func(), err error) {
	unlock, ok := h.locks.TryLock(keyOf(volume))
	if !ok {
		return nil, fmt.Errorf("another operation on it is under way: %w", provisioner.ErrBusy)
	}
	return unlock, nil
}

// Open has the volume staged and makes its device. What it waited for when its time is over is in the words
// of ErrUnavailable; the staging goes on meanwhile. See provisioner.Host.
func (h *Host) Open(ctx context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	d, err := h.open(ctx, spec)
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("open volume %q: %w", spec.VolumeID, err)
	}
	return d, nil
}

func (h *Host) open(ctx context.Context, spec provisioner.OpenSpec) (provisioner.Device, error) {
	if spec.VolumeID == "" {
		return provisioner.Device{}, fmt.Errorf("no volume is named: %w", provisioner.ErrInvalid)
	}
	unlock, err := h.lock(spec.VolumeID)
	if err != nil {
		return provisioner.Device{}, err
	}
	defer unlock()
	if err := h.mine(spec.VolumeID); err != nil {
		return provisioner.Device{}, err
	}
	bounded, cancel := ask.Bounded(ctx, 0)
	defer cancel()
	want, err := h.want(bounded, spec)
	if err == nil {
		err = h.leave(bounded, spec.VolumeID, want)
	}
	if err != nil {
		return provisioner.Device{}, err
	}
	p, err := h.o.Stagings.Ensure(bounded, want, func(context.Context) error { return nil })
	if err != nil {
		return provisioner.Device{}, err
	}
	if p, err = h.o.Stagings.Staged(bounded, p); err != nil {
		return provisioner.Device{}, err
	}
	return h.made(ctx, spec, p)
}

// mine is ErrInUse if the record is another volume's, whose name has the same hash.
func (h *Host) mine(volume string) error {
	r, found, err := h.records.Get(keyOf(volume))
	if err == nil && found && r.Volume != volume {
		err = fmt.Errorf("devices %v are those of volume %s: %w", namesOf(volume), r.Volume, provisioner.ErrInUse)
	}
	return err
}

// leave takes back what was made for another attachment, from above: what is staged is not undone under a
// device.
func (h *Host) leave(ctx context.Context, volume string, want *moorv1alpha1.PodStaging) error {
	have := &moorv1alpha1.PodStaging{}
	found, err := kube.Find(ctx, h.o.Stagings.Live, client.ObjectKeyFromObject(want), have)
	if err != nil {
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	if !found || have.Spec.User.UID == want.Spec.User.UID {
		return nil
	}
	return h.remove(ctx, volume)
}

// want is the PodStaging that a volume needs here.
func (h *Host) want(ctx context.Context, spec provisioner.OpenSpec) (*moorv1alpha1.PodStaging, error) {
	pv, err := h.volume(ctx, spec.VolumeID)
	if err != nil {
		return nil, err
	}
	if mode := ptr.Deref(pv.Spec.VolumeMode, corev1.PersistentVolumeFilesystem); string(mode) != string(spec.Mode) {
		return nil, fmt.Errorf("PersistentVolume %s is of mode %s, and %s is asked for: %w", pv.Name, mode, spec.Mode, provisioner.ErrPrecondition)
	}
	name := spec.PublishContext[storagev1alpha1.PublishContextAttachment]
	a := &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, h.o.Stagings.Live, client.ObjectKey{Namespace: h.o.Namespace, Name: name}, a)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	case !found:
		return nil, fmt.Errorf("VolumeAttachment %q, which %s of the publish context names, is not in namespace %s: %w", name, storagev1alpha1.PublishContextAttachment, h.o.Namespace, provisioner.ErrPrecondition)
	}
	return &moorv1alpha1.PodStaging{
		ObjectMeta: metav1.ObjectMeta{Name: h.staging(spec.VolumeID)},
		Spec: moorv1alpha1.PodStagingSpec{
			ProvisionerName: pv.Spec.CSI.Driver, VolumeName: pv.Name, NodeName: h.o.Node,
			User:     moorv1alpha1.StagingUser{Kind: moorv1alpha1.AttachmentUser, Namespace: a.Namespace, Name: a.Name, UID: a.UID},
			ReadOnly: slices.Equal(spec.AccessModes, []provisioner.AccessMode{provisioner.ReadOnlyMany}),
		},
	}, nil
}

// volume is the PersistentVolume of a claim, whose name the volume has.
func (h *Host) volume(ctx context.Context, claim string) (*corev1.PersistentVolume, error) {
	pvc, pv := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
	found, err := kube.Find(ctx, h.o.Stagings.Live, client.ObjectKey{Namespace: h.o.Namespace, Name: claim}, pvc)
	if err == nil && found && pvc.Spec.VolumeName != "" {
		found, err = kube.Find(ctx, h.o.Stagings.Live, client.ObjectKey{Name: pvc.Spec.VolumeName}, pv)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	case !found || pv.Spec.CSI == nil:
		return nil, fmt.Errorf("claim %s/%s is not there, or not bound to a volume of a CSI driver: %w", h.o.Namespace, claim, provisioner.ErrPrecondition)
	}
	return pv, nil
}

// made makes the device of what is staged, beside one of what was staged before that the host may still see.
// After a refusal nothing is left.
func (h *Host) made(ctx context.Context, spec provisioner.OpenSpec, p *moorv1alpha1.PodStaging) (provisioner.Device, error) {
	r, known, err := h.records.Get(keyOf(spec.VolumeID))
	if err == nil && (!known || !r.is(p) || r.Mode != spec.Mode) {
		r, err = h.replace(ctx, record{Volume: spec.VolumeID, Mode: spec.Mode, Staging: p.UID, Pod: p.Status.Report.PodUID})
	}
	if err == nil {
		err = h.o.Targets.Show(show.Want{
			Directory: p.Status.Directory, Target: h.target(r.Device), Mode: corev1.PersistentVolumeMode(r.Mode), ReadOnly: p.Spec.ReadOnly,
		})
	}
	if err != nil {
		return provisioner.Device{}, fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	err = devices{h.o.SNAP}.create(ctx, r.device(), h.target(r.Device), p.Spec.ReadOnly)
	if err != nil && !provisioner.Uncertain(err) {
		return provisioner.Device{}, errors.Join(err, h.remove(ctx, r.Volume))
	}
	return r.device(), err
}

// replace removes what devices of a volume SNAP lets go of, and records the next one by a name that is free:
// one is, as the host sees one device of a volume at a time.
func (h *Host) replace(ctx context.Context, r record) (record, error) {
	var kept error
	names := namesOf(r.Volume)
	for _, device := range names {
		switch err := h.removeDevice(ctx, device); {
		case err == nil:
			r.Device = cmp.Or(r.Device, device)
		case errors.Is(err, provisioner.ErrInUse):
			r.Before, kept = device, err
		default:
			return r, err
		}
	}
	if r.Device == "" || r.Mode == provisioner.Filesystem && r.Device != names[0] {
		return r, kept
	}
	return r, h.records.Put(keyOf(r.Volume), r)
}

// removeDevice removes a device, and then what it was made of from where that is shown.
func (h *Host) removeDevice(ctx context.Context, device string) error {
	if err := (devices{h.o.SNAP}).remove(ctx, device); err != nil {
		return err
	}
	if err := h.o.Targets.Hide(h.target(device)); err != nil {
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	return nil
}

// Close removes the device, and has the volume unstaged. See provisioner.Host.
func (h *Host) Close(ctx context.Context, volume, _ string) error {
	unlock, err := h.lock(volume)
	if err == nil {
		defer unlock()
		var r record
		if r, _, err = h.records.Get(keyOf(volume)); err == nil && (r.Volume == "" || r.Volume == volume) {
			err = h.remove(ctx, volume)
		}
	}
	if err != nil {
		return fmt.Errorf("close volume %q: %w", volume, err)
	}
	return nil
}

// remove undoes what open did, in the other order.
func (h *Host) remove(ctx context.Context, volume string) error {
	for _, device := range namesOf(volume) {
		if err := h.removeDevice(ctx, device); err != nil {
			return err
		}
	}
	bounded, cancel := ask.Bounded(ctx, 0)
	defer cancel()
	p := &moorv1alpha1.PodStaging{}
	found, err := kube.Find(bounded, h.o.Stagings.Live, client.ObjectKey{Name: h.staging(volume)}, p)
	if err != nil {
		return fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
	}
	if found {
		if err := h.o.Stagings.Remove(bounded, p); err != nil {
			return err
		}
	}
	return h.records.Delete(keyOf(volume))
}

// Lookup returns the device of a volume if it is there, and what it was made of is still staged. See
// provisioner.Host.
func (h *Host) Lookup(ctx context.Context, volume string) (provisioner.Device, error) {
	r, known, err := h.records.Get(keyOf(volume))
	if err == nil && known && r.Volume == volume {
		known, err = h.stands(ctx, r)
	}
	switch {
	case err != nil:
		return provisioner.Device{}, fmt.Errorf("device of volume %q: %w", volume, err)
	case !known || r.Volume != volume:
		return provisioner.Device{}, fmt.Errorf("device of volume %q: %w", volume, provisioner.ErrNotFound)
	}
	return r.device(), nil
}

// stands reports whether a device is there, and what it was made of is still staged. The API server itself
// is asked where the cache says that it is not.
func (h *Host) stands(ctx context.Context, r record) (bool, error) {
	there, err := devices{h.o.SNAP}.exists(ctx, r.Device, r.Mode)
	if err != nil || !there {
		return false, err
	}
	for _, from := range []client.Reader{h.o.Stagings.Client, h.o.Stagings.Live} {
		p := &moorv1alpha1.PodStaging{}
		found, err := kube.Find(ctx, from, client.ObjectKey{Name: h.staging(r.Volume)}, p)
		if err != nil {
			return false, fmt.Errorf("%w: %w", provisioner.ErrUnavailable, err)
		}
		if found && r.is(p) {
			return true, nil
		}
	}
	return false, nil
}

// List returns the devices that are there, also those of which nothing is staged any more: they are to be
// closed. See provisioner.Host.
func (h *Host) List(ctx context.Context) ([]provisioner.Device, error) {
	all, err := h.records.All()
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var out []provisioner.Device
	for _, r := range all {
		there, err := devices{h.o.SNAP}.exists(ctx, r.Device, r.Mode)
		if err != nil {
			return nil, fmt.Errorf("list devices: %w", err)
		}
		if there {
			out = append(out, r.device())
		}
	}
	slices.SortFunc(out, func(a, b provisioner.Device) int { return strings.Compare(a.VolumeID, b.VolumeID) })
	return out, nil
}
