package failover

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
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
	users, err := l.users(ctx, p.node.Name)
	if err != nil {
		return err
	}
	for _, t := range p.targets {
		lost := p.node.Status.LostPath(t.volume.Name)
		if !t.single || t.mirror == nil || lost == nil {
			continue
		}
		since, told := lostpath.Since(t.attachment)
		if !told {
			p.behind = true
			p.retryBy(conditionLag)
			continue
		}
		since = since.Add(-time.Duration(lost.BorneMillis) * time.Millisecond)
		if err := l.judgeOne(ctx, t, since, users[t.volume.Name]); err != nil {
			return err
		}
		p.retryBy(t.path.Again)
		if !t.path.Move {
			p.retryBy(leavingAgain)
		}
	}
	return nil
}

// judgeOne judges a volume whose path is lost since a time, and which these pods use.
func (l paths) judgeOne(ctx context.Context, t *target, since time.Time, users []*corev1.Pod) error {
	facts, err := l.reader.Read(ctx, t.volume, t.attachment, since, t.mirror.Status.DPU.OpenEpoch)
	if err != nil {
		return err
	}
	facts.Leaving = len(users) > 0 && !slices.ContainsFunc(users, stays)
	verdict := lostpath.Judge(facts)
	t.path = &verdict
	return l.spare(ctx, t, users)
}

// users are the pods of a host by the volumes that they use, as the caches have them.
func (l paths) users(ctx context.Context, host string) (map[string][]*corev1.Pod, error) {
	all, err := l.pods.users().AllPodsOnNode(ctx, host)
	if err != nil {
		return nil, err
	}
	out := map[string][]*corev1.Pod{}
	for i := range all {
		volumes, err := l.pods.users().VolumesOf(ctx, &all[i])
		if err != nil {
			return nil, err
		}
		for _, v := range volumes {
			out[v] = append(out[v], &all[i])
		}
	}
	return out, nil
}

func stays(p *corev1.Pod) bool { return p.DeletionTimestamp == nil }

// spare lets a volume stay that a pod uses which stays, and would not come back, as the API
// server itself has it: caches do not know whose pods are. What was begun is brought to its
// end.
func (l paths) spare(ctx context.Context, t *target, users []*corev1.Pod) error {
	if !t.path.Move || !t.held() || t.inFencing() {
		return nil
	}
	for _, user := range users {
		pod := &corev1.Pod{}
		found, err := kube.Find(ctx, l.pods.host.Live, client.ObjectKeyFromObject(user), pod)
		if err != nil {
			return err
		}
		if found && pod.UID == user.UID && stays(pod) && !podvolume.Returns(pod) {
			t.path = &lostpath.Verdict{Words: fmt.Sprintf("pod %s/%s has no controller that would make it anew, so the volume is not moved by itself: I/O waits, or fails; delete the pod, and start it elsewhere", pod.Namespace, pod.Name)}
			return nil
		}
	}
	return nil
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
