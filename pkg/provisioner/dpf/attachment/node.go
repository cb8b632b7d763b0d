package attachment

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/provisioner/dpf/request"
)

// nodeWait bounds one wait of a node. While a call waits, the kubelet can do
// nothing about that volume, not even for a pod that has gone; the request
// stays, so a repeated call loses nothing.
const nodeWait = 30 * time.Second

// ForNode is provisioner.Attachments for a host's own node plugin. It
// differs from the controller's in three things. It asks as the Node, so that
// the request is granted only while a pod there uses the volume. It looks at
// no other node's attachments: who else has the volume is for the writer
// claim to say, and a request that waits for it is granted the moment it is
// free. And it gives back only what a node asked for, never a user's
// attachment or a replica.
func ForNode(ctx context.Context, o request.Options) (*Attachments, error) {
	if o.Timeout == 0 {
		o.Timeout = nodeWait
	}
	return watch(ctx, o, storagev1alpha1.RequesterNode)
}

func (a *Attachments) byNode() bool { return a.requester == storagev1alpha1.RequesterNode }

// make makes the attachment, or reads the one of that name, and reports whether
// it made it. A node's cache shows its own attachments alone, so it asks the server.
func (a *Attachments) make(ctx context.Context, have *storagev1alpha1.DPUVolumeAttachment) (bool, error) {
	if a.byNode() {
		return kube.CreateLive(ctx, a.options.Client, a.options.Live, have)
	}
	return kube.Create(ctx, a.options.Client, have)
}

// giveBack deletes the node's own request and waits until it is gone. That it
// is there, or gone, only the server can say: the cache may not show yet what
// a call that was cut short has made.
func (a *Attachments) giveBack(ctx context.Context, volumeID, node string) error {
	key := client.ObjectKey{Namespace: a.options.Namespace, Name: kube.AttachmentName(node, volumeID)}
	what := "give attachment " + key.Name + " back"
	have := &storagev1alpha1.DPUVolumeAttachment{}
	found, err := kube.Find(ctx, a.options.Live, key, have)
	if err != nil {
		return request.Refused(what, err)
	}
	if !found || !have.Spec.OfNode() || have.Spec.DPUNodeName != node || have.Spec.DPUVolumeName != volumeID {
		return nil
	}
	if err := kube.Delete(ctx, a.options.Client, have); err != nil {
		return request.Refused(what, err)
	}
	last, err := a.awaiter.Await(ctx, key, func(o *storagev1alpha1.DPUVolumeAttachment, shown bool) (bool, error) {
		if shown && o.UID == have.UID {
			return false, nil
		}
		now := &storagev1alpha1.DPUVolumeAttachment{}
		there, err := kube.Find(ctx, a.options.Live, key, now)
		return !there || now.UID != have.UID, err
	})
	return request.Waited(err, what, last.Status.Conditions)
}
