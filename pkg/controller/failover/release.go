package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// taintValue marks an out-of-service taint as this package's own: one with
// another value is a person's, and stays.
const taintValue = "moor"

func tainted(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(node.Spec.Taints, ours)
}

func ours(t corev1.Taint) bool {
	return t.Key == corev1.TaintNodeOutOfService && t.Value == taintValue
}

// release lets the pods of a dead host go whose volumes it can no longer
// write to: the taint makes the attach-detach controller detach at once, and
// the forced delete lets the replacement start.
func (f *Failover) release(ctx context.Context, s *scene) error {
	free, kept := s.divide()
	if len(free) == 0 || s.core == nil || s.signs.ZeroTrust { // no pod uses what a person attached
		return nil
	}
	if words := f.others(s); words != "" {
		s.waits = append(s.waits, words)
		return nil
	}
	if s.podsErr != nil {
		return s.podsErr
	}
	going, staying := s.part(free, kept)
	// No new pod is to come in place of one that goes.
	if err := f.taint(ctx, s); err != nil {
		return err
	}
	return atOnce(
		func() error { return f.detach(ctx, s, free, staying) },
		func() error { return forEach(going, func(p *pod) error { return f.forceDelete(ctx, s, p) }) },
	)
}

// part tells the pods of the host that use a free volume. Those go that use no
// other; the volumes of the others are staying.
func (s *scene) part(free, kept map[string]bool) (going []*pod, staying map[string]bool) {
	staying = map[string]bool{}
	for _, p := range s.pods {
		switch {
		case !p.uses(free):
		case p.uses(kept):
			s.waits = append(s.waits, fmt.Sprintf("pod %s/%s also uses a volume that is not free", p.Namespace, p.Name))
			for _, v := range p.volumes {
				staying[v] = true
			}
		default:
			going = append(going, p)
		}
	}
	return going, staying
}

// certain reports whether a DPU saw the host dead, which is more than that
// nobody hears it.
func (s *scene) certain() bool { return s.signs.Sight == nodehealth.SeenDead }

// divide says of which volumes the pods may go: a single-writer volume to
// which the host can no longer write, or one with many writers if the host is
// certainly dead.
func (s *scene) divide() (free, kept map[string]bool) {
	free, kept = map[string]bool{}, map[string]bool{}
	for _, t := range s.targets {
		if t.fails && !t.held(s.dpu()) && (t.single || s.certain()) {
			free[t.volume.Name] = true
		} else {
			kept[t.volume.Name] = true
		}
	}
	return free, kept
}

// others says in words why the host may not be put out of service: the taint
// detaches the volumes of other drivers too, which nobody has fenced.
func (f *Failover) others(s *scene) string {
	if s.certain() {
		return ""
	}
	for _, v := range s.core.Status.VolumesAttached {
		if !strings.HasPrefix(string(v.Name), "kubernetes.io/csi/"+f.Driver+"^") {
			return fmt.Sprintf("no DPU saw the host dead, and volume %s of another driver is attached to it: an operator who knows that it is off may put the taint %s",
				v.Name, corev1.TaintNodeOutOfService)
		}
	}
	return ""
}

// taint puts the host out of service. Kubernetes asks for the key alone, and
// NoSchedule keeps pods away. NoExecute would have it delete the host's pods by
// name, and of a StatefulSet that may be the new pod on another host already.
func (f *Failover) taint(ctx context.Context, s *scene) error {
	if slices.ContainsFunc(s.core.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService }) {
		return nil
	}
	_, err := kube.PatchExact(ctx, f.Host, s.core, func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: taintValue, Effect: corev1.TaintEffectNoSchedule})
	})
	if err == nil {
		f.Recorder.Event(s.core, corev1.EventTypeWarning, moorv1alpha1.EventOutOfService, fmt.Sprintf("the host is %s: %s", s.state, s.evidence))
	}
	return err
}

// evict lets the pods go, in order, that use a volume which a living host has
// lost: its kubelet is there to clean up, and the extender keeps new ones off a
// host whose DPU is silent.
func (f *Failover) evict(ctx context.Context, s *scene) error {
	free, kept := s.divide()
	if len(free) == 0 || s.signs.ZeroTrust { // no pod uses what a person attached
		return nil
	}
	going, _ := s.part(free, kept)
	return forEach(going, func(p *pod) error {
		if p.DeletionTimestamp != nil {
			return nil
		}
		f.Recorder.Event(&p.Pod, corev1.EventTypeWarning, storagev1alpha1.EventFailoverReleased, fmt.Sprintf("deleted: DPU %s has taken its volume from this host, as it had promised to do when it is not heard", s.dpu()))
		return f.delete(ctx, p)
	})
}

// forceDelete deletes exactly the pod that was read, without grace: no kubelet
// is there to confirm it.
func (f *Failover) forceDelete(ctx context.Context, s *scene, p *pod) error {
	if grace := p.DeletionGracePeriodSeconds; p.DeletionTimestamp != nil && grace != nil && *grace == 0 {
		return nil
	}
	f.Recorder.Event(&p.Pod, corev1.EventTypeWarning, storagev1alpha1.EventFailoverReleased,
		fmt.Sprintf("deleted by force: host %s is %s, and its volumes were taken from it with a receipt", s.node.Name, s.state))
	for _, t := range s.targets {
		if p.uses(map[string]bool{t.volume.Name: true}) {
			f.Recorder.Event(t.volume, corev1.EventTypeNormal, storagev1alpha1.EventFailoverReleased,
				fmt.Sprintf("pod %s/%s of host %s is deleted by force, so that it runs elsewhere", p.Namespace, p.Name, s.node.Name))
		}
	}
	return f.delete(ctx, p, client.GracePeriodSeconds(0))
}

func (f *Failover) delete(ctx context.Context, p *pod, options ...client.DeleteOption) error {
	err := f.Host.Delete(ctx, &p.Pod, append(options, client.Preconditions{UID: &p.UID})...)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s/%s of a host that lost its volumes: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// restore gives a host back that is healthy again, once nothing of before is
// left on it: no claim in the middle of a fence, no pod whose volume was taken.
// Such a pod is deleted in order: its kubelet is there to clean up.
func (f *Failover) restore(ctx context.Context, s *scene) error {
	lost := map[string]bool{}
	for _, t := range s.targets {
		switch {
		case t.inFencing(s.dpu()):
			s.waits = append(s.waits, fmt.Sprintf("volume %s is still being fenced", t.volume.Name))
		case t.mirror != nil && !t.mirror.DeletionTimestamp.IsZero():
			lost[t.volume.Name] = true
			if !t.attachment.DeletionTimestamp.IsZero() {
				s.waits = append(s.waits, fmt.Sprintf("volume %s is still being detached", t.volume.Name))
			}
		}
	}
	pods, err := f.pods(ctx, s.node.Name)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if !p.uses(lost) {
			continue
		}
		s.waits = append(s.waits, fmt.Sprintf("pod %s/%s, whose volume was taken, is still there", p.Namespace, p.Name))
		if p.DeletionTimestamp != nil {
			continue
		}
		f.Recorder.Event(&p.Pod, corev1.EventTypeWarning, storagev1alpha1.EventFailoverReleased, "deleted: its volume was taken from this host while the host was dead, or looked so")
		if err := f.delete(ctx, p); err != nil {
			return err
		}
	}
	if len(s.waits) > 0 {
		return nil
	}
	return f.untaint(ctx, s)
}

func (f *Failover) untaint(ctx context.Context, s *scene) error {
	if tainted(s.core) {
		if _, err := kube.PatchExact(ctx, f.Host, s.core, func(n *corev1.Node) {
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, ours)
		}); err != nil {
			return err
		}
		f.Recorder.Event(s.core, corev1.EventTypeNormal, moorv1alpha1.EventBackInService, "the host is healthy again and nothing of before is left: it is back in service")
	}
	s.underway = false
	return nil
}
