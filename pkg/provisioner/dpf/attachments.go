package dpf

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
)

// Keys of the publish context, as DPF names them.
const (
	publishVolume      = "nv-volumeName"
	publishAttachment  = "nv-volumeAttachmentName"
	publishPCIAddress  = "nv-pciDeviceAddress"
	publishNamespaceID = "nv-nvmeNsID"
)

// Attachments makes DPUVolumeAttachments and waits until the DPU shows the
// device.
type Attachments struct {
	options Options
	awaiter *kube.Awaiter[*storagev1alpha1.DPUVolumeAttachment]
}

var _ provisioner.Attachments = (*Attachments)(nil)

// Attach makes the DPUVolumeAttachment of the volume to spec.Node and waits
// until that node's DPU shows the device.
func (a *Attachments) Attach(ctx context.Context, spec provisioner.AttachSpec) (provisioner.Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, a.options.Timeout)
	defer cancel()
	what := fmt.Sprintf("attach volume %s to node %s", spec.VolumeID, spec.Node)
	if err := a.volumeExists(ctx, spec.VolumeID); err != nil {
		return provisioner.Attachment{}, fmt.Errorf("%s: %w", what, err)
	}
	if err := a.nodeHasDPU(ctx, spec.Node); err != nil {
		return provisioner.Attachment{}, fmt.Errorf("%s: %w", what, err)
	}
	want, err := a.object(spec)
	if err != nil {
		return provisioner.Attachment{}, fmt.Errorf("%s: %w", what, err)
	}
	have := want.DeepCopy()
	if _, err := kube.Create(ctx, a.options.Client, have); err != nil {
		return provisioner.Attachment{}, refused(what, err)
	}
	if have.Spec != want.Spec {
		return provisioner.Attachment{}, fmt.Errorf("%s: %w: attachment %s asks for another volume, node or function, or not for read-only alike", what, provisioner.ErrExists, want.Name)
	}
	uid := have.UID
	shown, err := a.awaiter.Await(ctx, client.ObjectKeyFromObject(want), func(o *storagev1alpha1.DPUVolumeAttachment, found bool) (bool, error) {
		if !found || o.UID != uid {
			return false, nil
		}
		if !o.DeletionTimestamp.IsZero() {
			return false, fmt.Errorf("%w: the attachment is being deleted", provisioner.ErrBusy)
		}
		return o.Status.DPUAttached != nil && *o.Status.DPUAttached, nil
	})
	if err != nil {
		return provisioner.Attachment{}, waited(err, what, shown.Status.Conditions)
	}
	return publish(shown)
}

// Detach deletes the volume's attachment to node (empty: to every node) and
// waits until it is gone: the DPU has then withdrawn the device.
func (a *Attachments) Detach(ctx context.Context, volumeID, node string) error {
	ctx, cancel := context.WithTimeout(ctx, a.options.Timeout)
	defer cancel()
	names := []string{kube.AttachmentName(node, volumeID)}
	if node == "" {
		var err error
		if names, err = a.of(ctx, volumeID); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := a.remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (a *Attachments) remove(ctx context.Context, name string) error {
	what := "remove attachment " + name
	obj := &storagev1alpha1.DPUVolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: a.options.Namespace}}
	if err := a.options.Client.Delete(ctx, obj); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return refused(what, err)
	}
	last, err := a.awaiter.Await(ctx, client.ObjectKeyFromObject(obj), func(o *storagev1alpha1.DPUVolumeAttachment, found bool) (bool, error) {
		return !found, nil
	})
	return waited(err, what, last.Status.Conditions)
}

// of names the attachments of a volume.
func (a *Attachments) of(ctx context.Context, volumeID string) ([]string, error) {
	var list storagev1alpha1.DPUVolumeAttachmentList
	if err := a.options.Client.List(ctx, &list, client.InNamespace(a.options.Namespace)); err != nil {
		return nil, refused("list the attachments of volume "+volumeID, err)
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].Spec.DPUVolumeName == volumeID {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}

func (a *Attachments) volumeExists(ctx context.Context, id string) error {
	key := types.NamespacedName{Namespace: a.options.Namespace, Name: id}
	found, err := kube.Find(ctx, a.options.Client, key, &storagev1alpha1.DPUVolume{})
	if err != nil {
		return refused("read volume "+id, err)
	}
	if !found {
		return fmt.Errorf("volume %s: %w in namespace %s", id, provisioner.ErrNotFound, a.options.Namespace)
	}
	return nil
}

func (a *Attachments) nodeHasDPU(ctx context.Context, node string) error {
	var known moorv1alpha1.DPUStorageNode
	found, err := kube.Find(ctx, a.options.Client, types.NamespacedName{Name: node}, &known)
	switch {
	case err != nil:
		return refused("read DPUStorageNode "+node, err)
	case !found:
		return fmt.Errorf("node %s: %w: there is no DPUStorageNode of that name; does snap-csi-plugin run on that node?", node, provisioner.ErrNotFound)
	case known.Spec.DPUName == "":
		return fmt.Errorf("node %s has no DPU: %w: set spec.dpuName of DPUStorageNode %s to the DPU's node name in the DPU cluster", node, provisioner.ErrPrecondition, node)
	}
	return nil
}

func (a *Attachments) object(spec provisioner.AttachSpec) (*storagev1alpha1.DPUVolumeAttachment, error) {
	f, err := function(spec.VolumeContext)
	if err != nil {
		return nil, err
	}
	return &storagev1alpha1.DPUVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: kube.AttachmentName(spec.Node, spec.VolumeID), Namespace: a.options.Namespace},
		Spec: storagev1alpha1.DPUVolumeAttachmentSpec{
			DPUNodeName: spec.Node, DPUVolumeName: spec.VolumeID, FunctionTypeConfig: f, ReadOnly: spec.ReadOnly,
		},
	}, nil
}

// publish is the publish context of a shown attachment; the vendor's metadata
// must not take one of the names that are ours.
func publish(o *storagev1alpha1.DPUVolumeAttachment) (provisioner.Attachment, error) {
	context := maps.Clone(o.Status.AttachmentMetadata)
	if context == nil {
		context = map[string]string{}
	}
	ours := map[string]string{publishVolume: o.Spec.DPUVolumeName, publishAttachment: o.Name}
	if dpu := o.Status.DPU; dpu != nil {
		ours[publishPCIAddress] = dpu.PCIAddress
		if dpu.NVMeAttrs != nil {
			ours[publishNamespaceID] = strconv.FormatInt(dpu.NVMeAttrs.NamespaceID, 10)
		}
	}
	for key, value := range ours {
		if _, taken := context[key]; taken {
			return provisioner.Attachment{}, fmt.Errorf("attachment %s: the vendor's metadata uses the reserved name %s", o.Name, key)
		}
		context[key] = value
	}
	return provisioner.Attachment{PublishContext: context}, nil
}
