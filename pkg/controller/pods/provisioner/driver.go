package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	pavv1alpha1 "github.com/moor-storage/moor/api/pav/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/pods/compiled"
	"github.com/moor-storage/moor/pkg/controller/pods/helper"
)

const (
	// patience is how long a call waits for a volume, before the user is told what it waits for.
	patience = 10 * time.Second
	// remembered is how long it is remembered that a failure was told.
	remembered = 24 * time.Hour
)

// driver makes and removes volumes for the claims of one provisioner, by PodVolumes.
type driver struct {
	name string
	kube.Cluster
	provisioners *compiled.Store
	clock        clock.PassiveClock
	// await returns once done says so of a PodVolume, nil if there is none, or when ctx ends.
	await func(ctx context.Context, name string, done func(v *moorv1alpha1.PodVolume) bool) error
	// told are the failures that users were told, and when first.
	told kube.Recent[time.Time]
}

var _ controller.BlockProvisioner = (*driver)(nil)

// SupportsBlock is true: the provisioner itself says which modes it has, in words.
func (*driver) SupportsBlock(context.Context) bool { return true }

// Provision goes on with a volume for a claim. Errors are for the user of the claim, who finds them
// in its events.
func (d *driver) Provision(ctx context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	v, err := d.find(ctx, o)
	if err == nil && v == nil {
		var state controller.ProvisioningState
		if state, err = d.make(ctx, o); err != nil {
			return nil, state, err
		}
	}
	if waits, _ := judge(v, false); err == nil && (waits == ask || waits == background) {
		v, err = d.settled(ctx, o)
	}
	if err != nil {
		return nil, controller.ProvisioningNoChange, err
	}
	switch what, words := judge(v, v != nil && d.known(v.UID)); what {
	case done:
		return d.offer(ctx, v, o)
	case tell:
		d.tells(v.UID)
		return nil, controller.ProvisioningFinished, errors.New(words)
	case discard:
		if err := kube.Delete(ctx, d.Client, v); err != nil {
			return nil, controller.ProvisioningInBackground, err
		}
		return nil, controller.ProvisioningInBackground, errors.New(words)
	case ask: // it was removed meanwhile
		return nil, controller.ProvisioningInBackground, fmt.Errorf("volume %s is not there yet", o.PVName)
	default:
		return nil, controller.ProvisioningInBackground, errors.New(words)
	}
}

// known reports whether the user was told of a failure, and it is time for another try. The library's
// limit alone does not see to that: it calls at once if a claim is nudged, or changes, while a call for it
// runs, and a failure nudges the claim.
func (d *driver) known(of types.UID) bool {
	now := d.clock.Now()
	since, left := d.told.Get(of, now)
	return left > 0 && now.Sub(since) >= firstRetry
}

// tells remembers when a failure was told first.
func (d *driver) tells(of types.UID) {
	now := d.clock.Now()
	if _, left := d.told.Get(of, now); left == 0 {
		d.told.Note(of, now, now, now.Add(remembered))
	}
}

// find is the PodVolume of a claim; nil if there is none.
func (d *driver) find(ctx context.Context, o controller.ProvisionOptions) (*moorv1alpha1.PodVolume, error) {
	v := &moorv1alpha1.PodVolume{}
	found, err := kube.Find(ctx, d.Client, types.NamespacedName{Name: o.PVName}, v)
	if err != nil || !found {
		return nil, err
	}
	if v.Spec.ProvisionerName != d.name {
		return nil, fmt.Errorf("PodVolume %s is of provisioner %s, and %s is asked for: delete the claim", v.Name, v.Spec.ProvisionerName, d.name)
	}
	return v, nil
}

// settled is the PodVolume once it has come to something, or as it is after a while.
func (d *driver) settled(ctx context.Context, o controller.ProvisionOptions) (*moorv1alpha1.PodVolume, error) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	seen := false
	err := d.await(waiting, o.PVName, func(v *moorv1alpha1.PodVolume) bool {
		if v == nil {
			return seen // it has gone; before, the cache does not show it yet
		}
		seen = true
		what, _ := judge(v, false)
		return what != background || v.Status.Phase == moorv1alpha1.PodVolumeDeletionFailed
	})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	return d.find(ctx, o)
}

// make makes the PodVolume of a claim, if the provisioner takes part and the claim is there.
func (d *driver) make(ctx context.Context, o controller.ProvisionOptions) (controller.ProvisioningState, error) {
	by, err := d.provisioners.Find(ctx, d.Client, d.name)
	if err != nil {
		return controller.ProvisioningNoChange, err
	}
	switch words := refuses(o.PVC); {
	case words != "":
		return controller.ProvisioningFinished, errors.New(words)
	case by.Provisioner == nil || by.Deleting:
		return controller.ProvisioningFinished, errors.New(by.Words)
	case !by.Provisioner.Provides(pavv1alpha1.Dynamic):
		return controller.ProvisioningFinished, fmt.Errorf("provisioner %s makes no volumes for claims: its provisioningModes are without Dynamic", d.name)
	}
	if o.SelectedNodeName != "" {
		node := &metav1.PartialObjectMetadata{}
		node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		found, err := kube.Find(ctx, d.Client, types.NamespacedName{Name: o.SelectedNodeName}, node)
		if err != nil {
			return controller.ProvisioningNoChange, err
		}
		if found && !by.Provisioner.StagesOn(node.Labels) {
			return controller.ProvisioningReschedule, fmt.Errorf("provisioner %s does not stage volumes on node %s, which has not the labels that its nodeSelector asks for", d.name, o.SelectedNodeName)
		}
	}
	claim := &corev1.PersistentVolumeClaim{} // for one that is gone a volume would be made for nothing
	found, err := kube.Find(ctx, d.Live, client.ObjectKeyFromObject(o.PVC), claim)
	if err != nil {
		return controller.ProvisioningNoChange, err
	}
	if !found || claim.UID != o.PVC.UID {
		return controller.ProvisioningFinished, fmt.Errorf("claim %s/%s is gone", o.PVC.Namespace, o.PVC.Name)
	}
	v, err := volumeOf(o.PVName, d.name, claim, o.StorageClass)
	if err != nil {
		return controller.ProvisioningFinished, err
	}
	_, err = kube.CreateLive(ctx, d.Client, d.Live, v)
	return controller.ProvisioningInBackground, err
}

// offer is the PersistentVolume of a volume that is there. That it was offered is written first: from
// then on it is not given up with its claim.
func (d *driver) offer(ctx context.Context, v *moorv1alpha1.PodVolume, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	by, err := d.provisioners.Find(ctx, d.Client, d.name)
	if err == nil && by.Provisioner == nil {
		err = errors.New(by.Words)
	}
	if err == nil {
		_, err = kube.PatchExact(ctx, d.Client, v, func(v *moorv1alpha1.PodVolume) {
			if v.Annotations == nil {
				v.Annotations = map[string]string{}
			}
			v.Annotations[moorv1alpha1.AnnotationOffered] = "true"
		})
	}
	if err == nil && !v.DeletionTimestamp.IsZero() {
		err = fmt.Errorf("volume %s is being removed", v.Name)
	}
	if err != nil {
		return nil, controller.ProvisioningInBackground, err
	}
	return persistentVolume(v, o.PVC, o.StorageClass, by.Provisioner.NodeSelector()), controller.ProvisioningFinished, nil
}

// Delete removes the volume of a PersistentVolume, and waits until it is gone. Of one that a person has
// made there is nothing to remove.
func (d *driver) Delete(ctx context.Context, pv *corev1.PersistentVolume) error {
	v, err := d.behind(ctx, pv)
	if err != nil || v == nil {
		return err
	}
	if err := kube.Delete(ctx, d.Client, v); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	last := v
	err = d.await(waiting, v.Name, func(now *moorv1alpha1.PodVolume) bool {
		last = now
		return now == nil || now.UID != v.UID || now.Status.Phase == moorv1alpha1.PodVolumeDeletionFailed
	})
	switch {
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return err
	case last == nil || last.UID != v.UID:
		return nil
	case last.Status.Phase == moorv1alpha1.PodVolumeDeletionFailed:
		return errors.New(helper.AndAgain(last.Status.Message, "podvolume", last.Name))
	}
	return fmt.Errorf("volume %s is being removed: %s", v.Name, orElse(last.Status.Message, "that has just begun"))
}

// behind is the PodVolume of a PersistentVolume; nil if there is none.
func (d *driver) behind(ctx context.Context, pv *corev1.PersistentVolume) (*moorv1alpha1.PodVolume, error) {
	v := &moorv1alpha1.PodVolume{}
	key := types.NamespacedName{Name: pv.Name}
	found, err := kube.Find(ctx, d.Client, key, v)
	if err == nil && !found {
		found, err = kube.Find(ctx, d.Live, key, v)
	}
	if err != nil || !found || v.Spec.ProvisionerName != d.name || pv.Spec.CSI == nil || pv.Spec.CSI.VolumeHandle != v.Status.Handle {
		return nil, err
	}
	return v, nil
}
