package failover

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/controller/failover/doubt"
)

// releaser lets the pods of a host go that has lost its volumes, and gives a host
// back that is healthy again.
type releaser struct {
	host     kube.Cluster
	drivers  []string
	pods     podReader
	recorder record.EventRecorder
	clock    clock.PassiveClock
	progress *progress
	// asked are the attachments whose VolumeAttachments were deleted within askAgain: an
	// attacher that hangs holds them, and a host is looked at every few seconds. To ask a
	// cache instead would take one of all VolumeAttachments.
	asked *kube.Recent[struct{}]
}

// release lets the pods of a dead host go whose volumes it can no longer
// write to: the taint makes the attach-detach controller detach at once, and
// the forced delete lets the replacement start.
func (r releaser) release(ctx context.Context, p *pass) error {
	free, kept := p.divide()
	if len(free) == 0 || p.core == nil || p.observation.ZeroTrust { // no pod uses what a person attached
		return nil
	}
	if p.yields = r.yields(p); p.yields {
		p.retryBy(stuckAfter / 2)
		return nil
	}
	if reason := r.others(p); reason != "" {
		p.waits = append(p.waits, reason)
		return nil
	}
	pods, err := r.pods.on(ctx, p.node.Name, kept)
	if err != nil {
		return err
	}
	going, staying := p.part(pods, free, kept)
	// No new pod is to come in place of one that goes.
	if err := r.taint(ctx, p); err != nil {
		return err
	}
	return atOnce(
		func() error { return r.detach(ctx, p, free, staying) },
		func() error { return forEach(going, func(pod *pod) error { return r.forceDelete(ctx, p, pod) }) },
	)
}

// yields reports whether the release of a host waits for the fences of others that get on,
// as when a rack dies: to release a volume costs ten times the requests that make it free,
// and no host may keep another's volumes waiting by them. It does not wait for long, nor
// for one that is stuck.
func (r releaser) yields(p *pass) bool {
	began := meta.FindStatusCondition(p.node.Status.Conditions, moorv1alpha1.ConditionFailover)
	now := r.clock.Now()
	return began != nil && now.Sub(began.LastTransitionTime.Time) < busyGrace && !tainted(p.core) && r.progress.others(p.node.Name, now)
}

// part tells the pods of the host that use a free volume. Those go that use no
// other; the volumes of the others are staying.
func (p *pass) part(pods []*pod, free, kept map[string]bool) (going []*pod, staying map[string]bool) {
	staying = map[string]bool{}
	for _, pod := range pods {
		switch {
		case !pod.uses(free):
		case pod.uses(kept):
			p.waits = append(p.waits, fmt.Sprintf("pod %s/%s also uses a volume that is not free", pod.Namespace, pod.Name))
			for _, v := range pod.volumes {
				staying[v] = true
			}
		default:
			going = append(going, pod)
		}
	}
	return going, staying
}

// certain reports whether a DPU sees the host dead, which is more than silence; or saw it
// dead before it fell silent, and nothing was heard of the host since: its word never
// changes then, however well the host was meanwhile.
func (p *pass) certain() bool { return p.state == HostDead || p.observation.Attested }

// divide says of which volumes the pods may go: a single-writer volume to
// which the host can no longer write, through whatever DPU, or one with many writers if
// the host is certainly dead.
func (p *pass) divide() (free, kept map[string]bool) {
	free, kept = map[string]bool{}, map[string]bool{}
	for _, t := range p.targets {
		if t.fails && !p.writable(t) && (t.single || p.certain()) {
			free[t.volume.Name] = true
		} else {
			kept[t.volume.Name] = true
		}
	}
	// It may be attached to the host twice, by hand.
	maps.DeleteFunc(free, func(volume string, _ bool) bool { return kept[volume] })
	return free, kept
}

// others says why the host may not be put out of service: the taint
// detaches the volumes of other drivers too, which are not fenced.
func (r releaser) others(p *pass) string {
	if p.certain() {
		return ""
	}
	for _, v := range p.core.Status.VolumesAttached {
		ours := func(driver string) bool { return strings.HasPrefix(string(v.Name), "kubernetes.io/csi/"+driver+"^") }
		if !slices.ContainsFunc(r.drivers, ours) {
			return fmt.Sprintf("no DPU saw the host dead since it was last heard, and volume %s of another driver is attached to it: an operator who knows that it is off may put the taint %s",
				v.Name, corev1.TaintNodeOutOfService)
		}
	}
	return ""
}

// detach deletes the VolumeAttachments of Kubernetes of those volumes that no pod
// stays with. The attach-detach controller would do it when the pods are gone, but
// then looks only every half a second whether they are detached; of those that are
// gone already it need not ask.
func (r releaser) detach(ctx context.Context, p *pass, free, staying map[string]bool) error {
	return forEach(p.targets, func(t *target) error {
		volume := t.volume.Name
		if !free[volume] || staying[volume] || t.attachment.Spec.Requester == storagev1alpha1.RequesterNode || !t.attachment.DeletionTimestamp.IsZero() {
			return nil
		}
		now := r.clock.Now()
		if _, left := r.asked.Get(t.attachment.UID, now); left > 0 {
			return nil
		}
		asked := false
		for _, driver := range r.drivers {
			va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: podvolume.AttachmentName(volume, driver, p.node.Name)}}
			switch err := r.host.Client.Delete(ctx, va); {
			case kube.IsNotFound(err): // it may come yet, for a pod that was bound here in the last moment
			case err != nil:
				return fmt.Errorf("delete VolumeAttachment %s, of volume %s to host %s: %w", va.Name, volume, p.node.Name, err)
			default:
				asked = true
			}
		}
		if asked {
			r.asked.Note(t.attachment.UID, struct{}{}, now, now.Add(askAgain))
		}
		return nil
	})
}

// taint puts the host out of service. Kubernetes asks for the key alone, and
// NoSchedule keeps pods away. NoExecute would have it delete the host's pods by
// name, and of a StatefulSet that may be the new pod on another host already.
func (r releaser) taint(ctx context.Context, p *pass) error {
	if slices.ContainsFunc(p.core.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }) {
		return nil
	}
	_, err := kube.PatchExact(ctx, r.host.Client, p.core, func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: taintValue, Effect: corev1.TaintEffectNoSchedule})
	})
	if err == nil {
		r.recorder.Event(p.core, corev1.EventTypeWarning, moorv1alpha1.EventOutOfService, fmt.Sprintf("the host is %s: %s", p.state, p.evidence))
	}
	return err
}

// evict lets the pods go, in order, that use a volume which a living host has
// lost: its kubelet is there to clean up, and the extender keeps new ones off a
// host whose DPU is silent.
func (r releaser) evict(ctx context.Context, p *pass) error {
	free, kept := p.divide()
	if len(free) == 0 || p.observation.ZeroTrust { // no pod uses what a person attached
		return nil
	}
	pods, err := r.pods.on(ctx, p.node.Name, kept)
	if err != nil {
		return err
	}
	going, _ := p.part(pods, free, kept)
	return forEach(going, func(pod *pod) error {
		if pod.DeletionTimestamp != nil {
			return nil
		}
		why := fmt.Sprintf("deleted: DPU %s has taken its volume from this host, as it had promised to do when it is not heard", p.dpu())
		switch {
		case p.doubt() == doubt.DPUSilent && !p.requested():
			why = fmt.Sprintf("deleted: its volume was taken from host %s with a receipt, whose DPU %s is silent", p.node.Name, p.dpu())
		case p.requested():
			why = fmt.Sprintf("deleted: its volume was taken from host %s with a receipt, whose failover was requested by %s", p.node.Name, p.node.Spec.Failover.RequestedBy)
		}
		r.recorder.Event(&pod.Pod, corev1.EventTypeWarning, storagev1alpha1.EventFailoverReleased, why)
		return r.delete(ctx, pod)
	})
}

// forceDelete deletes exactly the pod that was read, without grace: no kubelet
// is there to confirm it.
func (r releaser) forceDelete(ctx context.Context, p *pass, pod *pod) error {
	if grace := pod.DeletionGracePeriodSeconds; pod.DeletionTimestamp != nil && grace != nil && *grace == 0 {
		return nil
	}
	r.recorder.Event(&pod.Pod, corev1.EventTypeWarning, storagev1alpha1.EventFailoverReleased,
		fmt.Sprintf("deleted by force: host %s is %s, and its volumes were taken from it with a receipt", p.node.Name, p.state))
	for _, t := range p.targets {
		if pod.uses(map[string]bool{t.volume.Name: true}) {
			r.recorder.Event(t.volume, corev1.EventTypeNormal, storagev1alpha1.EventFailoverReleased,
				fmt.Sprintf("pod %s/%s of host %s is deleted by force, so that it runs elsewhere", pod.Namespace, pod.Name, p.node.Name))
		}
	}
	return r.delete(ctx, pod, client.GracePeriodSeconds(0))
}

func (r releaser) delete(ctx context.Context, pod *pod, options ...client.DeleteOption) error {
	err := r.host.Client.Delete(ctx, &pod.Pod, append(options, client.Preconditions{UID: &pod.UID})...)
	if err != nil && !kube.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s/%s of a host that lost its volumes: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// restore gives a host back that is healthy again, once nothing of before is
// left on it: no claim in the middle of a fence, no pod whose volume was taken.
// Such a pod is deleted in order: its kubelet is there to clean up. None is to come in its
// place meanwhile: it would find the file system of before, whose device is gone, which
// the kubelet unmounts once no pod of the host uses the volume, and would be deleted as well.
func (r releaser) restore(ctx context.Context, p *pass) error {
	lost := map[string]bool{}
	for _, t := range p.targets {
		switch {
		case t.inFencing():
			p.waits = append(p.waits, fmt.Sprintf("volume %s is still being fenced", t.volume.Name))
		case t.mirror != nil && !t.mirror.DeletionTimestamp.IsZero():
			lost[t.volume.Name] = true
			if !t.attachment.DeletionTimestamp.IsZero() {
				p.waits = append(p.waits, fmt.Sprintf("volume %s is still being detached", t.volume.Name))
			}
		}
	}
	pods, err := r.pods.on(ctx, p.node.Name, nil)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if !pod.uses(lost) {
			continue
		}
		p.waits = append(p.waits, fmt.Sprintf("pod %s/%s, whose volume was taken, is still there", pod.Namespace, pod.Name))
		if err := r.keepOff(ctx, p); err != nil {
			return err
		}
		if pod.DeletionTimestamp != nil {
			continue
		}
		r.recorder.Event(&pod.Pod, corev1.EventTypeWarning, storagev1alpha1.EventFailoverReleased, "deleted: its volume was taken from this host while the host was dead, or looked so")
		if err := r.delete(ctx, pod); err != nil {
			return err
		}
	}
	if len(p.waits) > 0 {
		return nil
	}
	return r.untaint(ctx, p)
}

// keepOff keeps new pods off a host until it is given back.
func (r releaser) keepOff(ctx context.Context, p *pass) error {
	if p.core == nil || tainted(p.core) {
		return nil
	}
	_, err := kube.PatchExact(ctx, r.host.Client, p.core, func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: moorv1alpha1.TaintReturning, Effect: corev1.TaintEffectNoSchedule})
	})
	return err
}

func (r releaser) untaint(ctx context.Context, p *pass) error {
	if tainted(p.core) {
		if _, err := kube.PatchExact(ctx, r.host.Client, p.core, func(n *corev1.Node) {
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, ours)
		}); err != nil {
			return err
		}
		r.recorder.Event(p.core, corev1.EventTypeNormal, moorv1alpha1.EventBackInService, "the host is healthy again and nothing of before is left: it is back in service")
	}
	p.underway = false
	return nil
}

// podReader finds the pods of a host that use our volumes.
type podReader struct {
	host    kube.Cluster
	drivers []string
}

func (r podReader) users() podvolume.Users { return podvolume.Users{Host: r.host, Drivers: r.drivers} }

// on are the pods of a host that use our volumes: found in the cache, and each as the
// API server itself has it, since what is deleted by force is not chosen by what a
// cache remembers; but for those that use one of the kept volumes, which stay. (To list
// them there would take up to 100 ms: a list has to wait until the API server's own cache
// has caught up, progressRequestPeriod in k8s.io/apiserver; the reading of one object has
// not.)
func (r podReader) on(ctx context.Context, node string, kept map[string]bool) ([]*pod, error) {
	found, err := r.users().AllPodsOnNode(ctx, node)
	if err != nil {
		return nil, err
	}
	all := make([]*pod, len(found))
	for i := range found {
		all[i] = &pod{Pod: found[i]}
	}
	err = forEach(all, func(p *pod) error { return r.confirm(ctx, p, kept) })
	return slices.DeleteFunc(all, func(p *pod) bool { return len(p.volumes) == 0 }), err
}

// confirm reads a pod that uses our volumes; it is left without volumes if it is gone.
func (r podReader) confirm(ctx context.Context, p *pod, kept map[string]bool) error {
	volumes, err := r.users().VolumesOf(ctx, &p.Pod)
	if err != nil || len(volumes) == 0 {
		return err
	}
	if (&pod{volumes: volumes}).uses(kept) {
		p.volumes = volumes
		return nil
	}
	uid := p.UID
	found, err := kube.Find(ctx, r.host.Live, client.ObjectKeyFromObject(p), &p.Pod)
	if found && p.UID == uid {
		p.volumes = volumes
	}
	return err
}
