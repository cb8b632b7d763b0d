package fleet

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/internal/kube"
)

// What a kubelet does while nothing changes: it renews its Lease, and now and then
// writes its Node (nodeLeaseDurationSeconds 40 renewed each quarter of it;
// nodeStatusReportFrequency).
const (
	leasePeriod  = 10 * time.Second
	statusPeriod = 5 * time.Minute
)

// kubelet renews the Lease of a Node, and writes its status. It begins at a moment
// within a while, and its first status comes at one of the first period.
func (f *Fleet) kubelet(ctx context.Context, name string, within time.Duration) {
	period := f.slowed(leasePeriod)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
	log := ctrl.LoggerFrom(ctx).WithName("kubelet")
	next := time.Now().Add(spread(f.slowed(statusPeriod)))
	for Pause(ctx, spread(within)); ctx.Err() == nil; Pause(ctx, period) {
		if err := f.renew(ctx, lease); err != nil && ctx.Err() == nil {
			log.Error(err, "renew", "node", name)
			lease.ResourceVersion = ""
		}
		if time.Now().After(next) {
			next = next.Add(f.slowed(statusPeriod))
			if err := f.status(ctx, name); err != nil && ctx.Err() == nil {
				log.Error(err, "write the status", "node", name)
			}
		}
	}
}

// renew updates the Lease as it was answered last, as a kubelet does.
func (f *Fleet) renew(ctx context.Context, lease *coordinationv1.Lease) error {
	if lease.ResourceVersion == "" {
		if err := f.clients.Host.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
			return err
		}
	}
	now := metav1.NewMicroTime(time.Now())
	lease.Spec.RenewTime = &now
	return f.clients.Host.Update(ctx, lease)
}

// status writes the Node's heartbeat.
func (f *Fleet) status(ctx context.Context, name string) error {
	node := &corev1.Node{}
	if err := f.clients.Host.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	_, err := kube.PatchStatus(ctx, f.clients.Host, node, func(n *corev1.Node) {
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].LastHeartbeatTime = metav1.Now()
		}
	})
	return err
}

// Node is what a kubelet says of a host or a DPU: some 12 KB.
func Node(name string, labels map[string]string) *corev1.Node {
	now := metav1.Now()
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}}}
	for key, value := range labels {
		out.Labels[key] = value
	}
	for kind, healthy := range map[corev1.NodeConditionType]corev1.ConditionStatus{
		corev1.NodeReady: corev1.ConditionTrue, corev1.NodeMemoryPressure: corev1.ConditionFalse,
		corev1.NodeDiskPressure: corev1.ConditionFalse, corev1.NodePIDPressure: corev1.ConditionFalse,
	} {
		out.Status.Conditions = append(out.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: healthy, Reason: "Kubelet", Message: "as the kubelet says", LastHeartbeatTime: now, LastTransitionTime: now,
		})
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("128"), corev1.ResourceMemory: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("250"),
	}
	out.Status.Capacity, out.Status.Allocatable, out.Status.Images = room, room, images()
	return out
}
