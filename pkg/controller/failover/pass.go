package failover

import (
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/writer"
)

// pass is what one pass knows of a host.
type pass struct {
	node *moorv1alpha1.DPUStorageNode
	// core is nil if there is no Node.
	core        *corev1.Node
	observation nodehealth.Observation
	api         API
	state       State
	action      Action
	evidence    string
	// early: the host looks dead, and it is too early to tell it from many.
	early   bool
	targets []*target
	// underway: the failover of this host has begun and has not ended.
	underway bool
	// refused says why a failover may not begin; "" if it may.
	refused string
	// waits says what else is waited for.
	waits []string
	// pods are those of the host that use our volumes, if they are to go;
	// podsErr is why they are not known.
	pods    []*pod
	podsErr error
	// lease is that of the DPU.
	lease writer.Lease
	// soon is when to look again for its sake; 0: never.
	soon time.Duration
}

// retryBy asks to look again after a time; 0 or less asks nothing.
func (p *pass) retryBy(after time.Duration) {
	if after > 0 && (p.soon == 0 || after < p.soon) {
		p.soon = after
	}
}

// within bounds a wait by what the lease asks for.
func (p *pass) within(wait time.Duration) ctrl.Result {
	if p.soon > 0 && (wait <= 0 || p.soon < wait) {
		wait = p.soon
	}
	return ctrl.Result{RequeueAfter: wait}
}

func (p *pass) dpu() string { return p.node.Spec.DPUName }

// takes reports whether the volumes of the host are to be taken from it.
func (p *pass) takes() bool { return p.action == Fence || p.action == Evict }

// restores reports whether there is a failover, or a taint, to be taken back.
func (p *pass) restores() bool { return p.action == Restore && (p.underway || tainted(p.core)) }

// begins reports whether a failover is to begin, if it may.
func (p *pass) begins() bool {
	return p.takes() && !p.underway && p.refused == "" && len(p.affected()) > 0
}

// acts reports whether there is anything to do beside saying how the host is. What the
// cache does not show yet starts a pass of its own once it does.
func (p *pass) acts() bool {
	if p.underway || p.restores() || p.begins() {
		return true
	}
	return slices.ContainsFunc(p.targets, func(t *target) bool {
		return p.letsGo(t) || t.inFencing(p.dpu()) || t.vouched(p.dpu())
	})
}

// letsGo reports whether the holds of a DPU that does not answer may have to be taken
// off what was made for the target.
func (p *pass) letsGo(t *target) bool {
	return !t.attachment.DeletionTimestamp.IsZero() && p.observation.DPU.Silent()
}

// missing says what the caches lack of what ends the fence of a target; "" if it has not
// begun as far as they know, or they lack nothing, or it may be found elsewhere.
func (p *pass) missing(t *target) string {
	if !t.inFencing(p.dpu()) || t.mirror == nil || t.mirror.DeletionTimestamp.IsZero() || p.observation.DPU.Silent() {
		return ""
	}
	_, missing := writer.Prove(t.claim, writer.Evidence{Attachment: t.mirror, Lease: p.lease})
	return missing
}

// fencing are the volumes of which it is certain that their fence does not end in this
// pass.
func (p *pass) fencing() map[string]bool {
	out := map[string]bool{}
	for _, t := range p.targets {
		if t.missing != "" {
			out[t.volume.Name] = true
		}
	}
	return out
}

// affected are the targets that fail over.
func (p *pass) affected() []*target {
	var out []*target
	for _, t := range p.targets {
		if t.fails {
			out = append(out, t)
		}
	}
	return out
}

func (p *pass) waiting() bool {
	for _, t := range p.targets {
		if t.waits != "" {
			return true
		}
	}
	return false
}

// concerned reports whether there is anything to do or to say.
func (p *pass) concerned() bool {
	if p.begun() {
		return true
	}
	for _, t := range p.targets {
		if t.inFencing(p.dpu()) || t.vouched(p.dpu()) {
			return true
		}
	}
	return p.unwell() && len(p.affected()) > 0
}

// begun reports whether something was begun on the host, or said of it, that is not
// taken back yet.
func (p *pass) begun() bool { return p.underway || tainted(p.core) || held(p.node) }

// unwell reports whether there is something to say of the host, if it has volumes.
func (p *pass) unwell() bool {
	silent := p.observation.Host == nodehealth.Stale || p.api == APINotReady && !p.observation.ZeroTrust
	return p.state != Healthy && (p.state != Unknown || silent)
}

func underway(node *moorv1alpha1.DPUStorageNode) bool {
	return meta.IsStatusConditionTrue(node.Status.Conditions, moorv1alpha1.ConditionFailover)
}

func held(node *moorv1alpha1.DPUStorageNode) bool {
	c := meta.FindStatusCondition(node.Status.Conditions, moorv1alpha1.ConditionFailover)
	return c != nil && c.Reason == moorv1alpha1.ReasonHeld
}

// taintValue marks an out-of-service taint as this package's own: one with
// another value is a person's, and stays.
const taintValue = "moor"

func tainted(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(node.Spec.Taints, ours)
}

func ours(t corev1.Taint) bool {
	return t.Key == corev1.TaintNodeOutOfService && t.Value == taintValue
}

// target is one primary attachment of a host, or a replica that is promoted early: its
// DPU may write as a primary's may.
type target struct {
	attachment *storagev1alpha1.DPUVolumeAttachment
	volume     *storagev1alpha1.DPUVolume
	// single: the volume has a single writer.
	single bool
	// fails: the volume fails over.
	fails bool
	// claim and mirror are nil if there are none. They are the cache's until
	// readLive, and after it if missing says why.
	claim   *moorv1alpha1.WriterClaim
	mirror  *storagev1alpha1.VolumeAttachment
	missing string
	// waits says what is waited for.
	waits string
}

// holder is what the right to write is granted to, if the DPU has it for the target.
func (t *target) holder(dpu string) writer.Holder {
	return writer.Holder{DPU: dpu, Attachment: t.attachment.Name}
}

// held reports whether the DPU has the right to write, or had it and there is no
// receipt yet.
func (t *target) held(dpu string) bool {
	return t.single && writer.Holds(t.claim, t.holder(dpu))
}

func (t *target) inFencing(dpu string) bool {
	return t.single && writer.InFencing(t.claim, t.holder(dpu))
}

// over reports whether the DPU does not have the right to write, and does not get it for
// this attachment again: none is granted for what is being deleted.
func (t *target) over(dpu string) bool {
	return t.single && t.claim != nil && !t.held(dpu) && t.mirror != nil && !t.mirror.DeletionTimestamp.IsZero()
}

// vouched reports whether an operator wants the epoch to end.
func (t *target) vouched(dpu string) bool {
	return t.single && writer.Vouched(t.claim, t.holder(dpu))
}

// promoted reports whether the DPU has the attachment for a primary.
func (t *target) promoted() bool {
	return t.mirror != nil && !t.mirror.IsReplica()
}

// pod is a pod and those of our volumes that it uses.
type pod struct {
	corev1.Pod
	volumes []string
}

func (p *pod) uses(volumes map[string]bool) bool {
	for _, v := range p.volumes {
		if volumes[v] {
			return true
		}
	}
	return false
}

// limit bounds how much of one host is worked on at once: a host with many volumes
// should not take its time for each, nor all of the API server's.
const limit = 16

// forEach does something for all of them, several at once, and returns when the last
// is done. One that fails holds up no other; the error is of one that failed.
func forEach[T any](all []T, do func(T) error) error {
	var g errgroup.Group
	g.SetLimit(limit)
	for _, one := range all {
		g.Go(func() error { return do(one) })
	}
	return g.Wait()
}

// atOnce does some things at the same time, as forEach does.
func atOnce(all ...func() error) error {
	return forEach(all, func(do func() error) error { return do() })
}
