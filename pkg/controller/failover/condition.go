package failover

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
)

// mostWaits is how many waits a message lists.
const mostWaits = 5

// condition writes the condition Failover of a host.
type condition struct {
	host     kube.Cluster
	clock    clock.PassiveClock
	recorder record.EventRecorder
	// told is what was told of attachments within askAgain.
	told *kube.Recent[string]
	// progress is that of the fences of all hosts.
	progress *progress
}

// busyGrace is for how long after its failover has begun a host waits for the fences of
// others that get on, with what is not needed to fence: those of a rack share the API
// servers, and to release hundreds of volumes, or to say of each that it waits, would make
// all of them wait longer.
const busyGrace = 15 * time.Second

// stuckAfter is after what time without progress a fence is not waited for.
const stuckAfter = time.Second

// progress is how the fences of all hosts get on. It is kept in memory, as it only puts
// off what may wait for them. Safe for concurrent use.
type progress struct {
	mu sync.Mutex
	at time.Time
	// open are the hosts whose volumes are being fenced, and when one of each got further.
	open map[string]time.Time
}

// note notes that a fence of a host got further.
func (p *progress) note(host string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[string]time.Time{}
	}
	maps.DeleteFunc(p.open, func(_ string, at time.Time) bool { return now.Sub(at) >= busyGrace })
	p.at, p.open[host] = now, now
}

// end notes that no volume of a host is being fenced.
func (p *progress) end(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, host)
}

// last is when a fence got further last.
func (p *progress) last() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

// others reports whether fences of other hosts get on.
func (p *progress) others(than string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for host, at := range p.open {
		if host != than && now.Sub(at) < stuckAfter {
			return true
		}
	}
	return false
}

// report writes the condition, if it differs, and tells of each volume that waits. What
// a fence waits for is the normal course at first: it is told after kube.StatusGrace in
// which no fence got further.
func (c condition) report(ctx context.Context, p *pass, failure error) error {
	if err := c.publish(ctx, p); err != nil {
		return err
	}
	status, reason, message := p.verdict(failure)
	was := meta.FindStatusCondition(p.node.Status.Conditions, moorv1alpha1.ConditionFailover)
	if was == nil && reason == moorv1alpha1.ReasonRecovered {
		return nil
	}
	if left := c.grace(was); left > 0 && reason == moorv1alpha1.ReasonFencing && failure == nil {
		p.retryBy(left)
		return c.write(ctx, p, status, reason, p.finding())
	}
	fresh := was == nil || was.Reason != reason || was.Message != message
	if err := c.write(ctx, p, status, reason, message); err != nil || !fresh {
		return err
	}
	held := ""
	if reason == moorv1alpha1.ReasonHeld {
		held = message
	}
	for _, t := range p.affected() {
		if told := cmp.Or(t.waits, t.stays(), held); told != "" {
			c.tell(p, t, told)
		}
	}
	return nil
}

// publish says on the Node too that the host is dead, for those who repair machines: they
// watch Nodes. It is taken back before the condition Failover is, by which a host is
// looked at again; and patched by its type alone, as the kubelet writes other conditions.
func (c condition) publish(ctx context.Context, p *pass) error {
	status, changes := p.verdictOnNode()
	if !changes {
		return nil
	}
	now := metav1.NewTime(c.clock.Now())
	says := corev1.NodeCondition{
		Type: moorv1alpha1.NodeConditionHostDead, Status: status, Reason: string(p.state), Message: p.evidence,
		LastTransitionTime: now, LastHeartbeatTime: now,
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{says}}})
	if err == nil {
		err = c.host.Client.Status().Patch(ctx, p.core.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch))
	}
	if err != nil {
		return fmt.Errorf("write the condition %s of Node %s: %w", says.Type, p.core.Name, err)
	}
	return nil
}

// verdictOnNode is what the Node is to say of the death of the host, and whether it says
// something else. A host that is only evicted lives, and is not to be switched off; what
// was said of one that is in doubt now stays.
func (p *pass) verdictOnNode() (status corev1.ConditionStatus, changes bool) {
	switch {
	case p.core == nil:
		return "", false
	case p.underway && p.action == Fence:
		return corev1.ConditionTrue, !dead(p.core)
	case !p.underway || p.action == Restore:
		return corev1.ConditionFalse, dead(p.core)
	}
	return "", false
}

// dead reports whether a Node says that its host is dead.
func dead(core *corev1.Node) bool {
	return core != nil && slices.ContainsFunc(core.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == moorv1alpha1.NodeConditionHostDead && c.Status == corev1.ConditionTrue
	})
}

// tell tells what a volume waits for, unless that was told of it last: another volume of the
// host may have become different.
func (c condition) tell(p *pass, t *target, words string) {
	now := c.clock.Now()
	if last, left := c.told.Get(t.attachment.UID, now); left > 0 && last == words {
		return
	}
	c.told.Note(t.attachment.UID, words, now, now.Add(askAgain))
	c.recorder.Event(t.volume, corev1.EventTypeWarning, storagev1alpha1.EventFailoverHeld, fmt.Sprintf("host %s: %s", p.node.Name, words))
}

// grace is how long what is waited for is not told yet of a failover that has begun.
func (c condition) grace(was *metav1.Condition) time.Duration {
	if was == nil || was.Status != metav1.ConditionTrue {
		return 0
	}
	since := was.LastTransitionTime.Time
	if last := c.progress.last(); c.clock.Since(since) < busyGrace && last.After(since) {
		since = last
	}
	return kube.GraceLeft(since, c.clock.Now())
}

// verdict is the condition that says how things are.
func (p *pass) verdict(failure error) (metav1.ConditionStatus, string, string) {
	fences := p.fences()
	waits := slices.Concat(p.strangers(), p.waits, fences, p.paths())
	if failure != nil {
		waits = append(waits, failure.Error())
	}
	slices.Sort(waits)
	if len(waits) > mostWaits {
		waits = append(waits[:mostWaits], fmt.Sprintf("and %d more", len(waits)-mostWaits))
	}
	message := strings.Join(append([]string{p.finding()}, waits...), "; ")
	switch {
	case p.underway && (len(fences) > 0 || p.yields):
		return metav1.ConditionTrue, moorv1alpha1.ReasonFencing, message
	case p.underway && p.action == Restore:
		return metav1.ConditionTrue, moorv1alpha1.ReasonReturning, message
	case p.underway:
		return metav1.ConditionTrue, moorv1alpha1.ReasonReleased, message
	case p.action == Restore && p.pathsLost():
		return metav1.ConditionFalse, moorv1alpha1.ReasonPathLost, message
	case p.refused != "":
		return metav1.ConditionFalse, moorv1alpha1.ReasonHeld, message + "; " + p.refused
	case p.action == Restore && len(waits) == 0:
		return metav1.ConditionFalse, moorv1alpha1.ReasonRecovered, ""
	}
	return metav1.ConditionFalse, moorv1alpha1.ReasonHeld, message
}

// fences say what is waited for by each fence.
func (p *pass) fences() []string {
	var out []string
	for _, t := range p.targets {
		if t.waits != "" {
			out = append(out, fmt.Sprintf("volume %s: %s", t.volume.Name, t.waits))
		}
	}
	return out
}

// finding is what has become of the host, and how that is known.
func (p *pass) finding() string { return string(p.state) + ": " + p.evidence }

// write writes the condition with the resourceVersion that was read: nodelifecycle
// writes others in the same list.
func (c condition) write(ctx context.Context, p *pass, status metav1.ConditionStatus, reason, message string) error {
	return c.patch(ctx, p, func(list *[]metav1.Condition) {
		meta.SetStatusCondition(list, metav1.Condition{
			Type: moorv1alpha1.ConditionFailover, Status: status, Reason: reason, Message: message,
			ObservedGeneration: p.node.Generation, LastTransitionTime: metav1.NewTime(c.clock.Now()),
		})
	})
}

func (c condition) patch(ctx context.Context, p *pass, change func(*[]metav1.Condition)) error {
	before := p.node.DeepCopy()
	change(&p.node.Status.Conditions)
	if equality.Semantic.DeepEqual(before.Status.Conditions, p.node.Status.Conditions) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.host.Client.Status().Patch(ctx, p.node, patch); err != nil {
		p.node = before
		return fmt.Errorf("write the conditions of DPUStorageNode %s: %w", p.node.Name, err)
	}
	return nil
}

// answer writes what becomes of a request, and tells it once.
func (c condition) answer(ctx context.Context, p *pass) error {
	was := meta.FindStatusCondition(p.node.Status.Conditions, moorv1alpha1.ConditionFailoverRequested)
	if p.requested() && !p.underway && len(p.affected()) == 0 {
		p.request = refuse(moorv1alpha1.ReasonRefused, "nothing that fails over is attached to the host")
	}
	r := p.request
	if was == nil && r.reason == "" || was != nil && was.Reason == r.reason && was.Message == r.message {
		return nil
	}
	if err := c.patch(ctx, p, func(list *[]metav1.Condition) {
		if r.reason == "" {
			meta.RemoveStatusCondition(list, moorv1alpha1.ConditionFailoverRequested)
			return
		}
		status := metav1.ConditionFalse
		if r.counts {
			status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(list, metav1.Condition{
			Type: moorv1alpha1.ConditionFailoverRequested, Status: status, Reason: r.reason, Message: r.message,
			ObservedGeneration: p.node.Generation, LastTransitionTime: metav1.NewTime(c.clock.Now()),
		})
	}); err != nil {
		return err
	}
	switch {
	case r.counts:
		c.recorder.Event(p.node, corev1.EventTypeWarning, moorv1alpha1.EventFailoverRequested, r.message)
	case r.reason == moorv1alpha1.ReasonRefused || r.reason == moorv1alpha1.ReasonExpired:
		c.recorder.Event(p.node, corev1.EventTypeWarning, moorv1alpha1.EventFailoverRefused, r.message)
	}
	return nil
}
