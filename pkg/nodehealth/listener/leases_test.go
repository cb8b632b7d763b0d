package listener

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func lease(namespace, name string, renewed time.Time) *coordinationv1.Lease {
	at := metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
}

// TestRecord: kubelets and this process, and no other leases.
func TestRecord(t *testing.T) {
	clock := clocktesting.NewFakeClock(now)
	o := nodehealth.New(clock, 0, 0)
	w := &Leases{Source: nodehealth.HostCluster, Namespace: "moor", Observer: o, Clock: clock}
	stamp := time.Unix(1, 0)
	step := func(n int, leases ...*coordinationv1.Lease) {
		for range n {
			clock.Step(2 * time.Second)
			for _, l := range leases {
				stamp = stamp.Add(time.Second)
				if l.Spec.RenewTime != nil {
					l.Spec.RenewTime.Time = stamp
				}
				w.record(l)
			}
		}
	}
	own, kubelet := lease("moor", SelfHeartbeatName, stamp), lease(corev1.NamespaceNodeLease, "a", stamp)
	step(3, own, kubelet, lease("moor", "other", stamp), lease("elsewhere", SelfHeartbeatName, stamp))
	if got := o.Known("a").Kubelet; got != nodehealth.Fresh {
		t.Errorf("kubelet %s", got)
	}
	step(8, lease("moor", "other", stamp), lease("elsewhere", SelfHeartbeatName, stamp), &coordinationv1.Lease{})
	if got := o.Known("a").Kubelet; got != nodehealth.Fresh {
		t.Errorf("nothing was heard, but the kubelet is %s", got)
	}
	clock.SetTime(now.Add(time.Hour))
	step(3, own, kubelet)
	step(8, own)
	if got := o.Known("a").Kubelet; got != nodehealth.Quiet {
		t.Errorf("kubelet %s", got)
	}
}

// TestWriteSelfHeartbeat: the Lease is made, and then renewed, without reading it.
func TestWriteSelfHeartbeat(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	clock := clocktesting.NewFakeClock(now)
	w := &Leases{Cluster: kube.Cluster{Client: c}, Namespace: "moor", Clock: clock}
	for range 3 {
		clock.Step(time.Second)
		if err := w.writeSelfHeartbeat(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got coordinationv1.Lease
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: "moor", Name: SelfHeartbeatName}, &got); err != nil || !got.Spec.RenewTime.Time.Equal(clock.Now()) {
			t.Errorf("renewed %v, %v", got.Spec.RenewTime, err)
		}
	}
}

// TestReplicasListen: one that waits for its lease hears what the leader hears.
func TestReplicasListen(t *testing.T) {
	if new(Leases).NeedLeaderElection() || new(Nodes).NeedLeaderElection() {
		t.Error("a replica that takes over would have heard nothing")
	}
}
