package failover

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/failover/lostpath"
)

// toJudge is a pass over host a, as far as the paths are judged.
func (s *fixture) toJudge() *pass {
	s.t.Helper()
	p, err := s.f.observer.observe(s.t.Context(), "a")
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.f.targets.look(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// reading is what judges paths, with a read that fails, if its number is not 0.
func (s *fixture) reading(at int) (paths, *fails) {
	f, out := &fails{at: at}, s.f.paths
	out.reader.Host, out.reader.DPU = kube.Cluster{Client: f.of(s.Host.Client)}, kube.Cluster{Client: f.of(s.DPU.Client)}
	out.pods.host = kube.Cluster{Client: f.of(s.Host.Client), Live: f.of(s.Host.Live)}
	return out, f
}

// TestWhichPathsAreJudged: those of a host that is well and stays in service, of volumes with a
// single writer that its DPU says it has lost. For no other host is anything read.
func TestWhichPathsAreJudged(t *testing.T) {
	noPath := func(s *fixture) {
		s.host("a", func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.LostPaths = nil })
	}
	another := func(s *fixture) {
		s.host("a", func(n *moorv1alpha1.DPUStorageNode) {
			n.Status.DPU.LostPaths = []moorv1alpha1.LostPath{{Volume: "another"}}
		})
	}
	for name, tc := range map[string]struct {
		play   func(*fixture)
		is     func(*pass, *target)
		judged bool
		reads  bool
	}{
		"lost":                            {func(*fixture) {}, together(), true, true},
		"the host is not well":            {func(*fixture) {}, func(p *pass, _ *target) { p.state = HostHung }, false, false},
		"it comes back from a failover":   {func(*fixture) {}, func(p *pass, _ *target) { p.underway = true }, false, false},
		"its volumes are taken":           {func(*fixture) {}, func(p *pass, _ *target) { p.action = Fence }, false, false},
		"ZeroTrust":                       {func(*fixture) {}, isZeroTrust, false, false},
		"nothing is lost":                 {func(*fixture) {}, func(p *pass, _ *target) { p.node.Status.DPU.LostPaths = nil }, false, false},
		"it is back, not yet in the copy": {noPath, together(), false, false},
		"another's is lost":               {another, together(), false, true},
		"many writers":                    {func(*fixture) {}, func(_ *pass, t *target) { t.single = false }, false, true},
		"its DPU has nothing of it":       {func(*fixture) {}, func(_ *pass, t *target) { t.mirror = nil }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPaths(t)
			s.loses("a", "vol")
			s.beats(20)
			tc.play(s)
			p := s.toJudge()
			if len(p.targets) == 0 { // as of a host that is well
				if err := s.f.targets.list(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			}
			target := p.targets[0]
			tc.is(p, target)
			l, reads := s.reading(0)
			if err := l.judge(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if (target.path != nil) != tc.judged || (reads.n > 0) != tc.reads || p.behind {
				t.Errorf("%+v after %d reads, behind: %t", target.path, reads.n, p.behind)
			}
		})
	}
}

// TestEachReadOfAPathFails: whichever read fails, the pass fails by it.
func TestEachReadOfAPathFails(t *testing.T) {
	for at := 1; ; at++ {
		s := newPaths(t)
		s.loses("a", "vol")
		s.beats(20)
		p := s.toJudge()
		l, reads := s.reading(at)
		err := l.judge(t.Context(), p)
		if reads.n < at {
			// The pods of the host, and what one uses; the other attachments, and what the
			// DPU of one sees; and the pod, as the API server has it.
			if path := p.targets[0].path; err != nil || path == nil || !path.Move || reads.n != 7 {
				t.Errorf("%v after %d reads: %+v", err, reads.n, path)
			}
			return
		}
		if !errors.Is(err, errNoAnswer) {
			t.Errorf("read %d: %v", at, err)
		}
	}
}

// TestWhenAPathIsLookedAtAgain: when it moves, or soon, for pods that are deleted are not
// watched; of one that moves the fence looks.
func TestWhenAPathIsLookedAtAgain(t *testing.T) {
	borne := func(borne int64) func(*fixture) {
		return func(s *fixture) {
			s.host("a", func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.LostPaths[0].BorneMillis = borne })
		}
	}
	for name, tc := range map[string]struct {
		play func(*fixture)
		want time.Duration
	}{
		"it moves soon":  {borne(2000), 3 * time.Second},
		"it moves later": {borne(0), 5 * time.Second},
		"it moves now":   {borne(5000), 0},
		"it stays":       {func(s *fixture) { s.loses("b", "vol") }, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPaths(t)
			s.loses("a", "vol")
			s.beats(10)
			tc.play(s)
			p := s.toJudge()
			p.soon = 0
			if err := s.f.paths.judge(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if p.soon != tc.want {
				t.Errorf("looked at again after %s, want %s: %+v", p.soon, tc.want, p.targets[0].path)
			}
		})
	}
}

// TestAVolumeThatNoPodUses is no volume whose pods are being deleted: nothing has to end.
func TestAVolumeThatNoPodUses(t *testing.T) {
	s := newPaths(t)
	s.loses("a", "vol")
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Status.DPU.OpenEpoch = nil })
	s.Host.Remove(kubetest.Pod("app", ""))
	s.beats(20)
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/PathLost", "neither knows epochs nor vouches")
}

// TestSpare: a volume stays if a pod that uses it stays and would not come back, as the API
// server has that pod; and only while nothing was taken yet.
func TestSpare(t *testing.T) {
	change := func(change func(*corev1.Pod)) func(*fixture) {
		return func(s *fixture) { kubetest.Change(s.Host, kubetest.Pod("app", ""), change) }
	}
	for name, tc := range map[string]struct {
		play   func(*fixture)
		is     func(*pass, *target)
		spared bool
	}{
		"it would not come back": {func(*fixture) {}, pathLost, true},
		"it comes back":          {func(s *fixture) { s.owned("app") }, pathLost, false},
		"it is gone":             {func(s *fixture) { s.Host.Remove(kubetest.Pod("app", "")) }, pathLost, false},
		"another has its name":   {func(s *fixture) { s.Host.Remove(kubetest.Pod("app", "")); s.Host.Add(kubetest.Pod("app", "a", "vol")) }, pathLost, false},
		"it is being deleted": {func(s *fixture) {
			change(func(p *corev1.Pod) { p.Finalizers = []string{"x"} })(s)
			s.Host.Remove(kubetest.Pod("app", ""))
		}, pathLost, false},
		"the volume stays anyway": {func(*fixture) {}, func(_ *pass, t *target) { t.path = &lostpath.Verdict{} }, false},
		"it is being taken":       {func(*fixture) {}, together(pathLost, inTheFence), false},
		"it was taken": {func(*fixture) {}, together(pathLost, func(_ *pass, t *target) {
			t.claim.Status = &moorv1alpha1.WriterClaimStatus{Phase: freed, Epoch: 4}
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			user, _ := kubetest.Read(s.Host, kubetest.Pod("app", ""))
			tc.play(s)
			p, target := fencePass()
			tc.is(p, target)
			was := *target.path
			if err := s.f.paths.spare(t.Context(), target, []*corev1.Pod{user}); err != nil {
				t.Fatal(err)
			}
			switch spared := !target.path.Move && strings.HasPrefix(target.path.Words, "pod default/app has no controller"); {
			case spared != tc.spared, !spared && *target.path != was:
				t.Errorf("%+v", target.path)
			}
		})
	}
	s := newFixture(t)
	p, target := fencePass()
	pathLost(p, target)
	if err := s.f.paths.spare(t.Context(), target, nil); err != nil || !target.path.Move {
		t.Errorf("%v, no pod uses it: %+v", err, target.path)
	}
}

// TestLeft: pods are let go of volumes that the host has lost for the sake of their path, once
// it can write to none of them through any attachment.
func TestLeft(t *testing.T) {
	isFree := func(_ *pass, t *target) {
		now := metav1.NewTime(kubetest.Begin)
		t.claim.Status, t.mirror.DeletionTimestamp = &moorv1alpha1.WriterClaimStatus{Phase: freed, Epoch: 4}, &now
	}
	for name, tc := range map[string]struct {
		is   func(*pass, *target)
		left bool
	}{
		"taken for its path":              {together(pathLost, isFree), true},
		"its path has come back":          {isFree, false},
		"not taken yet":                   {together(pathLost, inTheFence), false},
		"free, and it may be granted":     {together(pathLost, isFree, nothingLost), false},
		"its DPU has it for another name": {together(pathLost, isFree, func(_ *pass, t *target) { t.claim = kubetest.WriterClaim("vol", "dpu-a", "by-hand", 5) }), false},
		"another DPU has it by now":       {together(pathLost, isFree, func(_ *pass, t *target) { t.claim = kubetest.WriterClaim("vol", "dpu-b", "b-vol", 5) }), true},
	} {
		p, target := fencePass()
		tc.is(p, target)
		if left := p.left(); left["vol"] != tc.left || p.moving() != tc.left || len(left) > 1 {
			t.Errorf("%s: %v, moving: %t", name, left, p.moving())
		}
	}
}

// TestOnlyPodsOfWhatWasTakenMove: others of a healthy host stay.
func TestOnlyPodsOfWhatWasTakenMove(t *testing.T) {
	s := newFixture(t)
	s.addVolume("second", "a")
	s.addPod("other", "a", "second")
	p, target := s.releasing()
	together(isBack, pathLost)(p, target)
	if err := s.f.releaser.move(t.Context(), p); err != nil || s.hasPod("app") || !s.hasPod("other") {
		t.Errorf("%v; pods app %t, other %t", err, s.hasPod("app"), s.hasPod("other"))
	}
	if got := s.taints("a"); len(got) > 0 {
		t.Errorf("taints %+v", got)
	}
}
