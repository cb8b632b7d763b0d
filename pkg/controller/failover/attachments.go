package failover

import (
	"context"
	"crypto/sha256"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// detach deletes the VolumeAttachments of Kubernetes of those volumes that no pod
// stays with. The attach-detach controller would do it when the pods are gone, but
// then looks only every half a second whether they are detached; of those that are
// gone already it need not ask.
func (f *Failover) detach(ctx context.Context, p *pass, free, staying map[string]bool) error {
	return forEach(p.targets, func(t *target) error {
		volume := t.volume.Name
		if !free[volume] || staying[volume] || t.attachment.Spec.Requester == storagev1alpha1.RequesterNode || !t.attachment.DeletionTimestamp.IsZero() {
			return nil
		}
		va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: attachmentName(volume, f.Driver, p.node.Name)}}
		if err := client.IgnoreNotFound(f.Host.Client.Delete(ctx, va)); err != nil {
			return fmt.Errorf("delete VolumeAttachment %s, of volume %s to host %s: %w", va.Name, volume, p.node.Name, err)
		}
		return nil
	})
}

// attachmentName is what Kubernetes calls the VolumeAttachment of a volume to a
// node (getAttachmentName in pkg/volume/csi/csi_attacher.go of Kubernetes; the
// kubelet finds it by that name).
func attachmentName(volume, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(volume+driver+node)))
}
