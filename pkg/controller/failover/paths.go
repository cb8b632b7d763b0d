package failover

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/controller/failover/lostpath"
)

const (
	// conditionLag is when a path is looked at again of which the DPU tells that it is lost,
	// and the attachment does not yet.
	conditionLag = time.Second
	// leavingAgain is when it is looked at again whether the pods of a volume that stays are
	// being deleted: they are not watched.
	leavingAgain = 5 * time.Second
)

// paths says what is done about the paths that a DPU has lost, while its host is healthy: a
// host that is not has another trouble, which goes first.
type paths struct {
	reader lostpath.Reader
	pods   podReader
}

// judge judges the volumes with a single writer of a host that can let their pods go in
// order.
func (l paths) judge(ctx context.Context, p *pass) error {
	if p.state != Healthy || p.underway || p.takes() || p.observation.ZeroTrust || len(p.node.Status.LostPaths()) == 0 {
		return nil
	}
	for _, t := range p.targets {
		if !t.single || t.mirror == nil || p.node.Status.LostPath(t.volume.Name) == nil {
			continue
		}
		since, told := lostpath.Since(t.attachment)
		if !told {
			p.behind = true
			p.retryBy(conditionLag)
			continue
		}
		if err := l.judgeOne(ctx, p, t, since); err != nil {
			return err
		}
		p.retryBy(t.path.Again)
		if !t.path.Move {
			p.retryBy(leavingAgain)
		}
	}
	return nil
}

// judgeOne judges a volume whose path is lost since a time.
func (l paths) judgeOne(ctx context.Context, p *pass, t *target, since time.Time) error {
	users, err := l.users(ctx, p.node.Name, t.volume.Name)
	if err != nil {
		return err
	}
	facts, err := l.reader.Read(ctx, t.volume, t.attachment, since, t.mirror.Status.DPU.OpenEpoch)
	if err != nil {
		return err
	}
	facts.Leaving = len(users) > 0 && !slices.ContainsFunc(users, stays)
	verdict := lostpath.Judge(facts)
	t.path = &verdict
	return l.spare(ctx, p, t, t.path)
}

// users are the pods of a host that use a volume, as the caches have them.
func (l paths) users(ctx context.Context, host, volume string) ([]*corev1.Pod, error) {
	all, err := podvolume.Users{Host: l.pods.host, Driver: l.pods.driver}.AllPodsOnNode(ctx, host)
	if err != nil {
		return nil, err
	}
	var out []*corev1.Pod
	for i := range all {
		volumes, err := l.pods.volumesOf(ctx, &all[i])
		if err != nil {
			return nil, err
		}
		if slices.Contains(volumes, volume) {
			out = append(out, &all[i])
		}
	}
	return out, nil
}

func stays(p *corev1.Pod) bool { return p.DeletionTimestamp == nil }

// spare lets a volume stay that a pod of the host uses which stays, and would not come back,
// as the API server itself has it. What was begun is brought to its end.
func (l paths) spare(ctx context.Context, p *pass, t *target, v *lostpath.Verdict) error {
	if !v.Move || !t.held() || t.inFencing() {
		return nil
	}
	pods, err := l.pods.on(ctx, p.node.Name, nil)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if pod.uses(map[string]bool{t.volume.Name: true}) && stays(&pod.Pod) && !returns(&pod.Pod) {
			*v = lostpath.Verdict{Words: fmt.Sprintf("pod %s/%s has no controller that would make it anew, so the volume is not moved by itself: I/O waits, or fails; delete the pod, and start it elsewhere", pod.Namespace, pod.Name)}
		}
	}
	return nil
}

// returns reports whether a pod is made anew if it is deleted.
func returns(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && owner.Kind != "Node" // that of the copy of a static pod
}

// moving reports whether volumes are taken from a healthy host for the sake of their paths,
// or were.
func (p *pass) moving() bool { return len(p.left()) > 0 }

// left are the volumes whose path is lost and to which the host can no longer write: that
// another DPU was the reason may have passed, but not that the host has lost them.
func (p *pass) left() map[string]bool {
	out := map[string]bool{}
	for _, t := range p.targets {
		if t.path != nil && t.over() && !p.writable(t) {
			out[t.volume.Name] = true
		}
	}
	return out
}

// move lets the pods go in order that use a volume which was taken from a healthy host. Their
// other volumes follow them.
func (r releaser) move(ctx context.Context, p *pass) error {
	left := p.left()
	pods, err := r.pods.on(ctx, p.node.Name, nil)
	if err != nil {
		return err
	}
	return forEach(pods, func(pod *pod) error {
		if pod.DeletionTimestamp != nil || !pod.uses(left) {
			return nil
		}
		r.recorder.Event(&pod.Pod, corev1.EventTypeWarning, storagev1alpha1.EventFailoverReleased,
			fmt.Sprintf("deleted: DPU %s does not reach the storage of its volume, which was taken from host %s with a receipt, so that the pod runs elsewhere", p.dpu(), p.node.Name))
		return r.delete(ctx, pod)
	})
}
