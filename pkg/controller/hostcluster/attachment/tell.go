package attachment

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// promotion is a host that has just become a volume's primary.
type promotion struct {
	host, dpu string
	// replica: the host had one, and warmth is how far it had come.
	replica bool
	warmth  storagev1alpha1.Warmth
	// epoch granted; 0 for volumes with many writers.
	epoch int64
	// last is the receipt of the epoch before; nil if there is none.
	last *moorv1alpha1.Receipt
}

// told says whether a promotion is worth an event: the first attachment of a
// volume, and those of volumes without replicas or failover, are everyday.
func (p promotion) told(volume *storagev1alpha1.DPUVolume) bool {
	return p.replica || p.epoch > 1 && volume.Spec.Replication != nil
}

// message tells where the volume is now, from what, and how the epoch before
// ended: a new pod has no events of that.
func (p promotion) message() string {
	from := "cold, as it had no replica"
	if p.replica {
		from = fmt.Sprintf("from its replica, which was %s", cmp.Or(string(p.warmth), "not ready"))
	}
	out := fmt.Sprintf("host %s has the volume now, %s", p.host, from)
	if p.epoch != 0 {
		out += fmt.Sprintf("; DPU %s may write under epoch %d", p.dpu, p.epoch)
	}
	if p.last != nil {
		out += fmt.Sprintf(". Epoch %d of DPU %s is over, receipt %s: %s", p.last.Epoch, p.last.Holder, p.last.Kind, p.last.Message)
	}
	return out
}

func (r *Reconciler) tellPromoted(p *pass, to promotion) {
	to.host, to.dpu = p.attachment.Spec.DPUNodeName, p.dpu
	if r.Recorder != nil && to.told(p.volume) {
		r.Recorder.Event(p.volume, corev1.EventTypeNormal, storagev1alpha1.EventPromoted, to.message())
	}
}

// tellAttached tells that the host sees the device, once for each time, and
// only what a promotion of the volume is told of.
func (r *Reconciler) tellAttached(p *pass, before, now storagev1alpha1.DPUVolumeAttachmentStatus) {
	was, is := before.DPUAttached != nil && *before.DPUAttached, now.DPUAttached != nil && *now.DPUAttached
	if r.Recorder == nil || was || !is || p.replica() && !p.begun() || now.Epoch == 1 || p.volume == nil || p.volume.Spec.Replication == nil {
		return
	}
	message := fmt.Sprintf("DPU %s shows the volume to host %s", p.dpu, p.attachment.Spec.DPUNodeName)
	if now.DPU != nil {
		message += " at " + now.DPU.PCIAddress
	}
	if now.Epoch != 0 {
		message += fmt.Sprintf(" (epoch %d)", now.Epoch)
	}
	r.Recorder.Event(p.volume, corev1.EventTypeNormal, storagev1alpha1.EventAttached, message)
}

// tellPath tells when the way of the DPU to the storage of the volume is lost, and when it is
// found again. Of a replica, which no pod uses, the condition says it.
func (r *Reconciler) tellPath(p *pass, before, now []metav1.Condition) {
	was, is := meta.IsStatusConditionFalse(before, storagev1alpha1.ConditionPathHealthy), meta.FindStatusCondition(now, storagev1alpha1.ConditionPathHealthy)
	lost := is != nil && is.Status == metav1.ConditionFalse
	if r.Recorder == nil || p.volume == nil || p.replica() && !p.begun() || was == lost {
		return
	}
	if !lost {
		r.Recorder.Event(p.volume, corev1.EventTypeNormal, storagev1alpha1.EventPathFound, fmt.Sprintf("DPU %s of host %s reaches the storage again", p.dpu, p.attachment.Spec.DPUNodeName))
		return
	}
	follows := "nothing is done by itself: I/O waits until it does, or fails"
	if timeout := p.volume.Spec.Replication.PathTimeout(); timeout > 0 && p.single() {
		follows = fmt.Sprintf("if that lasts for %s, the volume moves to another host whose DPU reaches it; where none does, I/O waits", timeout)
	}
	r.Recorder.Event(p.volume, corev1.EventTypeWarning, storagev1alpha1.EventPathLost, fmt.Sprintf("host %s does not reach the storage, %s; %s", p.attachment.Spec.DPUNodeName, is.Message, follows))
}
