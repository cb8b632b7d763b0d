package simulate

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/index"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/internal/podvolume"
	"github.com/moor-storage/moor/pkg/controller/failover"
	"github.com/moor-storage/moor/pkg/controller/failover/detach"
	"github.com/moor-storage/moor/pkg/controller/hostcluster"
	hostattachment "github.com/moor-storage/moor/pkg/controller/hostcluster/attachment"
	"github.com/moor-storage/moor/pkg/nodehealth"
	"github.com/moor-storage/moor/test/simulate/cluster"
	"github.com/moor-storage/moor/test/simulate/hardware"
)

const (
	// beatPeriod is the time between two heartbeats of a witness.
	beatPeriod = 10 * time.Second
	// nodeGrace is how long a kubelet may be silent before the control plane says so.
	nodeGrace = 40 * time.Second
	// lookPeriod is how often what a controller hears is played.
	lookPeriod = 2 * time.Second
)

// beats are the last heartbeats of a host, of its kubelet and of its DPU, as their Leases
// tell.
type beats struct{ host, dpu time.Time }

// beat lets a host and its DPU send their heartbeats, while they can.
func (w *World) beat(d *hardware.DPU) {
	b := w.beats[d.Host]
	if d.HostOn && !w.down["host "+d.Host] && !w.down[w.Host.Name] {
		b.host = time.Now()
	}
	if !w.plan.Leases && w.speaks(d) {
		b.dpu = time.Now()
	}
	w.Engine.After(beatPeriod+time.Duration(w.dice.Int64N(int64(200*time.Millisecond))), func() { w.beat(d) })
}

// speaks reports whether the program of a DPU runs, and reaches its cluster.
func (w *World) speaks(d *hardware.DPU) bool {
	l := w.processOf(d.Name).life
	return d.On && l != nil && l.Alive() && !w.down[d.Name] && !w.down[w.DPU.Name]
}

// look lets a kubelet and the control plane speak of a Node, and a DPU of its host.
func (w *World) look(d *hardware.DPU) {
	if node, found := cluster.Find[*corev1.Node](w.Host, "", d.Host); found && !w.down[w.Host.Name] {
		next := node.DeepCopy()
		ready(next).Status = corev1.ConditionTrue
		if time.Since(w.beats[d.Host].host) > nodeGrace {
			ready(next).Status = corev1.ConditionUnknown
		}
		if w.runs(d.Host) { // what its kubelet says, also after a restore
			next.Status.NodeInfo.BootID = boot(d.Host, w.boots[d.Host])
		}
		if !equality.Semantic.DeepEqual(node, next) {
			w.Engine.Tell("kubernetes", "Node %s is Ready: %s", d.Host, ready(next).Status)
			w.must(w.Host.UpdateStatus(next))
		}
	}
	there, found := cluster.Find[*moorv1alpha1.DPUStorageNode](w.DPU, "", d.Name)
	if !w.plan.Leases && found && w.speaks(d) && there.Status.DPU.Host.Alive != w.linked(d) {
		next := there.DeepCopy()
		next.Status.DPU.Host.Alive = w.linked(d)
		w.Engine.Tell(d.Name, "sees its host alive: %t", w.linked(d))
		w.must(w.DPU.UpdateStatus(next))
	}
	w.tellWays(d)
	w.Engine.After(time.Duration(w.dice.Int64N(int64(2*time.Second)))+500*time.Millisecond, func() { w.look(d) })
}

// hostController is snap-host-controller.
func (w *World) hostController(l *life) {
	host, there := l.watch(w.Host, index.Host()), l.watch(w.DPU, index.Mirrors())
	clusters := hostcluster.Clusters{
		Host: l.cluster(host), DPU: l.cluster(there), DPUClusterName: kubetest.DPUClusterName,
		Namespace: kubetest.HostNamespace, TargetNamespace: kubetest.DPUNamespace,
	}
	observer := nodehealth.New(bubble{}, 0, 0)
	users := &hostattachment.Users{Users: podvolume.Users{Host: clusters.Host, Drivers: []string{kubetest.Driver}}}
	silence := func(dpu string) bool { return observer.DPU(dpu) == nodehealth.Stale }
	l.run("attachment", &hostattachment.Reconciler{Clusters: clusters, Users: users, NodesAsk: w.plan.Nodes, Recorder: silent{}, Silent: silence, Clock: bubble{}},
		func(_ *link, e cluster.Event) []reconcile.Request { return attachmentsOf(host, e) })
	l.run("detach", &detach.Reconciler{
		DPU: clusters.DPU, Host: clusters.Host, Clock: bubble{}, TargetNamespace: kubetest.DPUNamespace, Recorder: silent{}, Heartbeats: observer,
	}, func(_ *link, e cluster.Event) []reconcile.Request {
		return append(named(e, kubetest.DPUNamespace, "VolumeAttachment", "DPUVolumeAttachment"), claimed(e)...)
	})
	keeper, bmcs := l.keeper(clusters, observer)
	passes := l.run("failover", failover.New(failover.Options{
		Host: clusters.Host, DPU: clusters.DPU, Namespace: kubetest.HostNamespace, TargetNamespace: kubetest.DPUNamespace,
		Drivers: []string{kubetest.Driver}, Observer: observer, Clock: bubble{}, Recorder: silent{}, Budget: failover.DefaultBudget, Power: keeper,
	}), func(_ *link, e cluster.Event) []reconcile.Request { return w.hostsOf(e) })
	w.Engine.After(0, func() { l.hear(observer, passes, bmcs, clusters) })
}

// claimed are the VolumeAttachments that a claim names, or named before it changed.
func claimed(e cluster.Event) []reconcile.Request {
	var out []reconcile.Request
	for _, o := range []any{e.Before, e.Object} {
		if claim, ok := o.(*moorv1alpha1.WriterClaim); ok {
			out = append(out, detach.OfClaim(context.Background(), claim)...)
		}
	}
	return out
}

// hostsOf are the hosts that a change concerns: by name, by the DPU, or by the attachment,
// whose name begins with the host's.
func (w *World) hostsOf(e cluster.Event) []reconcile.Request {
	o := e.Object
	if o == nil {
		o = e.Before
	}
	var out []reconcile.Request
	for _, d := range w.Cards {
		concerned := e.Key.Name == d.Host || e.Key.Name == d.Name || len(e.Key.Name) > len(d.Host) && e.Key.Name[:len(d.Host)+1] == d.Host+"-"
		if claim, ok := o.(*moorv1alpha1.WriterClaim); ok {
			concerned = claim.Status != nil && claim.Status.Holder == d.Name
		}
		if concerned {
			out = append(out, request("", d.Host))
		}
	}
	return out
}

// hear lets a controller hear what has reached it, and look at the hosts of which it knows
// something else since.
func (l *life) hear(o *nodehealth.Observer, passes, bmcs *loop, clusters hostcluster.Clusters) {
	if !l.Alive() {
		return
	}
	w := l.process.world
	here, there := !l.links[0].cut(), !l.links[1].cut()
	if here {
		o.SelfHeartbeat(nodehealth.HostCluster)
	}
	if there {
		o.SelfHeartbeat(nodehealth.DPUCluster)
	}
	for _, d := range w.Cards {
		if bmcs != nil { // as passes that ask wake it
			bmcs.add(request(kubetest.HostNamespace, d.Host), 0)
		}
		b, before := w.beats[d.Host], o.Known(d.Host)
		if here && !b.host.IsZero() {
			o.Kubelet(d.Host, b.host)
			o.Lease(d.Host, nodehealth.HostCluster, b.host)
		}
		if there {
			w.hearDPU(o, clusters.DPU, d, b.dpu)
		}
		node := kubetest.DPUStorageNode(d.Host)
		if clusters.Host.Client.Get(context.Background(), request("", d.Host).NamespacedName, node) != nil {
			continue // the view lacks it yet
		}
		if nodehealth.FromDPU(context.Background(), clusters.DPU.Client, node) == nil && o.Observe(node) != before {
			passes.add(request("", d.Host), 0)
		}
	}
	w.Engine.After(lookPeriod, func() { l.hear(o, passes, bmcs, clusters) })
}

// hearDPU lets a controller hear a DPU: one that promises to stop by its object, another by its Lease.
func (w *World) hearDPU(o *nodehealth.Observer, there kube.Cluster, d *hardware.DPU, renewed time.Time) {
	own := kubetest.DPUStorageNode(d.Name)
	switch {
	case !w.plan.Leases && !renewed.IsZero():
		o.Lease(d.Host, nodehealth.DPUCluster, renewed)
		o.HearDPU(d.Name, 0, renewed)
	case w.plan.Leases && there.Client.Get(context.Background(), request("", d.Name).NamespacedName, own) == nil && own.Status.DPU != nil:
		o.HearDPU(d.Name, own.Status.DPU.Sequence, time.Time{})
	}
}

// populateHosts makes the hosts and their DPUs, as the clusters know them.
func (w *World) populateHosts() error {
	for _, d := range w.Cards {
		node := kubetest.Node(d.Host, nil)
		node.Status.NodeInfo.BootID = boot(d.Host, 0)
		here, there := kubetest.DPUStorageNode(d.Host), kubetest.DPUStorageNode(d.Name)
		there.Spec = moorv1alpha1.DPUStorageNodeSpec{}
		there.Status.DPU = &moorv1alpha1.DPUState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: 1}, Host: &moorv1alpha1.HostObservation{Alive: true}}
		for _, err := range []error{w.Host.Create(node), w.Host.Create(here), w.DPU.Create(there)} {
			if err != nil {
				return fmt.Errorf("make host %s: %w", d.Host, err)
			}
		}
	}
	return nil
}

func boot(host string, n int) string { return fmt.Sprintf("boot-%d-of-%s", n, host) }

// receipts counts how claims were freed.
func (w *World) receipts(e cluster.Event) {
	claim, ok := e.Object.(*moorv1alpha1.WriterClaim)
	before, was := e.Before.(*moorv1alpha1.WriterClaim)
	if ok && was && claim.Status != nil && before.Status != nil && claim.Status.Phase == moorv1alpha1.ClaimFencing && before.Status.Phase == moorv1alpha1.ClaimGranted &&
		w.lostWay(claim.Name, strings.TrimPrefix(claim.Status.Holder, "dpu-")) {
		w.played["fenced where the way is lost"]++
	}
	if !ok || !was || claim.Status == nil || before.Status == nil || claim.Status.Phase != moorv1alpha1.ClaimFree || before.Status.Phase == moorv1alpha1.ClaimFree {
		return
	}
	if n := len(claim.Status.Receipts); n > 0 {
		w.played["receipt "+string(claim.Status.Receipts[n-1].Kind)]++
	}
}
