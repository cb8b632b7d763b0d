package dpudrain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

const safe = "True/Drained: it is safe to reboot DPU dpu-n1: "

// TestDrain: the pod is evicted, its volume leaves, and then the DPU can be rebooted; the
// replica stays. Each instance goes on from the objects alone.
func TestDrain(t *testing.T) {
	for name, next := range map[string]func(*fixture){"one instance": func(*fixture) {}, "another instance each time": (*fixture).restart} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.pod("p", "StatefulSet")
			f.attach("vol-p", "n1", storagev1alpha1.RolePrimary)
			f.attach("other", "n1", storagev1alpha1.RoleReplica)
			f.attach("elsewhere", "n2", storagev1alpha1.RolePrimary)
			f.DPU.Add(kubetest.WriterClaim("vol-p", "dpu-n1", "a", 3), kubetest.WriterClaim("elsewhere", "dpu-n2", "b", 1))
			f.told("False/Evicting: pod default/p is ending; volume vol-p is attached; DPU dpu-n1 holds the writer claim of volume vol-p (Granted, epoch 3)")
			next(f)
			f.told("False/Evicting")
			f.ends("p")
			next(f)
			f.told("False/Detaching: volume vol-p is attached; DPU dpu-n1 holds")
			f.Host.Remove(kubetest.DPUVolumeAttachment("vol-p", "n1"))
			next(f)
			f.told("False/Detaching: DPU dpu-n1 holds the writer claim of volume vol-p (Granted, epoch 3)")
			kubetest.Change(f.DPU, kubetest.WriterClaim("vol-p", "", "", 0), func(c *moorv1alpha1.WriterClaim) { c.Status.Phase = moorv1alpha1.ClaimFree })
			next(f)
			f.told(safe + "no volume is attached through it, and it holds no writer claim; 1 replica there will be made anew")
			next(f)
			f.told(safe)
			if got := f.Reasons(); got != "DrainBegun DrainEvicted Drained" {
				t.Errorf("told %q", got)
			}
			if len(f.asked) != 1 || !f.Host.Has(&storagev1alpha1.DPUVolumeAttachment{}, kubetest.DPUVolumeAttachment("other", "n1").Name) {
				t.Errorf("asked for %v; the replica has to stay", f.asked)
			}
		})
	}
}

// TestTakenBack: the condition goes with the wish, nothing is evicted by one that was taken
// back, and a new wish begins anew.
func TestTakenBack(t *testing.T) {
	f := newFixture(t)
	f.told(safe)
	old, _ := kubetest.Read(f.Host, kubetest.DPUStorageNode("n1"))
	f.CacheShows(old)
	f.wish(nil)
	f.pod("p", "StatefulSet")
	if got := f.pass(); got != "" || len(f.asked) > 0 {
		t.Errorf("says %q, asked for %v", got, f.asked)
	}
	writes := f.Writes()
	f.pass()
	if f.Writes() != writes {
		t.Error("a host without a drain is written")
	}
	f.wish(&moorv1alpha1.DrainRequest{Reason: "again"})
	f.told("False/Evicting")
	if got := f.Reasons(); got != "DrainBegun Drained DrainEnded DrainBegun DrainEvicted" {
		t.Errorf("told %q", got)
	}
}

// TestBudget: a refusal is told in the words of the budget and asked for again after a pause,
// which a restart alone shortens; others go meanwhile.
func TestBudget(t *testing.T) {
	f := newFixture(t)
	f.pod("a", "ReplicaSet")
	f.pod("b", "ReplicaSet")
	f.answer = func(pod string) error {
		if pod == "a" {
			return budget(pod)
		}
		return nil
	}
	const words = "pod default/a is not evicted yet: The disruption budget b needs 1 healthy pods and has 1 currently"
	f.told("False/Budget: "+words, "pod default/b is ending")
	f.told(words)
	f.Step(firstPause)
	f.told(words)
	f.Step(2 * time.Minute)
	f.told(words)
	f.Step(firstPause)
	f.told(words)
	if diff := cmp.Diff([]string{"a", "b", "a", "a"}, f.asked); diff != "" {
		t.Error(diff)
	}
	f.restart()
	f.answer = nil
	f.told("False/Evicting: pod default/a is ending")
	f.ends("a", "b")
	f.told(safe)
}

// TestRefusals: whatever else the API server answers, nothing is forced, and it is said.
func TestRefusals(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"not allowed":      {apierrors.NewForbidden(pods, "p", errors.New("no right")), `False/Evicting: pod default/p is not evicted yet: pods "p" is forbidden: no right`},
		"several budgets":  {apierrors.NewInternalError(errors.New("more than one budget")), "more than one budget"},
		"busy":             {apierrors.NewTooManyRequests("busy", 1), "False/Evicting: pod default/p is not evicted yet: busy"},
		"no answer":        {errors.New("no answer"), "is not evicted yet: no answer"},
		"gone":             {apierrors.NewNotFound(pods, "p"), "False/Evicting: pod default/p is ending"},
		"another by now":   {apierrors.NewConflict(pods, "p", errors.New("UID")), "False/Evicting: pod default/p is ending"},
		"something else's": {&apierrors.StatusError{ErrStatus: metav1.Status{Message: "bare"}}, "is not evicted yet: bare"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.pod("p", "StatefulSet")
			f.answer = func(string) error { return c.err }
			f.told(c.says)
			if got := f.Reasons(); got != "DrainBegun" || len(f.asked) != 1 {
				t.Errorf("told %q, asked for %v", got, f.asked)
			}
		})
	}
}

// TestWhichPods: only pods with volumes, which a controller makes anew elsewhere, are evicted.
func TestWhichPods(t *testing.T) {
	for name, c := range map[string]struct {
		owner  string
		change func(*corev1.Pod)
		says   string
		asked  bool
	}{
		"of a StatefulSet":     {"StatefulSet", nil, "False/Evicting: pod default/p is ending", true},
		"of a Job":             {"Job", nil, "False/Evicting: pod default/p is ending", true},
		"without a controller": {"", nil, "False/NotEvicted: pod default/p is not evicted: " + bare, false},
		"of a DaemonSet":       {"DaemonSet", nil, "False/NotEvicted: pod default/p is not evicted: " + daemonSet, false},
		"finished":             {"Job", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, safe, false},
		"without a volume":     {"StatefulSet", func(p *corev1.Pod) { p.Spec.Volumes = nil }, safe, false},
		"of another host":      {"StatefulSet", func(p *corev1.Pod) { p.Spec.NodeName = "n2" }, safe, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			var change []func(*corev1.Pod)
			if c.change != nil {
				change = append(change, c.change)
			}
			f.pod("p", c.owner, change...)
			f.told(c.says)
			if (len(f.asked) > 0) != c.asked {
				t.Errorf("asked for %v", f.asked)
			}
		})
	}
}

// TestAtOnce: so many end at once, those that others deleted among them.
func TestAtOnce(t *testing.T) {
	f := newFixture(t)
	for i := range 8 {
		f.pod(fmt.Sprintf("p%d", i), "StatefulSet")
	}
	f.Host.Remove(kubetest.Pod("p7", "n1"))
	f.told("pod default/p7 is ending", "pod default/p4 waits for others that are ending")
	f.pass()
	if len(f.asked) != atOnce-1 {
		t.Errorf("asked for %v", f.asked)
	}
	f.ends("p7", "p0")
	f.pass()
	if len(f.asked) != atOnce+1 {
		t.Errorf("asked for %v", f.asked)
	}
}

// TestNotDrained: what holds a right to write through the DPU, by whatever word, keeps the
// condition False, also where a cache does not show it.
func TestNotDrained(t *testing.T) {
	lost := func(c *moorv1alpha1.WriterClaim) {
		c.Status.Phase, c.Status.Holder, c.Status.Lost = moorv1alpha1.ClaimLost, "dpu-n2", []moorv1alpha1.LostHolder{{DPU: "dpu-n2"}, {DPU: "dpu-n1"}}
	}
	for name, c := range map[string]struct {
		add  func(*fixture)
		says string
	}{
		"an attachment":     {func(f *fixture) { f.attach("vol", "n1", storagev1alpha1.RolePrimary) }, "False/Detaching: volume vol is attached"},
		"an old attachment": {func(f *fixture) { f.attach("vol", "n1", "") }, "False/Detaching: volume vol is attached"},
		"an attachment that no cache shows": {func(f *fixture) {
			f.attach("vol", "n1", storagev1alpha1.RolePrimary)
			f.CacheLists(&storagev1alpha1.DPUVolumeAttachmentList{})
		}, "False/Detaching: volume vol is attached"},
		"a claim": {func(f *fixture) { f.DPU.Add(kubetest.WriterClaim("vol", "dpu-n1", "a", 1)) }, "False/Detaching: DPU dpu-n1 holds the writer claim of volume vol (Granted, epoch 1)"},
		"a claim that no cache shows": {func(f *fixture) {
			f.DPU.Add(kubetest.WriterClaim("vol", "dpu-n1", "a", 1))
			f.CacheLists(&moorv1alpha1.WriterClaimList{})
		}, "False/Detaching: DPU dpu-n1 holds"},
		"a claim in a fence": {func(f *fixture) {
			f.claim(func(c *moorv1alpha1.WriterClaim) { c.Status.Phase = moorv1alpha1.ClaimFencing })
		}, "(Fencing, epoch 1)"},
		"a claim that was lost": {func(f *fixture) { f.claim(lost) }, "False/Detaching: DPU dpu-n1 holds the writer claim of volume vol (Lost, epoch 1)"},
		"a claim without its record": {func(f *fixture) {
			f.claim(func(c *moorv1alpha1.WriterClaim) { c.Status, c.Spec.AfterEpoch = nil, 4 })
		}, "False/Detaching: the writer claim of volume vol was made anew"},
		"another DPU's claim":         {func(f *fixture) { f.DPU.Add(kubetest.WriterClaim("vol", "dpu-n2", "a", 1)) }, safe},
		"a device":                    {func(f *fixture) { f.shown("dpu-n1", storagev1alpha1.RolePrimary) }, "False/Detaching: DPU dpu-n1 shows volume vol to the host"},
		"a device that was withdrawn": {func(f *fixture) { f.DPU.Add(kubetest.VolumeAttachment("a", "vol", "dpu-n1")) }, safe},
		"a replica's device":          {func(f *fixture) { f.shown("dpu-n1", storagev1alpha1.RoleReplica) }, safe},
		"another DPU's device":        {func(f *fixture) { f.shown("dpu-n2", storagev1alpha1.RolePrimary) }, safe},
		"a host without a DPU": {func(f *fixture) {
			kubetest.Change(f.Host, kubetest.DPUStorageNode("n1"), func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = "" })
		}, "False/Unclear: spec.dpuName is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			c.add(f)
			f.told(c.says)
		})
	}
}

func (f *fixture) claim(change func(*moorv1alpha1.WriterClaim)) {
	c := kubetest.WriterClaim("vol", "dpu-n1", "a", 1)
	change(c)
	f.DPU.Add(c)
}

func (f *fixture) shown(dpu string, role storagev1alpha1.Role) {
	a := kubetest.VolumeAttachment("a", "vol", dpu)
	a.Spec.Role, a.Status.DPU.Attached = role, true
	f.DPU.Add(a)
}

// TestNoAnswer: while an API server does not answer, the DPU is not drained, also if it was.
func TestNoAnswer(t *testing.T) {
	for _, kind := range []client.ObjectList{&corev1.PodList{}, &storagev1alpha1.DPUVolumeAttachmentList{}, &moorv1alpha1.WriterClaimList{}, &storagev1alpha1.VolumeAttachmentList{}} {
		t.Run(fmt.Sprintf("%T", kind), func(t *testing.T) {
			f := newFixture(t)
			f.told(safe)
			none := interceptor.Funcs{List: func(ctx context.Context, from client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
				if fmt.Sprintf("%T", l) == fmt.Sprintf("%T", kind) {
					return errors.New("no answer")
				}
				return from.List(ctx, l, o...)
			}}
			f.r.Host.Live = interceptor.NewClient(f.r.Host.Live.(client.WithWatch), none)
			f.r.DPU.Live = interceptor.NewClient(f.r.DPU.Live.(client.WithWatch), none)
			if err := f.try(); err == nil {
				t.Error("the error is not returned")
			}
			if got := f.says(); !strings.HasPrefix(got, "False/Unclear: ") || !strings.Contains(got, "no answer") {
				t.Errorf("says %q", got)
			}
		})
	}
}

// TestLostWrites: whichever write is lost, the next pass goes on, and nothing is done before
// it stands that the drain has begun.
func TestLostWrites(t *testing.T) {
	for _, late := range []bool{false, true} {
		f := newFixture(t)
		f.pod("p", "StatefulSet")
		f.LoseWrite(1, late)
		if err := f.try(); err == nil || len(f.asked) > 0 {
			t.Fatalf("late %t: %v, asked for %v", late, err, f.asked)
		}
		f.LoseWrite(1, late)
		_ = f.try()
		f.told("False/Evicting: pod default/p is ending")
		f.ends("p")
		f.told(safe)
	}
}

// TestErrors: what fails is returned, so that it is tried again and told.
func TestErrors(t *testing.T) {
	f := newFixture(t)
	f.LoseWrite(2, false)
	if err := f.try(); err == nil || f.Reasons() != "DrainBegun" {
		t.Errorf("a condition that was not written is told: %v", err)
	}
	f.told(safe)
	f.Events()
	f.wish(nil)
	f.LoseWrite(1, false)
	if err := f.try(); err == nil || f.Reasons() != "" {
		t.Errorf("an end that was not written is told: %v", err)
	}
	f.r.Host.Live = interceptor.NewClient(f.r.Host.Live.(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("no answer")
		},
	})
	if err := f.try(); err == nil {
		t.Error("a host that could not be read is well")
	}
}

// TestAgain: a host is looked at again when a pod may be asked for that was refused, else now
// and then, and not at all once it is drained: what comes wakes it.
func TestAgain(t *testing.T) {
	f := newFixture(t)
	f.pod("p", "StatefulSet")
	f.answer = budget
	for _, step := range []struct {
		name string
		do   func()
		want time.Duration
	}{
		{"refused", func() {}, firstPause},
		{"half of the pause is over", func() { f.Step(firstPause / 2) }, firstPause / 2},
		{"it is evicted", func() { f.Step(firstPause); f.answer = nil }, lookAgain},
		{"it has ended", func() { f.ends("p") }, 0},
	} {
		step.do()
		got, err := f.r.Reconcile(t.Context(), kube.RequestFor("", "n1"))
		if err != nil || got.RequeueAfter != step.want {
			t.Errorf("%s: again after %s, want %s: %v", step.name, got.RequeueAfter, step.want, err)
		}
	}
}

// TestFewReads: while caches show that something is left, the API servers are not asked for
// all claims.
func TestFewReads(t *testing.T) {
	f := newFixture(t)
	f.attach("vol", "n1", storagev1alpha1.RolePrimary)
	f.told("False/Detaching")
	if got := f.LiveReads(); got != 2 {
		t.Errorf("%d reads of the API servers, not those of the host and its pods", got)
	}
}

// TestVolumeNotFoundOut: a pod of which it cannot be found out whether it uses a volume is
// no pod that uses none.
func TestVolumeNotFoundOut(t *testing.T) {
	f := newFixture(t)
	f.pod("p", "StatefulSet")
	f.CacheHides(kubetest.PVC("p", "pv-p"))
	f.r.Host.Live = interceptor.NewClient(f.r.Host.Live.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, from client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, claim := o.(*corev1.PersistentVolumeClaim); claim {
				return errors.New("no answer")
			}
			return from.Get(ctx, k, o, opts...)
		},
	})
	if err := f.try(); err == nil || !strings.HasPrefix(f.says(), "False/Unclear: ") {
		t.Errorf("says %q: %v", f.says(), err)
	}
}
