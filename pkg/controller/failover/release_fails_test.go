package failover

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/writer"
)

// releasing is a pass over host a, whose volume is free, and its target.
func (s *fixture) releasing() (*pass, *target) {
	s.t.Helper()
	p, t := fencePass()
	t.claim.Status = &moorv1alpha1.WriterClaimStatus{Phase: freed, Epoch: 4}
	now := metav1.NewTime(s.Clock.Now())
	t.mirror.DeletionTimestamp = &now
	p.core, _ = kubetest.Read(s.Host, kubetest.Node("a", nil))
	return p, t
}

// outOfServiceBefore lets the host have been put out of service.
func (s *fixture) outOfServiceBefore() {
	s.t.Helper()
	s.core("a", func(n *corev1.Node) { n.Spec.Taints = outOfService() })
}

func isBack(p *pass, _ *target)      { p.state, p.action = Healthy, Restore }
func nothingLost(_ *pass, t *target) { t.mirror.DeletionTimestamp = nil }
func isZeroTrust(p *pass, _ *target) { p.observation.ZeroTrust = true }
func hasNoNode(p *pass, _ *target)   { p.core = nil }

// releases are what is done to a host whose volume is free, by what has become of it, with the
// reads and writes that it takes.
var releases = map[string]struct {
	before        func(*fixture)
	is            func(*pass, *target)
	run           func(releaser, context.Context, *pass) error
	reads, writes int
	// stays: the pod stays.
	stays bool
	// says is what the event of the pod says, or that of the host.
	says string
}{
	"dead":             {func(*fixture) {}, together(), releaser.release, 4, 3, false, "deleted by force: host a is BothDead, and its volumes were taken from it with a receipt"},
	"evicted":          {func(*fixture) {}, evicted, releaser.evict, 4, 1, false, "deleted: its volume was taken from host a with a receipt, whose DPU dpu-a is silent"},
	"back":             {func(*fixture) {}, isBack, releaser.restore, 4, 2, false, "deleted: its volume was taken from this host while the host was dead, or looked so"},
	"back in service":  {(*fixture).outOfServiceBefore, together(isBack, nothingLost), releaser.restore, 4, 1, true, "it is back in service"},
	"its path is lost": {func(*fixture) {}, together(isBack, pathLost), releaser.move, 4, 1, false, "deleted: DPU dpu-a does not reach the storage of its volume, which was taken from host a with a receipt"},
}

// TestEachReadOfAReleaseFails: whichever read fails, the pass fails by it, and neither pod nor
// host is touched by what was not read.
func TestEachReadOfAReleaseFails(t *testing.T) {
	for name, tc := range releases {
		t.Run(name, func(t *testing.T) {
			for at := 1; ; at++ {
				s := newFixture(t)
				tc.before(s)
				p, target := s.releasing()
				tc.is(p, target)
				f, r, before := &fails{at: at}, s.f.releaser, s.Writes()
				r.host = kube.Cluster{Client: f.of(s.Host.Client), Live: f.of(s.Host.Live)}
				r.pods.host = r.host
				err := tc.run(r, t.Context(), p)
				if f.n < at {
					if err != nil || f.n != tc.reads || s.hasPod("app") != tc.stays {
						t.Errorf("%v after %d reads, want %d; the pod is there: %t", err, f.n, tc.reads, s.hasPod("app"))
					}
					if events := strings.Join(s.Events(), "\n"); !strings.Contains(events, tc.says) {
						t.Errorf("told:\n%s\nwant %q", events, tc.says)
					}
					return
				}
				if !errors.Is(err, errNoAnswer) || s.Writes() != before {
					t.Errorf("read %d: %v, and %d writes", at, err, s.Writes()-before)
				}
			}
		})
	}
}

// TestEachWriteOfAReleaseFails: each write that is lost is told, and done by the next pass. A
// host that is not out of service yet loses no pod: another would come in its place.
func TestEachWriteOfAReleaseFails(t *testing.T) {
	for name, tc := range releases {
		t.Run(name, func(t *testing.T) {
			for n := 1; ; n++ {
				s := newFixture(t)
				s.Host.Add(volumeAttachment("vol", "a"))
				tc.before(s)
				p, target := s.releasing()
				tc.is(p, target)
				before := s.Writes()
				s.LoseWrite(n, false)
				err := tc.run(s.f.releaser, t.Context(), p)
				if did := s.Writes() - before; did < n {
					if did != tc.writes || err != nil {
						t.Errorf("%v after %d writes, want %d", err, did, tc.writes)
					}
					return
				}
				if !errors.Is(err, kubetest.ErrLost) {
					t.Errorf("write %d: %v", n, err)
				}
				events := s.Reasons()
				if n == 1 && (!s.hasPod("app") || strings.Contains(events, moorv1alpha1.EventOutOfService) || strings.Contains(events, moorv1alpha1.EventBackInService)) {
					t.Errorf("the first write is lost: the pod is there: %t, events %s", s.hasPod("app"), events)
				}
				p, target = s.releasing()
				tc.is(p, target)
				if err := tc.run(s.f.releaser, t.Context(), p); err != nil || s.hasPod("app") != tc.stays {
					t.Errorf("the next pass after write %d: %v, the pod is there: %t", n, err, s.hasPod("app"))
				}
			}
		})
	}
}

// TestWhyAPodIsLetGo: the event says by whose word the pods of a living host go.
func TestWhyAPodIsLetGo(t *testing.T) {
	gives := func(p *pass, _ *target) { p.lease = writer.Lease{Given: true, Ended: true} }
	asked := func(p *pass, t *target) {
		wasRequested(p, t)
		p.node.Spec.Failover = &moorv1alpha1.FailoverRequest{RequestedBy: "jo"}
	}
	const promised, silent, wanted = "as it had promised to do when it is not heard", "whose DPU dpu-a is silent", "whose failover was requested by jo"
	for name, tc := range map[string]struct {
		is   func(*pass, *target)
		says string
	}{
		"its DPU gives a lease":          {together(evicted, gives), promised},
		"its DPU is silent for too long": {evicted, silent},
		"requested":                      {together(evicted, asked), wanted},
		"requested, with a lease":        {together(evicted, asked, gives), wanted},
	} {
		s := newFixture(t)
		p, target := s.releasing()
		tc.is(p, target)
		if err := s.f.releaser.evict(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if events := s.Events(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning "+storagev1alpha1.EventFailoverReleased+" deleted: ") || !strings.HasSuffix(events[0], tc.says) {
			t.Errorf("%s: told %q, want %q", name, events, tc.says)
		}
	}
}

// TestAPodThatGoesIsLeftAlone: a pod that takes its time to end is neither deleted with each
// pass nor told of, and what keeps others off its host is written once.
func TestAPodThatGoesIsLeftAlone(t *testing.T) {
	for _, name := range []string{"evicted", "back", "its path is lost"} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			kubetest.Change(s.Host, kubetest.Pod("app", ""), func(p *corev1.Pod) { p.Finalizers = []string{"test/kubelet"} })
			p, target := s.releasing()
			releases[name].is(p, target)
			for n, want := range []int{releases[name].writes, 0, 0} {
				before := s.Writes()
				if err := releases[name].run(s.f.releaser, t.Context(), p); err != nil {
					t.Fatal(err)
				}
				if did := s.Writes() - before; did != want {
					t.Errorf("pass %d: %d writes, want %d", n+1, did, want)
				}
			}
			if told := strings.Count(s.Reasons(), storagev1alpha1.EventFailoverReleased); told != 1 {
				t.Errorf("told %d times", told)
			}
		})
	}
}

// TestWhoIsLeftAlone: nothing is read, written or deleted for hosts of which nothing is free,
// or whose pods are no user's of a volume that a person attached.
func TestWhoIsLeftAlone(t *testing.T) {
	isHeldStill := func(_ *pass, t *target) { t.claim = kubetest.WriterClaim("vol", "dpu-a", "a-vol", 4) }
	for name, tc := range map[string]struct {
		is  func(*pass, *target)
		run func(releaser, context.Context, *pass) error
	}{
		"dead, and nothing is free":    {isHeldStill, releaser.release},
		"evicted, and nothing is free": {together(evicted, isHeldStill), releaser.evict},
		"dead, and ZeroTrust":          {isZeroTrust, releaser.release},
		"evicted, and ZeroTrust":       {together(evicted, isZeroTrust), releaser.evict},
		"dead, and there is no Node":   {hasNoNode, releaser.release},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			p, target := s.releasing()
			tc.is(p, target)
			f, r, before := &fails{}, s.f.releaser, s.Writes()
			r.host = kube.Cluster{Client: f.of(s.Host.Client), Live: f.of(s.Host.Live)}
			r.pods.host = r.host
			if err := tc.run(r, t.Context(), p); err != nil || f.n != 0 || s.Writes() != before || !s.hasPod("app") {
				t.Errorf("%v, %d reads, %d writes; the pod is there: %t", err, f.n, s.Writes()-before, s.hasPod("app"))
			}
		})
	}
}
