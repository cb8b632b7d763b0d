package listener

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// fixture is host "a" with DPU "dpu-a", whose objects are heard, and no reconciler.
type fixture struct {
	*kubetest.Clusters
	t *testing.T
	o *Nodes
	// host and dpu tell of changes, as a watch does.
	host, dpu             *controllertest.FakeInformer
	hostLeases, dpuLeases *controllertest.FakeInformer
}

func newFixture(t *testing.T) *fixture {
	s := &fixture{Clusters: kubetest.New(t), t: t}
	s.Host.Add(kubetest.DPUStorageNode("a"))
	there := kubetest.DPUStorageNode("dpu-a")
	there.Spec.DPUName = ""
	s.DPU.Add(there)
	s.o = &Nodes{
		Host: s.Host.Cluster, DPU: s.DPU.Cluster, HostNamespace: kubetest.HostNamespace, DPUNamespace: kubetest.DPUNamespace,
		Observer: nodehealth.New(clock.RealClock{}, 0, 0), Clock: clock.RealClock{},
	}
	informers := func(of *informertest.FakeInformers, kind client.Object) *controllertest.FakeInformer {
		got, err := of.FakeInformerFor(t.Context(), kind)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	host, dpu := &informertest.FakeInformers{Scheme: s.Host.Client.Scheme()}, &informertest.FakeInformers{Scheme: s.DPU.Client.Scheme()}
	s.o.Host.Cache, s.o.DPU.Cache = host, dpu
	s.host, s.dpu = informers(host, &moorv1alpha1.DPUStorageNode{}), informers(dpu, &moorv1alpha1.DPUStorageNode{})
	s.hostLeases, s.dpuLeases = informers(host, &coordinationv1.Lease{}), informers(dpu, &coordinationv1.Lease{})
	stop, err := s.o.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	s.host.Add(kubetest.DPUStorageNode("a"))
	return s
}

// beat lets the host or the DPU beat.
func (s *fixture) beat(of string) {
	s.t.Helper()
	if of == "a" {
		kubetest.Change(s.Host, kubetest.DPUStorageNode(of), func(n *moorv1alpha1.DPUStorageNode) {
			if n.Status.Host == nil {
				n.Status.Host = &moorv1alpha1.HostState{}
			}
			n.Status.Host.Sequence++
		})
		n, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode(of))
		s.host.Update(n, n)
		return
	}
	s.report(func(d *moorv1alpha1.DPUState) { d.Sequence++ })
}

// report changes what the DPU says.
func (s *fixture) report(change func(*moorv1alpha1.DPUState)) {
	s.t.Helper()
	kubetest.Change(s.DPU, kubetest.DPUStorageNode("dpu-a"), func(n *moorv1alpha1.DPUStorageNode) {
		if n.Status.DPU == nil {
			n.Status.DPU = &moorv1alpha1.DPUState{}
		}
		change(n.Status.DPU)
	})
	n, _ := kubetest.Read(s.DPU, kubetest.DPUStorageNode("dpu-a"))
	s.dpu.Update(n, n)
}

// TestHears: a heartbeat counts though no reconciler looks, of the host and of the DPU,
// and what the DPU says of its host is known at once.
func TestHears(t *testing.T) {
	s := newFixture(t)
	for range 2 {
		s.beat("a")
		s.beat("dpu-a")
	}
	got := s.o.Observer.Known("a")
	if got.Host != nodehealth.Fresh || got.DPU != nodehealth.Fresh {
		t.Errorf("heard: %+v", got)
	}
	s.report(func(d *moorv1alpha1.DPUState) { d.Host = &moorv1alpha1.HostObservation{Evidence: "no link"} })
	if got = s.o.Observer.Known("a"); got.HostSeen != nodehealth.SeenDead || got.Message != "no link" {
		t.Errorf("heard: %+v", got)
	}
}

// TestHearsADPUThatNoHostHas: as when another one has come in its place.
func TestHearsADPUThatNoHostHas(t *testing.T) {
	s := newFixture(t)
	host, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode("a"))
	kubetest.Change(s.Host, host, func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = "dpu-c" })
	s.beat("dpu-a")
	s.beat("dpu-a")
	if got := s.o.Observer.DPU("dpu-a"); got != nodehealth.Fresh {
		t.Errorf("by its object it is %s", got)
	}
	s = newFixture(t)
	kubetest.Change(s.Host, kubetest.DPUStorageNode("a"), func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = "dpu-c" })
	for i := range 3 {
		s.renew("dpu-a", kubetest.DPUNamespace, "dpu-a", time.Unix(int64(1000-i), 0))
	}
	if got := s.o.Observer.DPU("dpu-a"); got != nodehealth.Fresh {
		t.Errorf("by its Lease it is %s", got)
	}
}

// TestHearsTheMirrorOfADPUThatHasNoObject, which does not beat; and nothing of a host
// that has none.
func TestHearsTheMirrorOfADPUThatHasNoObject(t *testing.T) {
	s := newFixture(t)
	kubetest.Change(s.Host, kubetest.DPUStorageNode("a"), func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.DPU = &moorv1alpha1.DPUState{Heartbeat: moorv1alpha1.Heartbeat{Sequence: 7}, Host: &moorv1alpha1.HostObservation{Evidence: "no link"}}
	})
	there, _ := kubetest.Read(s.DPU, kubetest.DPUStorageNode("dpu-a"))
	s.DPU.Remove(there)
	s.dpu.Delete(there)
	if got := s.o.Observer.Known("a"); got.HostSeen != nodehealth.SeenDead || !got.DPUUnheard {
		t.Errorf("of a DPU without an object: %+v", got)
	}
	host, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode("a"))
	s.Host.Remove(host)
	s.host.Delete(host)
	if got := s.o.Observer.Known("a"); got.HostSeen != nodehealth.Unseen || got.DPUUnheard {
		t.Errorf("of a host without an object: %+v", got)
	}
}

// renew writes a Lease of a host or a DPU, in a namespace, as held by a node.
func (s *fixture) renew(of, namespace, holder string, renewed time.Time) *coordinationv1.Lease {
	s.t.Helper()
	in, told := s.Host, s.hostLeases
	if of == "dpu-a" {
		in, told = s.DPU, s.dpuLeases
	}
	lease := lease(namespace, moorv1alpha1.LeaseName(of), renewed)
	lease.Spec.HolderIdentity = &holder
	if there, found := kubetest.Read(in, lease.DeepCopy()); found {
		in.Remove(there)
	}
	in.Add(lease)
	told.Update(lease, lease)
	return lease
}

// TestHearsLeases: of the host in its cluster and of the DPU in its own, where they are
// and by whom they are held.
func TestHearsLeases(t *testing.T) {
	for name, tc := range map[string]struct {
		of, namespace, holder string
		host, dpu             nodehealth.Beat
	}{
		"of the host":                {"a", kubetest.HostNamespace, "a", nodehealth.Fresh, nodehealth.Unknown},
		"of the DPU":                 {"dpu-a", kubetest.DPUNamespace, "dpu-a", nodehealth.Unknown, nodehealth.Fresh},
		"held by another host":       {"a", kubetest.HostNamespace, "b", nodehealth.Unknown, nodehealth.Unknown},
		"held by its DPU":            {"a", kubetest.HostNamespace, "dpu-a", nodehealth.Unknown, nodehealth.Unknown},
		"in another namespace":       {"a", "elsewhere", "a", nodehealth.Unknown, nodehealth.Unknown},
		"of a DPU, held by the host": {"dpu-a", kubetest.DPUNamespace, "a", nodehealth.Unknown, nodehealth.Unknown},
		"of a host that is unknown":  {"z", kubetest.HostNamespace, "z", nodehealth.Unknown, nodehealth.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			for i := range 3 {
				s.renew(tc.of, tc.namespace, tc.holder, time.Unix(int64(1000-i), 0))
			}
			if got := s.o.Observer.Known("a"); got.Host != tc.host || got.DPU != tc.dpu {
				t.Errorf("host %s, DPU %s; want %s, %s", got.Host, got.DPU, tc.host, tc.dpu)
			}
		})
	}
}

// TestLeaseBeforeItsNode: a DPU whose Lease is there before its host is known is heard
// with its next heartbeat, and a Lease that is deleted is no sign of life.
func TestLeaseBeforeItsNode(t *testing.T) {
	s := newFixture(t)
	host, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode("a"))
	s.Host.Remove(host)
	s.host.Delete(host)
	s.renew("dpu-a", kubetest.DPUNamespace, "dpu-a", time.Unix(1, 0))
	s.Host.Add(kubetest.DPUStorageNode("a"))
	s.host.Add(host)
	last := s.renew("dpu-a", kubetest.DPUNamespace, "dpu-a", time.Unix(1, 0))
	if got := s.o.Observer.Known("a"); got.DPU != nodehealth.Unknown || !got.DPUUnheard {
		t.Errorf("read, and not heard yet: %+v", got)
	}
	s.DPU.Remove(last)
	s.dpuLeases.Delete(last)
	if got := s.o.Observer.Known("a"); !got.DPUUnheard {
		t.Errorf("heard by a Lease that was deleted: %+v", got)
	}
	s.renew("dpu-a", kubetest.DPUNamespace, "dpu-a", time.Unix(2, 0))
	if got := s.o.Observer.Known("a"); got.DPU != nodehealth.Fresh {
		t.Errorf("renewed: %+v", got)
	}
}

// TestLeasesFollowTheDPUOfAHost: a Lease counts for the hosts that have that DPU as it
// comes, and for no other.
func TestLeasesFollowTheDPUOfAHost(t *testing.T) {
	s := newFixture(t)
	has := func(dpu string) {
		host, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode("a"))
		kubetest.Change(s.Host, host, func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = dpu })
		host.Spec.DPUName = dpu
		s.host.Update(host, host)
	}
	for _, step := range []struct {
		name string
		do   func()
		want nodehealth.Beat
	}{
		{"it has another DPU", func() { has("dpu-c") }, nodehealth.Unknown},
		{"that one is silent", func() { s.renew("dpu-a", kubetest.DPUNamespace, "dpu-a", time.Unix(3, 0)) }, nodehealth.Unknown},
		{"it has the first one again, whose last Lease was read before", func() { has("dpu-a") }, nodehealth.Unknown},
		{"which is renewed", func() { s.renew("dpu-a", kubetest.DPUNamespace, "dpu-a", time.Unix(4, 0)) }, nodehealth.Fresh},
		{"it has none", func() { has("") }, nodehealth.Unknown},
	} {
		step.do()
		if got := s.o.Observer.Known("a").DPU; got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
}

// added is a workqueue that says what is added to it.
type added struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	names chan string
}

func (a added) Add(r reconcile.Request) { a.names <- r.Name }

// TestNoticesSilence: by the clock alone, as soon as it counts.
func TestNoticesSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		quiet := added{names: make(chan string, 100)}
		silent := s.o.Observer.Source(func(_, after nodehealth.Observation) bool { return after.Host == nodehealth.Quiet })
		if err := silent.Start(t.Context(), quiet); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.o.Start(ctx) }()
		synctest.Wait()
		var last time.Time
		for i := range 20 {
			if i < 5 {
				s.beat("a")
				last = time.Now()
			}
			time.Sleep(time.Second)
			s.o.Observer.SelfHeartbeat(nodehealth.HostCluster)
			s.o.Observer.SelfHeartbeat(nodehealth.DPUCluster)
			synctest.Wait()
			told, is := len(quiet.names) > 0, time.Since(last)
			if told && is < nodehealth.DefaultSilence || !told && is > nodehealth.DefaultSilence+time.Second {
				t.Errorf("%s after the last heartbeat, told of silence: %v", is, told)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
