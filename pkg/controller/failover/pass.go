package failover

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/failover/doubt"
	"github.com/moor-storage/moor/pkg/controller/failover/lostpath"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/writer"
)

// pass is what one pass knows of a host.
type pass struct {
	node *moorv1alpha1.DPUStorageNode
	// core is nil if there is no Node.
	core        *corev1.Node
	observation nodehealth.Observation
	now         time.Time
	api         API
	state       State
	action      Action
	evidence    string
	// unanimous: all witnesses agree that the host is dead.
	unanimous bool
	// request is what becomes of a person's request that the host fails over.
	request request
	// early: the host looks dead, and it is too early to tell it from many.
	early   bool
	targets []*target
	// behind: a path is lost of which its attachment does not tell yet.
	behind bool
	// underway: the failover of this host has begun and has not ended.
	underway bool
	// refused says why a failover may not begin; "" if it may.
	refused string
	// yields: the release of the host waits for the fences of others.
	yields bool
	// waits says what else is waited for. It is a list and no kube.Waiting, which ends a
	// walk of phases: the pass goes on with the host's other volumes and pods.
	waits []string
	// lease is that of the host's DPU.
	lease writer.Lease
	// heartbeat is that of any DPU.
	heartbeat func(dpu string) nodehealth.Beat
	// doubts keeps for how long hosts have been in doubt.
	doubts *doubt.Timer
	// soon is when to look again for its sake; 0: never.
	soon time.Duration
}

// request is what becomes of a person's request that a host fails over. It replaces what
// is missing of the evidence that the host is dead, and no receipt.
type request struct {
	// counts: the host fails over by it.
	counts bool
	// reason and message are those of the condition; reason is "" if none was made.
	reason, message string
}

// askAgain is after what time a VolumeAttachment is deleted again that may be there
// still, and is read again that was over.
const askAgain = time.Minute

// retryBy asks to look again after a time; 0 or less asks nothing.
func (p *pass) retryBy(after time.Duration) {
	if after > 0 && (p.soon == 0 || after < p.soon) {
		p.soon = after
	}
}

// within bounds a wait by what the lease asks for. What was begun waits for what begins.
func (p *pass) within(wait time.Duration) ctrl.Result {
	if p.soon > 0 && (wait <= 0 || p.soon < wait) {
		wait = p.soon
	}
	result := ctrl.Result{RequeueAfter: wait}
	if p.underway {
		result.Priority = ptr.To(kube.Later)
	}
	return result
}

func (p *pass) dpu() string { return p.node.Spec.DPUName }

// silent reports whether a DPU counts as silent: that of the host beside its other
// witnesses, any other one by itself.
func (p *pass) silent(dpu string) bool {
	if dpu == p.dpu() {
		return p.observation.DPU.Silent()
	}
	return p.heartbeat(dpu) == nodehealth.Stale
}

// mute reports whether a DPU counts as silent for an operator's word, which is about that
// DPU alone: a heartbeat that is late is silence only beside a host that is silent too.
func (p *pass) mute(dpu string) bool {
	return p.silent(dpu) && (dpu != p.dpu() || p.state == BothDead || p.observation.DPU == nodehealth.Stale)
}

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
		return p.letsGo(t) || t.inFencing() || t.vouched() || t.moves()
	})
}

// letsGo reports whether the holds of a DPU that does not answer may have to be taken
// off what was made for the target.
func (p *pass) letsGo(t *target) bool {
	return !t.attachment.DeletionTimestamp.IsZero() && t.mirror != nil && p.silent(t.mirror.Spec.NodeName)
}

// granted reports whether, as far as the caches know, the fence of a target begins with
// this pass: the host's DPU has the right to write.
func (p *pass) granted(t *target) bool {
	return t.fails && p.takes() && t.held() && !t.inFencing() && !t.vouched() && !p.strange(t)
}

// missing says what the caches lack of what ends the fence of a target; "" if it has not
// begun as far as they know, or they lack nothing, or it may be found elsewhere.
func (p *pass) missing(t *target) string {
	if !t.inFencing() || t.vouched() || p.strange(t) || t.mirror == nil || t.mirror.DeletionTimestamp.IsZero() || p.silent(t.holder()) || t.moves() {
		return ""
	}
	_, missing := writer.Prove(t.claim, writer.Evidence{Attachment: t.mirror, Lease: p.lease})
	return missing
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
	if p.begun() || p.behind {
		return true
	}
	for _, t := range p.targets {
		if t.inFencing() || t.vouched() || p.strange(t) || t.path != nil {
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

// held reports whether something is said of a host that does not fail over.
func held(node *moorv1alpha1.DPUStorageNode) bool {
	c := meta.FindStatusCondition(node.Status.Conditions, moorv1alpha1.ConditionFailover)
	return c != nil && (c.Reason == moorv1alpha1.ReasonHeld || c.Reason == moorv1alpha1.ReasonPathLost)
}

// taintValue marks an out-of-service taint as this package's own: one with
// another value is a person's, and stays.
const taintValue = "moor"

func tainted(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(node.Spec.Taints, ours)
}

func ours(t corev1.Taint) bool {
	return t.Key == moorv1alpha1.TaintReturning || t.Key == corev1.TaintNodeOutOfService && t.Value == taintValue
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
	// readLive, and after it if missing says why, or if cached: then a fence is to begin.
	claim   *moorv1alpha1.WriterClaim
	mirror  *storagev1alpha1.VolumeAttachment
	missing string
	cached  bool
	// waits says what is waited for.
	waits string
	// path is what is done about its path, which is lost; nil if it is not, or that does not
	// matter now.
	path *lostpath.Verdict
}

// moves reports whether the volume is taken from the host for the sake of its path alone.
func (t *target) moves() bool { return t.path != nil && t.path.Move }

// right is what the right to write is granted to for this attachment; of no DPU if it is
// not held for it. The DPU need not be the one that the host has now.
func (t *target) right() writer.Holder {
	if !t.single {
		return writer.Holder{}
	}
	return writer.HolderFor(t.claim, t.attachment.Name)
}

// holder is the DPU that has the right to write for this attachment, or had it and there
// is no receipt yet; "" if none has.
func (t *target) holder() string { return t.right().DPU }

// held reports whether some DPU has the right to write for this attachment, or had it and
// there is no receipt yet.
func (t *target) held() bool { return t.holder() != "" }

func (t *target) inFencing() bool { return t.held() && writer.InFencing(t.claim, t.right()) }

// lost reports whether the claim has lost what it knew: it says so, or it is missing or
// knows less than the attachment. That it has no holder proves nothing then.
func (t *target) lost() bool {
	if !t.single {
		return false
	}
	known := max(t.attachment.Status.Epoch, writer.MarkedEpoch(t.volume.Status.LastGrant, nil))
	if t.mirror != nil {
		known = max(known, writer.Seen(t.mirror))
	}
	return writer.IsLost(t.claim) || writer.Behind(t.claim, known)
}

// over reports whether no DPU has the right to write for this attachment, and none gets
// it again: none is granted for what is being deleted.
func (t *target) over() bool {
	return t.single && t.claim != nil && !t.held() && !t.lost() && t.mirror != nil && !t.mirror.DeletionTimestamp.IsZero()
}

// vouched reports whether an operator wants the epoch to end.
func (t *target) vouched() bool { return t.held() && writer.Vouched(t.claim, t.right()) }

// vouch reports whether an operator's word about the target counts now, and if not, why. A
// DPU that is not known to be silent, as after a restart, is asked itself.
func (p *pass) vouch(t *target) (counts bool, refused string) {
	if !t.vouched() {
		return false, ""
	}
	answers := !p.mute(t.holder()) && t.mirror != nil && writer.Holds(t.claim, writer.HolderOf(t.mirror))
	refused = writer.RefuseVouch(t.claim, p.now, answers)
	return refused == "", refused
}

// strange reports whether a DPU holds a volume for the host that is not the host's: its
// card was replaced, or it was named another one.
func (p *pass) strange(t *target) bool { return t.held() && t.holder() != p.dpu() }

// strangers say of which volumes that is so, and what can be done, where no fence says
// what it waits for.
func (p *pass) strangers() []string {
	var out []string
	for _, t := range p.targets {
		if counts, refused := p.vouch(t); !counts && refused != "" && t.waits == "" {
			out = append(out, fmt.Sprintf("volume %s: WriterClaim %s: %s", t.volume.Name, t.claim.Name, refused))
		}
		switch {
		case t.waits != "":
		case p.strange(t):
			out = append(out, fmt.Sprintf("volume %s: DPU %s holds the right to write for this host (epoch %d), and the host's DPU is %s now: "+
				"if %s is still in it, name it in spec.dpuName again, with spec.replaces; else delete attachment %s, and if it cannot withdraw the volume any more, write spec.operatorReceipt into WriterClaim %s, which counts once that DPU is silent",
				t.volume.Name, t.holder(), t.claim.Status.Epoch, p.dpu(), t.holder(), t.attachment.Name, t.claim.Name))
		case t.lost():
			out = append(out, fmt.Sprintf("volume %s: its WriterClaim was deleted or restored, and does not know who may write: nothing of it is released; "+
				"the condition of attachment %s says what is waited for", t.volume.Name, t.attachment.Name))
		case !t.held() && p.writable(t):
			out = append(out, fmt.Sprintf("volume %s: DPU %s holds the right to write for attachment %s (epoch %d), which is not the host's %s: delete that one",
				t.volume.Name, t.claim.Status.Holder, t.claim.Status.Attachment, t.claim.Status.Epoch, t.attachment.Name))
		}
	}
	return out
}

// writable reports whether the volume may still be written to by the host: any DPU holds
// it for this attachment, or the host's DPU for whatever attachment; or its claim was lost.
func (p *pass) writable(t *target) bool {
	return t.held() || t.lost() || t.single && writer.Held(t.claim) && t.claim.Status.Holder == p.dpu()
}

// stays says why a volume stays though its path is lost; "" if it moves, or may move soon.
func (t *target) stays() string {
	if t.path == nil || t.path.Move || t.path.Again > 0 {
		return ""
	}
	return t.path.Words
}

// paths say what is done about each path that is lost, where no fence says what it waits for.
func (p *pass) paths() []string {
	var out []string
	for _, t := range p.targets {
		if t.path != nil && t.waits == "" {
			out = append(out, fmt.Sprintf("volume %s: %s", t.volume.Name, t.path.Words))
		}
	}
	return out
}

// pathsLost reports whether something is said of a path.
func (p *pass) pathsLost() bool {
	return slices.ContainsFunc(p.targets, func(t *target) bool { return t.path != nil })
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
