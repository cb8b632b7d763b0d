package listener

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
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
	o *Objects
	// host and dpu tell of changes, as a watch does.
	host, dpu *controllertest.FakeInformer
}

func newFixture(t *testing.T) *fixture {
	s := &fixture{Clusters: kubetest.New(t), t: t}
	s.Host.Add(kubetest.DPUStorageNode("a"))
	there := kubetest.DPUStorageNode("dpu-a")
	there.Spec.DPUName = ""
	s.DPU.Add(there)
	s.o = &Objects{Host: s.Host.Cluster, DPU: s.DPU.Cluster, Observer: nodehealth.New(clock.RealClock{}, 0, 0), Clock: clock.RealClock{}}
	informers := func(scheme *informertest.FakeInformers) *controllertest.FakeInformer {
		got, err := scheme.FakeInformerFor(t.Context(), &moorv1alpha1.DPUStorageNode{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	host, dpu := &informertest.FakeInformers{Scheme: s.Host.Client.Scheme()}, &informertest.FakeInformers{Scheme: s.DPU.Client.Scheme()}
	s.o.Host.Cache, s.o.DPU.Cache = host, dpu
	s.host, s.dpu = informers(host), informers(dpu)
	stop, err := s.o.listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
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
