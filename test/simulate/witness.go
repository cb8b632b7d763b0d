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

// beat lets a host and its DPU send their heartbeats, while they can.
func (w *World) beat(d *hardware.DPU) {
	if d.Host != "" && d.HostOn && !w.down["host "+d.Host] && !w.down[w.Host.Name] {
		w.beats[d.Host] = time.Now()
	}
	if !w.plan.Leases && w.speaks(d) {
		w.beats[d.Name] = time.Now()
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
	if node, found := cluster.Find[*corev1.Node](w.Host, "", d.Host); d.Host != "" && found && !w.down[w.Host.Name] {
		next := node.DeepCopy()
		ready(next).Status = corev1.ConditionTrue
		if time.Since(w.beats[d.Host]) > nodeGrace {
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
	if !found && w.speaks(d) {
		w.must(w.DPU.Create(registration(d)))
	}
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
	for _, host := range w.hosts() {
		dpu := w.cardIn(host).Name
		concerned := e.Key.Name == host || e.Key.Name == dpu || strings.HasPrefix(e.Key.Name, host+"-")
		if claim, ok := o.(*moorv1alpha1.WriterClaim); ok {
			concerned = claim.Status != nil && (claim.Status.Holder == dpu || strings.HasPrefix(claim.Status.Attachment, host+"-"))
		}
		if concerned {
			out = append(out, request("", host))
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
		w.hearDPUs(o, clusters.DPU)
	}
	for _, host := range w.hosts() {
		if bmcs != nil { // as passes that ask wake it
			bmcs.add(request(kubetest.HostNamespace, host), 0)
		}
		before := o.Known(host)
		if at := w.beats[host]; here && !at.IsZero() {
			o.Kubelet(host, at)
			o.Lease(host, nodehealth.HostCluster, at)
		}
		node := kubetest.DPUStorageNode(host)
		if clusters.Host.Client.Get(context.Background(), request("", host).NamespacedName, node) != nil {
			continue // the view lacks it yet
		}
		if at := w.beats[node.Spec.DPUName]; there && !w.plan.Leases && !at.IsZero() {
			o.Lease(host, nodehealth.DPUCluster, at)
		}
		if nodehealth.FromDPU(context.Background(), clusters.DPU.Client, node) == nil && o.Observe(node) != before {
			passes.add(request("", host), 0)
		}
	}
	w.Engine.After(lookPeriod, func() { l.hear(o, passes, bmcs, clusters) })
}

// hearDPUs lets a controller hear the DPUs: those that promise to stop by their objects, others by their Leases.
func (w *World) hearDPUs(o *nodehealth.Observer, there kube.Cluster) {
	for _, d := range w.Cards {
		own, renewed := kubetest.DPUStorageNode(d.Name), w.beats[d.Name]
		switch {
		case !w.plan.Leases && !renewed.IsZero():
			o.HearDPU(d.Name, 0, renewed)
		case w.plan.Leases && there.Client.Get(context.Background(), request("", d.Name).NamespacedName, own) == nil && own.Status.DPU != nil:
			o.HearDPU(d.Name, own.Status.DPU.Sequence, time.Time{})
		}
	}
}

// populateHosts makes the hosts and their DPUs, as the clusters know them.
func (w *World) populateHosts() error {
	for _, d := range w.Cards {
		node := kubetest.Node(d.Host, nil)
		node.Status.NodeInfo.BootID = boot(d.Host, 0)
		for _, err := range []error{w.Host.Create(node), w.Host.Create(kubetest.DPUStorageNode(d.Host)), w.DPU.Create(registration(d))} {
			if err != nil {
				return fmt.Errorf("make host %s: %w", d.Host, err)
			}
		}
	}
	return nil
}

// registration is the DPUStorageNode of a DPU, as its program makes it.
func registration(d *hardware.DPU) *moorv1alpha1.DPUStorageNode {
	out := kubetest.DPUStorageNode(d.Name)
	out.Spec = moorv1alpha1.DPUStorageNodeSpec{}
	out.Status.DPU = &moorv1alpha1.DPUState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: 1}, Host: &moorv1alpha1.HostObservation{Alive: true}}
	return out
}

func boot(host string, n int) string { return fmt.Sprintf("boot-%d-of-%s", n, host) }

// receipts counts how claims were freed.
func (w *World) receipts(e cluster.Event) {
	claim, ok := e.Object.(*moorv1alpha1.WriterClaim)
	before, was := e.Before.(*moorv1alpha1.WriterClaim)
	if ok && was && claim.Status != nil && before.Status != nil && claim.Status.Phase == moorv1alpha1.ClaimFencing && before.Status.Phase == moorv1alpha1.ClaimGranted &&
		w.lostWay(claim.Name, w.card(claim.Status.Holder).Host) {
		w.played["fenced where the way is lost"]++
	}
	if !ok || !was || claim.Status == nil || before.Status == nil || claim.Status.Phase != moorv1alpha1.ClaimFree || before.Status.Phase == moorv1alpha1.ClaimFree {
		return
	}
	if n := len(claim.Status.Receipts); n > 0 {
		w.played["receipt "+string(claim.Status.Receipts[n-1].Kind)]++
	}
}
