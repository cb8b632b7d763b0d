// Package attachment lets nodes use volumes by DPUVolumeAttachments: it makes
// one, or promotes the replica that is there, waits until the DPU shows the
// device, and gives it back. It grants nothing: snap-host-controller does.
package attachment

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/storageclass"
)

// Attachments makes DPUVolumeAttachments and waits until the DPU shows the
// device.
type Attachments struct {
	options request.Options
	awaiter *kube.Awaiter[*storagev1alpha1.DPUVolumeAttachment]
	// requester is who asks; Node: see NodeAttachments.
	requester storagev1alpha1.Requester
}

var _ provisioner.Attachments = (*Attachments)(nil)

// New watches the DPUVolumeAttachments. The controller asks.
func New(ctx context.Context, o request.Options) (*Attachments, error) {
	if err := kube.AddIndexes(ctx, o.Cache, Index()); err != nil {
		return nil, err
	}
	return watch(ctx, o, "")
}

func watch(ctx context.Context, o request.Options, requester storagev1alpha1.Requester) (*Attachments, error) {
	awaiter, err := kube.NewAwaiter(ctx, o.Cache, func() *storagev1alpha1.DPUVolumeAttachment { return &storagev1alpha1.DPUVolumeAttachment{} })
	if err != nil {
		return nil, err
	}
	return &Attachments{options: o, awaiter: awaiter, requester: requester}, nil
}

// Attach makes the DPUVolumeAttachment of the volume to spec.Node, or promotes
// the replica that is there, and waits until that node's DPU shows the device.
// ErrExhausted if the DPU has no function left for it; what this call has made
// is gone then.
func (a *Attachments) Attach(ctx context.Context, spec provisioner.AttachSpec) (provisioner.Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, a.options.Patience(ctx))
	defer cancel()
	what := fmt.Sprintf("attach volume %s to node %s", spec.VolumeID, spec.Node)
	want, err := a.wanted(ctx, spec)
	if err != nil {
		return provisioner.Attachment{}, fmt.Errorf("%s: %w", what, err)
	}
	asked, err := a.ask(ctx, want)
	if err != nil {
		return provisioner.Attachment{}, fmt.Errorf("%s: %w", what, err)
	}
	last, err := a.await(ctx, asked)
	if err != nil {
		return provisioner.Attachment{}, a.orExhausted(ctx, last, request.Waited(err, what, last.Status.Conditions))
	}
	return Publish(last)
}

// asking is an attachment that was asked for.
type asking struct {
	key client.ObjectKey
	uid types.UID
	// made by this very call: it was not there before.
	made bool
}

// await waits until the DPU shows the device. It takes a request that this call
// has made back where the DPU has no function left for it.
func (a *Attachments) await(ctx context.Context, asked asking) (*storagev1alpha1.DPUVolumeAttachment, error) {
	past := "" // a version that is not the last
	for {
		last, err := a.awaiter.Await(ctx, asked.key, func(o *storagev1alpha1.DPUVolumeAttachment, found bool) (bool, error) {
			if !found || o.UID != asked.uid {
				return false, nil
			}
			if !o.DeletionTimestamp.IsZero() {
				return false, fmt.Errorf("%w: the attachment is being deleted", provisioner.ErrBusy)
			}
			if TakenAway(o) {
				return false, fmt.Errorf("%w: the volume was taken from this node, and the pod that had it has to go first: %s", provisioner.ErrBusy, o.Status.Message)
			}
			return Shown(o) || asked.made && isExhausted(o) && o.ResourceVersion != past, nil
		})
		if err != nil || Shown(last) {
			return last, err
		}
		if err = a.withdraw(ctx, last); !apierrors.IsConflict(err) {
			return last, err
		}
		past = last.ResourceVersion
	}
}

// wanted checks that the attachment can be, and is what to make.
func (a *Attachments) wanted(ctx context.Context, spec provisioner.AttachSpec) (*storagev1alpha1.DPUVolumeAttachment, error) {
	volume, err := a.volume(ctx, spec.VolumeID)
	if err != nil {
		return nil, err
	}
	if err := a.nodeHasDPU(ctx, spec.Node); err != nil {
		return nil, err
	}
	want, err := a.object(spec)
	if err != nil || a.byNode() {
		return want, err
	}
	return want, a.freeFor(ctx, volume, want)
}

// freeFor is ErrInUse while another node has a single-node volume. Of two
// nodes that ask at once, both may get as far as an attachment; the one whose
// device is not shown gives way.
func (a *Attachments) freeFor(ctx context.Context, volume *storagev1alpha1.DPUVolume, want *storagev1alpha1.DPUVolumeAttachment) error {
	if !provisioner.SingleNode(volume.Spec.AccessModes) {
		return nil
	}
	own := &storagev1alpha1.DPUVolumeAttachment{}
	asked, err := kube.Find(ctx, a.options.Client, client.ObjectKeyFromObject(want), own)
	if err != nil {
		return request.Refused("read attachment "+want.Name, err)
	}
	users, err := Users(ctx, a.options, volume.Name)
	if err != nil {
		return err
	}
	asked = asked && own.Spec.Role != storagev1alpha1.RoleReplica
	holder := holderOf(users, want.Name, asked, Shown(own))
	if holder == "" {
		return nil
	}
	if asked {
		if err := a.remove(ctx, want.Name); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: only one node at a time can use volume %s, and it is attached to node %s: detach it there first", provisioner.ErrInUse, volume.Name, holder)
}

// holderOf is the node, other than that of attachment name, that has a
// single-node volume; "" if none. users are the volume's attachments; asked
// says whether name is among them or was, shown whether its device is shown.
func holderOf(users []storagev1alpha1.DPUVolumeAttachment, name string, asked, ownShown bool) string {
	for i := range users {
		if users[i].Name != name && !ownShown && (!asked || Shown(&users[i])) {
			return users[i].Spec.DPUNodeName
		}
	}
	return ""
}

// ask makes the attachment, or makes the one that is there the primary. Taking
// over the replica is all of a promotion here: snap-host-controller, which grants
// the right to write, sees the role change.
func (a *Attachments) ask(ctx context.Context, want *storagev1alpha1.DPUVolumeAttachment) (asking, error) {
	have := want.DeepCopy()
	made, err := a.make(ctx, have)
	if err != nil {
		return asking{}, request.Refused("ask for it", err)
	}
	out := asking{key: client.ObjectKeyFromObject(have), uid: have.UID, made: made}
	asked, replica := have.Spec, have.Spec.Role == storagev1alpha1.RoleReplica
	asked.Role, asked.Warmth = want.Spec.Role, want.Spec.Warmth
	if !replica && have.Spec.OfNode() != want.Spec.OfNode() {
		return asking{}, fmt.Errorf("%w: attachment %s was asked for by another (spec.requester %q): delete it first",
			provisioner.ErrExists, want.Name, have.Spec.Requester)
	}
	asked.Requester = want.Spec.Requester
	switch {
	case asked != want.Spec && replica:
		// It would stand in the way for ever.
		if err := kube.Delete(ctx, a.options.Client, have); err != nil {
			return asking{}, request.Refused("release replica "+want.Name, err)
		}
		return asking{}, fmt.Errorf("%w: the replica there is of another function, or not for read-only alike; it is being released: ask again", provisioner.ErrBusy)
	case asked != want.Spec:
		return asking{}, fmt.Errorf("%w: attachment %s asks for another volume, node or function, or not for read-only alike", provisioner.ErrExists, want.Name)
	case replica:
		err = a.requestPromotion(ctx, have, want)
	}
	return out, err
}

// requestPromotion asks that the replica becomes the primary that is wanted.
func (a *Attachments) requestPromotion(ctx context.Context, have, want *storagev1alpha1.DPUVolumeAttachment) error {
	_, err := kube.Patch(ctx, a.options.Client, have, func(o *storagev1alpha1.DPUVolumeAttachment) {
		o.Spec.Role, o.Spec.Requester = want.Spec.Role, want.Spec.Requester
	})
	if kube.IsNotFound(err) {
		return fmt.Errorf("%w: replica %s was released at this moment: ask again", provisioner.ErrBusy, want.Name)
	}
	if err != nil {
		return request.Refused("promote replica "+want.Name, err)
	}
	return nil
}

// Detach deletes the volume's attachment to node (empty: to every node) and
// waits until it is gone: the DPU has then withdrawn the device.
func (a *Attachments) Detach(ctx context.Context, volumeID, node string) error {
	ctx, cancel := context.WithTimeout(ctx, a.options.Patience(ctx))
	defer cancel()
	if a.byNode() {
		return a.giveBack(ctx, volumeID, node)
	}
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
		if kube.IsNotFound(err) {
			return nil
		}
		return request.Refused(what, err)
	}
	last, err := request.AwaitDeleted(ctx, a.options, a.awaiter, obj)
	return request.Waited(err, what, last.Status.Conditions)
}

// of names the attachments of a volume.
func (a *Attachments) of(ctx context.Context, volumeID string) ([]string, error) {
	all, err := All(ctx, a.options, volumeID)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range all {
		names = append(names, all[i].Name)
	}
	return names, nil
}

func (a *Attachments) volume(ctx context.Context, id string) (*storagev1alpha1.DPUVolume, error) {
	key := types.NamespacedName{Namespace: a.options.Namespace, Name: id}
	volume := &storagev1alpha1.DPUVolume{}
	found, err := kube.Find(ctx, a.options.Client, key, volume)
	if err != nil {
		return nil, request.Refused("read volume "+id, err)
	}
	if !found {
		return nil, fmt.Errorf("volume %s: %w in namespace %s", id, provisioner.ErrNotFound, a.options.Namespace)
	}
	return volume, nil
}

func (a *Attachments) nodeHasDPU(ctx context.Context, node string) error {
	var known moorv1alpha1.DPUStorageNode
	found, err := kube.Find(ctx, a.options.Client, types.NamespacedName{Name: node}, &known)
	switch {
	case err != nil:
		return request.Refused("read DPUStorageNode "+node, err)
	case !found:
		return fmt.Errorf("node %s: %w: there is no DPUStorageNode of that name; does snap-csi-plugin run on that node?", node, provisioner.ErrNotFound)
	case known.Spec.DPUName == "":
		return fmt.Errorf("node %s has no DPU: %w: set spec.dpuName of DPUStorageNode %s to the DPU's node name in the DPU cluster", node, provisioner.ErrPrecondition, node)
	}
	return nil
}

// object is the attachment to make. It is made with the finalizer that
// snap-host-controller would add first of all, which spares a write and a pass.
func (a *Attachments) object(spec provisioner.AttachSpec) (*storagev1alpha1.DPUVolumeAttachment, error) {
	f, err := storageclass.FunctionOf(spec.VolumeContext)
	if err != nil {
		return nil, err
	}
	var hold []string
	if !a.byNode() { // a host's request has none
		hold = []string{storagev1alpha1.FinalizerDPUVolumeAttachment}
	}
	return &storagev1alpha1.DPUVolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: kube.AttachmentName(spec.Node, spec.VolumeID), Namespace: a.options.Namespace, Finalizers: hold},
		Spec: storagev1alpha1.DPUVolumeAttachmentSpec{
			DPUNodeName: spec.Node, DPUVolumeName: spec.VolumeID, FunctionTypeConfig: f, ReadOnly: spec.ReadOnly, Requester: a.requester,
		},
	}, nil
}
