package failover

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestDivide: of which volumes the pods may go. One that is attached to the host twice is free
// only if both are.
func TestDivide(t *testing.T) {
	many := func(_ *pass, t *target) { t.single, t.claim, t.mirror = false, nil, nil }
	for name, tc := range map[string]struct {
		is   func(*pass, *target)
		free bool
	}{
		"free":                                {together(), true},
		"held":                                {func(_ *pass, t *target) { t.claim = kubetest.WriterClaim("vol", "dpu-a", "a-vol", 4) }, false},
		"it does not fail over":               {doesNotFail, false},
		"many writers, silent":                {many, false},
		"many writers, seen dead":             {together(many, dpuHeard), true},
		"many writers, the DPU's last word":   {together(many, func(p *pass, _ *target) { p.observation.Attested = true }), true},
		"attached twice, and one is held":     {func(p *pass, t *target) { p.targets = append(p.targets, twin(t, 4)) }, false},
		"attached twice, and neither is held": {func(p *pass, t *target) { p.targets = append(p.targets, twin(t, 0)) }, true},
	} {
		s := newFixture(t)
		p, target := s.releasing()
		tc.is(p, target)
		free, kept := p.divide()
		want, others := map[string]bool{"vol": true}, map[string]bool{}
		if !tc.free {
			want, others = others, want
		}
		if !maps.Equal(free, want) || !maps.Equal(kept, others) {
			t.Errorf("%s: free %v, kept %v", name, free, kept)
		}
	}
}

// twin is another attachment of the volume of a target, by hand; one that is held has an epoch.
func twin(t *target, epoch int64) *target {
	out := *t
	out.attachment = kubetest.DPUVolumeAttachment("by-hand", "a")
	if epoch > 0 {
		out.claim = kubetest.WriterClaim("vol", "dpu-a", "a-by-hand", epoch)
	}
	return &out
}

// TestPart: pods go that use nothing but what is free. Where one stays with a free volume, it
// is told, and none of its volumes is detached under it.
func TestPart(t *testing.T) {
	uses := func(name string, volumes ...string) *pod {
		return &pod{Pod: *kubetest.Pod(name, "a"), volumes: volumes}
	}
	goes := uses("goes", "vol")
	p := &pass{}
	going, staying := p.part(
		[]*pod{goes, uses("both", "vol", "second", "off"), uses("kept", "off"), uses("neither", "other")},
		map[string]bool{"vol": true, "second": true}, map[string]bool{"off": true})
	if !slices.Equal(going, []*pod{goes}) || !maps.Equal(staying, map[string]bool{"vol": true, "second": true, "off": true}) {
		t.Errorf("%d go, volumes %v stay", len(going), staying)
	}
	if len(p.waits) != 1 || p.waits[0] != "pod default/both also uses a volume that is not free" {
		t.Errorf("told %q", p.waits)
	}
}

// TestYields: a host waits only for a while after its own failover began, while it is in
// service and others get on.
func TestYields(t *testing.T) {
	began := func(ago time.Duration) func(*pass) {
		return func(p *pass) {
			p.node.Status.Conditions = []metav1.Condition{{Type: moorv1alpha1.ConditionFailover, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(kubetest.Begin.Add(-ago))}}
		}
	}
	for name, tc := range map[string]struct {
		is   func(*pass)
		want bool
	}{
		"it has just begun":    {began(0), true},
		"almost too long ago":  {began(busyGrace - time.Second), true},
		"too long ago":         {began(busyGrace), false},
		"nothing is on record": {func(*pass) {}, false},
		"it is out of service": {func(p *pass) { began(0)(p); p.core.Spec.Taints = outOfService() }, false},
	} {
		s := newFixture(t)
		p, _ := fencePass()
		p.core = kubetest.Node("a", nil)
		tc.is(p)
		r := releaser{clock: s.Clock, progress: &progress{}}
		s.Clock.SetTime(kubetest.Begin)
		if r.yields(p) {
			t.Errorf("%s: it waits for itself", name)
		}
		r.progress.note("c", s.Clock.Now())
		if got := r.yields(p); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// TestPodsAsTheAPIServerHasThem: pods are found in the cache, and those that may go are as the
// API server has them: what a cache remembers of a name may be another pod by now.
func TestPodsAsTheAPIServerHasThem(t *testing.T) {
	gone := func(s *fixture) {
		var list corev1.PodList
		if err := s.Host.Direct.List(s.t.Context(), &list); err != nil {
			s.t.Fatal(err)
		}
		s.CacheLists(&list)
		s.Host.Remove(kubetest.Pod("app", "a"))
	}
	for name, tc := range map[string]struct {
		play  func(*fixture)
		kept  map[string]bool
		want  string
		reads int
	}{
		"as the cache has them":          {func(*fixture) {}, nil, "app", 1},
		"gone":                           {gone, nil, "", 1},
		"another of its name":            {func(s *fixture) { gone(s); s.Host.Add(kubetest.Pod("app", "a", "vol")) }, nil, "", 1},
		"one with a volume that is kept": {func(*fixture) {}, map[string]bool{"vol": true}, "app", 0},
		"it goes, as the API server says": {func(s *fixture) {
			gone := kubetest.Pod("app", "a")
			kubetest.Change(s.Host, gone, func(p *corev1.Pod) { p.Finalizers = []string{"test/kubelet"} })
			var list corev1.PodList
			if err := s.Host.Direct.List(s.t.Context(), &list); err != nil {
				s.t.Fatal(err)
			}
			s.CacheLists(&list)
			s.Host.Remove(gone)
		}, nil, "app going", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.addPod("of no volume of ours", "a")
			tc.play(s)
			before := s.LiveReads()
			pods, err := s.f.releaser.pods.on(t.Context(), "a", tc.kept)
			got := ""
			for _, p := range pods {
				got += p.Name
				if p.DeletionTimestamp != nil {
					got += " going"
				}
				if !slices.Equal(p.volumes, []string{"vol"}) {
					t.Errorf("it uses %q", p.volumes)
				}
			}
			if n := s.LiveReads() - before; err != nil || got != tc.want || n != tc.reads {
				t.Errorf("%q, %v after %d reads, want %q after %d", got, err, n, tc.want, tc.reads)
			}
		})
	}
}

// TestDeletedByForce: also a pod that is on its way out in order, since no kubelet is there to
// end it; once, and only the pod that was read. Of its volumes alone it is told.
func TestDeletedByForce(t *testing.T) {
	now := metav1.NewTime(kubetest.Begin)
	for name, tc := range map[string]struct {
		is    func(*pod)
		asked bool
	}{
		"it runs":                          {func(*pod) {}, true},
		"it ends in order":                 {func(p *pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, ptr.To(int64(30)) }, true},
		"it ends, in no time that is told": {func(p *pod) { p.DeletionTimestamp = &now }, true},
		"it is deleted by force already":   {func(p *pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, ptr.To(int64(0)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			p, target := s.releasing()
			other := *target
			other.volume = kubetest.DPUVolume("second")
			p.targets = append(p.targets, &other)
			there, _ := kubetest.Read(s.Host, kubetest.Pod("app", "a"))
			pod := &pod{Pod: *there, volumes: []string{"vol"}}
			tc.is(pod)
			var asked *client.DeleteOptions
			r := s.f.releaser
			r.host.Client = interceptor.NewClient(s.Host.Client.(client.WithWatch), interceptor.Funcs{
				Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
					asked = (&client.DeleteOptions{}).ApplyOptions(opts)
					return nil
				},
			})
			err := r.forceDelete(t.Context(), p, pod)
			if events := s.Events(); err != nil || (asked != nil) != tc.asked || tc.asked && len(events) != 2 || !tc.asked && len(events) > 0 {
				t.Errorf("%v, it is asked for: %t, told %q", err, asked != nil, events)
			}
			if asked != nil && (asked.GracePeriodSeconds == nil || *asked.GracePeriodSeconds != 0 || asked.Preconditions == nil || *asked.Preconditions.UID != there.UID) {
				t.Errorf("asked for with %+v", asked)
			}
		})
	}
}

// TestAPodThatIsGoneIsNoFailure: nor is one that has changed hands; all else is.
func TestAPodThatIsGoneIsNoFailure(t *testing.T) {
	s := newFixture(t)
	there, _ := kubetest.Read(s.Host, kubetest.Pod("app", "a"))
	s.Host.Remove(kubetest.Pod("app", "a"))
	if err := s.f.releaser.delete(t.Context(), &pod{Pod: *there}); err != nil {
		t.Error(err)
	}
	s.LoseWrite(1, false)
	if err := s.f.releaser.delete(t.Context(), &pod{Pod: *there}); !errors.Is(err, kubetest.ErrLost) || !strings.Contains(err.Error(), "delete pod default/app") {
		t.Errorf("got %v", err)
	}
}

// TestOutOfServiceOnce: a host is put out of service by one taint beside those that others put,
// and a person's own taint of that kind is enough.
func TestOutOfServiceOnce(t *testing.T) {
	others := corev1.Taint{Key: "example.com/maintenance", Effect: corev1.TaintEffectNoSchedule}
	persons := corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "jo", Effect: corev1.TaintEffectNoExecute}
	for name, tc := range map[string]struct {
		has, want []corev1.Taint
	}{
		"none":     {nil, outOfService()},
		"others":   {[]corev1.Taint{others}, append([]corev1.Taint{others}, outOfService()...)},
		"persons'": {[]corev1.Taint{others, persons}, []corev1.Taint{others, persons}},
	} {
		s := newFixture(t)
		s.core("a", func(n *corev1.Node) { n.Spec.Taints = tc.has })
		p, _ := s.releasing()
		for range 2 {
			if err := s.f.releaser.taint(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		}
		told := strings.Count(s.Reasons(), moorv1alpha1.EventOutOfService)
		if got := s.taints("a"); !slices.Equal(got, tc.want) || told != len(tc.want)-len(tc.has) {
			t.Errorf("%s: taints %+v, told %d times", name, got, told)
		}
	}
}

// TestWhatAReturningHostKeeps: only pods whose volume was taken go, all in one pass, and it is
// told that the host is back only if it was out of service.
func TestWhatAReturningHostKeeps(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(*fixture)
		is     func(*pass, *target)
		app    bool // it stays, and so does another pod with its volume
		waits  bool
		told   bool
	}{
		"its volume was taken":                    {func(*fixture) {}, together(), false, true, false},
		"and it has no Node":                      {func(*fixture) {}, hasNoNode, false, true, false},
		"nothing was taken":                       {func(*fixture) {}, nothingLost, true, false, false},
		"nothing was taken, and it has no Node":   {func(*fixture) {}, together(nothingLost, hasNoNode), true, false, false},
		"nothing was taken, it is out of service": {(*fixture).outOfServiceBefore, nothingLost, true, false, true},
		"nothing was made for it":                 {func(*fixture) {}, func(_ *pass, t *target) { t.mirror = nil }, true, false, false},
		"many writers":                            {func(*fixture) {}, func(_ *pass, t *target) { t.single, t.claim, t.mirror = false, nil, nil }, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.addVolume("second", "a")
			s.addPod("other", "a", "second")
			s.addPod("beside", "a", "vol")
			tc.before(s)
			p, target := s.releasing()
			together(isBack, tc.is)(p, target)
			if err := s.f.releaser.restore(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if s.hasPod("app") != tc.app || s.hasPod("beside") != tc.app || !s.hasPod("other") || p.underway != tc.waits || (len(p.waits) > 0) != tc.waits {
				t.Errorf("pods app %t, beside %t, other %t; it waits for %q, under way %t", s.hasPod("app"), s.hasPod("beside"), s.hasPod("other"), p.waits, p.underway)
			}
			if told := strings.Contains(s.Reasons(), moorv1alpha1.EventBackInService); told != tc.told {
				t.Errorf("told that it is back: %t", told)
			}
		})
	}
}

// TestDetachIsAskedForAgain once askAgain is over, and not before; of an attachment that is
// another by then at once.
func TestDetachIsAskedForAgain(t *testing.T) {
	s := newFixture(t)
	va := volumeAttachment("vol", "a")
	va.Finalizers = []string{"external-attacher/hangs"}
	s.Host.Add(va)
	p, target := s.releasing()
	for _, step := range []struct {
		after time.Duration
		uid   types.UID
		asks  int
	}{{0, "first", 1}, {0, "first", 0}, {askAgain - time.Nanosecond, "first", 0}, {time.Nanosecond, "first", 1}, {0, "second", 1}} {
		s.Step(step.after)
		target.attachment.UID = step.uid
		before := s.WritesOn(&storagev1.VolumeAttachment{})
		if err := s.f.releaser.detach(t.Context(), p, map[string]bool{"vol": true}, nil); err != nil {
			t.Fatal(err)
		}
		if n := s.WritesOn(&storagev1.VolumeAttachment{}) - before; n != step.asks {
			t.Errorf("%+v: asked for %d times", step, n)
		}
	}
}
