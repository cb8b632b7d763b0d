package failover

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/controller/failover/doubt"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/pkg/provisioner"
	"github.com/moor-storage/moor/pkg/writer"
)

// observer begins a pass: it reads a host and says what has become of it.
type observer struct {
	host, dpu  kube.Cluster
	heartbeats *nodehealth.Observer
	fleet      *fleetReader
	leases     *leases
	doubts     *doubt.Timer
}

// observe reads the host and says what has become of it; nil if there is no
// such host, or it is not known which DPU is in it.
func (o observer) observe(ctx context.Context, name string) (*pass, error) {
	p := &pass{node: &moorv1alpha1.DPUStorageNode{}, heartbeat: o.heartbeats.DPU, doubts: o.doubts, now: o.fleet.clock.Now()}
	found, err := kube.Find(ctx, o.host.Client, client.ObjectKey{Name: name}, p.node)
	if err != nil || !found || p.dpu() == "" {
		return nil, err
	}
	if p.core, err = coreNode(ctx, o.host.Client, name); err != nil {
		return nil, err
	}
	if err := nodehealth.FromDPU(ctx, o.dpu.Client, p.node); err != nil {
		return nil, err
	}
	p.observation, p.api, p.underway = o.heartbeats.Observe(p.node), apiOf(p.core), underway(p.node)
	var again time.Duration
	if p.lease, again, err = o.leases.read(ctx, o.dpu.Client, p.dpu()); err != nil {
		return nil, err
	}
	p.retryBy(again)
	if p.judge(Fleet{}); p.state == Healthy || p.state == Unknown {
		return p, nil
	}
	fleet, err := o.fleet.recent(ctx)
	if err != nil {
		return nil, err
	}
	p.judge(fleet.Fleet)
	return p, nil
}

// judge says what has become of the host, among the others, and what is done about it.
func (p *pass) judge(fleet Fleet) {
	in := Inputs{
		API: p.api, Host: p.observation.Host, Kubelet: p.observation.Kubelet, DPU: p.observation.DPU,
		HostSeen: p.observation.HostSeen, ZeroTrust: p.observation.ZeroTrust, Fleet: fleet,
	}
	p.state, p.evidence = Classify(in)
	p.unanimous = in.unanimous()
	p.early = p.state == ControlPlaneSick && fleet.sick() == ""
	if p.observation.HostSeen == nodehealth.SeenDead && p.observation.Message != "" {
		p.evidence += " (" + p.observation.Message + ")"
	}
	p.decide()
	p.follow()
	p.overdue()
}

// doubt is what puts a host in doubt that lives, if time decides what is done about it. A DPU
// that gives a lease ends its part by that. Of a ZeroTrust host nothing else is heard, so
// while its DPU is silent nothing says that it lives.
func (p *pass) doubt() doubt.Kind {
	switch {
	case p.state == HostCutOff, p.state == HostHung && p.api == APINotReady:
		return doubt.NotReady
	case p.state == DPUDead && !p.lease.Given && !p.observation.ZeroTrust:
		return doubt.DPUSilent
	}
	return doubt.None
}

// overdue lets a host fail over that has been in doubt for as long as it may. That replaces
// a person's request, and no receipt; the budget counts it as one that may be wrong.
func (p *pass) overdue() {
	limit, left := p.doubts.Note(p.node.UID, p.doubt(), p.now)
	switch {
	case limit == 0 || p.requested():
		return
	case left > 0:
		p.retryBy(left)
		p.evidence += fmt.Sprintf("; it fails over once it has been so for %s", limit)
		return
	}
	p.takeOver()
	p.evidence += fmt.Sprintf("; it has been so for %s, so it fails over", limit)
}

// fleetAge is how old the fleet may be that a pass looks at.
const fleetAge = time.Second

// fleetReader tells what all hosts look like, once for all passes: while many hosts
// are not well, each asks for it again and again. Safe for concurrent use.
type fleetReader struct {
	host, dpu  kube.Cluster
	heartbeats *nodehealth.Observer
	clock      clock.PassiveClock

	mu   sync.Mutex
	last overview
	at   time.Time
}

// failovers are hosts whose failover has begun, or has ended, with zone and time.
type failovers map[string]failoverAt

type failoverAt struct {
	Zone string    `json:"zone,omitempty"`
	At   time.Time `json:"at"`
}

// counts reports whether it was within the last minute.
func (f failoverAt) counts(now time.Time) bool { return f.within(time.Minute, now) }

func (f failoverAt) within(window time.Duration, now time.Time) bool { return now.Sub(f.At) < window }

// without are those that have not ended since they began.
func (f failovers) without(ended failovers) failovers {
	out := maps.Clone(f)
	maps.DeleteFunc(out, func(host string, began failoverAt) bool {
		end, ok := ended[host]
		return ok && !end.At.Before(began.At)
	})
	return out
}

// overview is what all hosts look like, whose failover has begun, and whose has ended
// within the minute before.
type overview struct {
	Fleet
	// hosts is how many have a DPU, whether they serve or not.
	hosts        int
	begun, ended failovers
}

// note notes when the failover of a host began, or ended.
func (o *overview) note(n *moorv1alpha1.DPUStorageNode, zone string, now time.Time) {
	c := meta.FindStatusCondition(n.Status.Conditions, moorv1alpha1.ConditionFailover)
	if c == nil {
		return
	}
	f := failoverAt{Zone: zone, At: c.LastTransitionTime.Time}
	switch {
	case c.Status == metav1.ConditionTrue:
		o.begun[n.Name] = f
	case f.counts(now):
		o.ended[n.Name] = f
	}
}

// recent is what all hosts look like, or looked like less than fleetAge ago. A host
// that has died since may be missing among the dead, so nothing begins by it:
// admission asks now.
func (f *fleetReader) recent(ctx context.Context) (overview, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if age := f.clock.Since(f.at); !f.at.IsZero() && age >= 0 && age < fleetAge {
		return f.last, nil
	}
	return f.look(ctx)
}

// now is what all hosts look like now, as far as the caches know.
func (f *fleetReader) now(ctx context.Context) (overview, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.look(ctx)
}

// look looks at all hosts. It observes each itself: a process that has just started
// may not have observed the others yet. It copies none: what it reads is the caches'
// own.
func (f *fleetReader) look(ctx context.Context) (overview, error) {
	var list moorv1alpha1.DPUStorageNodeList
	out, at := overview{begun: failovers{}, ended: failovers{}}, f.clock.Now()
	if err := f.host.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return overview{}, fmt.Errorf("list all hosts: %w", err)
	}
	for i := range list.Items {
		n := &list.Items[i] // its fields may be set; what they point to is the cache's
		core, err := coreNode(ctx, f.host.Client, n.Name, client.UnsafeDisableDeepCopy)
		if err != nil {
			return overview{}, err
		}
		out.note(n, zoneOf(core), at)
		if n.Spec.DPUName != "" {
			out.hosts++
		}
		if !serves(n, core) {
			continue
		}
		if err := nodehealth.FromDPU(ctx, f.dpu.Client, n, client.UnsafeDisableDeepCopy); err != nil {
			return overview{}, err
		}
		out.add(f.heartbeats.Observe(n), f.heartbeats.Lateness(n.Name), apiOf(core))
	}
	f.last, f.at = out, at
	return out, nil
}

// serves reports whether a host is one of those whose pods could be elsewhere: it
// has a DPU, and is neither drained nor being failed over.
func serves(n *moorv1alpha1.DPUStorageNode, core *corev1.Node) bool {
	return n.Spec.DPUName != "" && core != nil && !core.Spec.Unschedulable && !tainted(core) && !underway(n)
}

// coreNode is the Node of a host, nil if there is none.
func coreNode(ctx context.Context, from client.Reader, name string, options ...client.GetOption) (*corev1.Node, error) {
	node := &corev1.Node{}
	found, err := kube.Find(ctx, from, client.ObjectKey{Name: name}, node, options...)
	if err != nil || !found {
		return nil, err
	}
	return node, nil
}

// targetReader reads what is attached to a host, with the claims and the
// VolumeAttachments in the DPU cluster.
type targetReader struct {
	host, dpu kube.Cluster
	// namespace of the users' objects, and targetNamespace of their mirrors.
	namespace, targetNamespace string
	clock                      clock.PassiveClock
	// asked are the attachments whose claim and VolumeAttachment were read live within
	// readAgain, and whether they were over then.
	asked *kube.Recent[bool]
}

// look lists the volumes of a host that is not well, or whose DPU has lost a path, or from
// whose DPU the right to write is being taken. It looks at the other hosts every few seconds too, so for
// their sake nothing is copied and nothing of the volumes is read but the claims.
func (r targetReader) look(ctx context.Context, p *pass) error {
	if !p.begun() && !p.unwell() && len(p.node.Status.LostPaths()) == 0 {
		if ending, err := r.ending(ctx, p); err != nil || !ending {
			return err
		}
	}
	return r.list(ctx, p)
}

// ending reports whether the right to write of one of the host's attachments is being
// taken, or an operator wants that, or a DPU holds it that is not the host's. What it
// reads is the cache's own.
func (r targetReader) ending(ctx context.Context, p *pass) (bool, error) {
	list, err := r.attachments(ctx, p.node.Name, client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, err
	}
	for i := range list {
		key := client.ObjectKey{Namespace: r.targetNamespace, Name: list[i].Spec.DPUVolumeName}
		claim := &moorv1alpha1.WriterClaim{}
		if _, err := kube.Find(ctx, r.dpu.Client, key, claim, client.UnsafeDisableDeepCopy); err != nil {
			return false, err
		}
		holder := writer.HolderFor(claim, list[i].Name)
		if holder.DPU != "" && (holder.DPU != p.dpu() || writer.InFencing(claim, holder) || writer.Vouched(claim, holder)) {
			return true, nil
		}
	}
	return false, nil
}

// attachments are those of a host.
func (r targetReader) attachments(ctx context.Context, host string, options ...client.ListOption) ([]storagev1alpha1.DPUVolumeAttachment, error) {
	var list storagev1alpha1.DPUVolumeAttachmentList
	of := []client.ListOption{client.InNamespace(r.namespace), client.MatchingFields{index.DPUVolumeAttachmentByNode: host}}
	if err := r.host.Client.List(ctx, &list, append(of, options...)...); err != nil {
		return nil, fmt.Errorf("list what is attached to host %s: %w", host, err)
	}
	return list.Items, nil
}

// list lists the primaries of the host, and what is one on its DPU.
func (r targetReader) list(ctx context.Context, p *pass) error {
	list, err := r.attachments(ctx, p.node.Name)
	if err != nil {
		return err
	}
	for i := range list {
		a := &list[i]
		t := &target{attachment: a, volume: &storagev1alpha1.DPUVolume{}}
		found, err := kube.Find(ctx, r.host.Client, client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.DPUVolumeName}, t.volume)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		replication := t.volume.Spec.Replication
		t.single, t.fails = provisioner.SingleNode(t.volume.Spec.AccessModes), replication != nil && replication.Failover == storagev1alpha1.FailoverFence
		if err := r.read(ctx, r.dpu.Client, t); err != nil {
			return err
		}
		if a.Spec.Role == storagev1alpha1.RoleReplica && !t.promoted() && !t.held() {
			continue
		}
		p.targets = append(p.targets, t)
	}
	return nil
}

// readLive reads the claims and VolumeAttachments from the API server itself, of those
// targets for which something can be done. Each word of a DPU about one of its volumes
// starts a pass over all of them: if that were to read all, what is read would grow with
// the square of the volumes. The others are read again after readAgain, should a watch
// have stopped, and those that are over after askAgain. Where a fence is to begin, the
// first is read, so that none begins while the API server does not answer: it begins by
// compare-and-swap, and what it goes on with is read then.
func (r targetReader) readLive(ctx context.Context, p *pass) error {
	return forEach(p.targets, func(t *target) error {
		over, left := r.asked.Get(t.attachment.UID, r.clock.Now())
		if left > 0 && p.takes() && !p.letsGo(t) {
			if over && !t.held() {
				return nil
			}
			if t.missing = p.missing(t); t.missing != "" {
				return nil
			}
		}
		if t.cached = p.granted(t) && t != p.targets[0]; t.cached {
			return nil
		}
		if err := r.read(ctx, r.dpu.Live, t); err != nil {
			return err
		}
		r.note(t)
		return nil
	})
}

// readAgain is after what time a target is read again of which the cache shows no answer.
// An API server that is overloaded takes seconds for an answer: what is read for nothing
// meanwhile makes all answers later.
const readAgain = 15 * time.Second

// note remembers that a target was read live, or begun, and whether it was over, which it stays.
func (r targetReader) note(t *target) {
	now, again := r.clock.Now(), readAgain
	if t.over() {
		again = askAgain
	}
	r.asked.Note(t.attachment.UID, t.over(), now, now.Add(again))
}

func (r targetReader) read(ctx context.Context, from client.Reader, t *target) error {
	if !t.single {
		return nil
	}
	t.claim = &moorv1alpha1.WriterClaim{}
	found, err := kube.Find(ctx, from, client.ObjectKey{Namespace: r.targetNamespace, Name: t.volume.Name}, t.claim)
	if err != nil {
		return err
	}
	if !found {
		t.claim = nil
	}
	return r.readMirror(ctx, from, t)
}

func (r targetReader) readMirror(ctx context.Context, from client.Reader, t *target) error {
	t.mirror = &storagev1alpha1.VolumeAttachment{}
	found, err := kube.Find(ctx, from, client.ObjectKey{Namespace: r.targetNamespace, Name: t.attachment.Name}, t.mirror)
	if err == nil && !found {
		t.mirror = nil
	}
	return err
}
