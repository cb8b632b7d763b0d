package replica

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
)

// TestReleased by the clock, and by what the status remembers.
func TestReleased(t *testing.T) {
	w := newFixture(t, 3, 2)
	w.attach("vol", "a", primary)
	w.pass("vol")
	w.detach("vol", "a")
	left := w.pass("vol")
	s := w.state("vol")
	if s.PrimaryGoneSince == nil || !strings.Contains(s.Message, "released at 2026-01-02T03:09:05Z") || left <= 0 || left > 5*time.Minute {
		t.Fatalf("state %+v, looks again in %s", s, left)
	}
	w.Step(left - 2*time.Second)
	if left = w.pass("vol"); len(w.replicas("vol")) != 2 || left <= 0 {
		t.Fatalf("%v are left, looks again in %s", w.replicas("vol"), left)
	}
	w.Step(left)
	w.pass("vol")
	if got := w.replicas("vol"); len(got) != 0 {
		t.Fatalf("%v are left", got)
	}
	w.letGo()
	w.pass("vol")
	if s := w.state("vol"); s != (storagev1alpha1.ReplicaState{}) {
		t.Errorf("state %+v", s)
	}
}

// TestReleasedWhenTheVolumeSays: its own time goes before the controller's.
func TestReleasedWhenTheVolumeSays(t *testing.T) {
	for seconds, left := range map[int32]int{0: 0, 30: 2} {
		w := newFixture(t, 3, 2)
		v := &storagev1alpha1.DPUVolume{}
		w.Get(v, "vol")
		v.Spec.Replication.ReleaseAfterSeconds = &seconds
		w.must(w.Direct.Update(t.Context(), v))
		w.attach("vol", "a", primary)
		w.pass("vol")
		w.detach("vol", "a")
		again := w.pass("vol")
		if got := w.replicas("vol"); len(got) != left || again > time.Duration(seconds)*time.Second {
			t.Errorf("after %d s: %v are left, looks again in %s", seconds, got, again)
		}
		w.Step(time.Duration(seconds) * time.Second)
		w.pass("vol")
		if got := w.replicas("vol"); len(got) != 0 {
			t.Errorf("after %d s: %v are left at last", seconds, got)
		}
	}
}

// TestStaysForAPod: replicas of a volume that a pod is to get stay, however long that takes,
// and their while begins when no such pod is left.
func TestStaysForAPod(t *testing.T) {
	for name, tc := range map[string]struct {
		pod   func(*corev1.Pod)
		goes  bool
		stays bool
	}{
		"bound to a host":    {func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "b", corev1.PodPending }, false, true},
		"without a host":     {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, false, true},
		"being deleted":      {func(p *corev1.Pod) { p.Finalizers = []string{held} }, true, false},
		"finished":           {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false, false},
		"without the volume": {func(p *corev1.Pod) { p.Spec.Volumes = nil }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 3, 2)
			w.attach("vol", "a", primary)
			w.pass("vol")
			w.pod("p", tc.pod, "vol")
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "p"}}
			if tc.goes {
				w.Remove(p)
			}
			w.pod("a-last", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "vol")
			w.detach("vol", "a")
			left := w.pass("vol")
			if s := w.state("vol"); tc.stays != (s.PrimaryGoneSince == nil) || tc.stays != strings.HasSuffix(s.Message, "stay for pod apps/p") || tc.stays != (left == 0) {
				t.Fatalf("state %+v, looks again in %s", s, left)
			}
			w.Step(time.Hour)
			w.pass("vol")
			if got := w.replicas("vol"); (len(got) == 2) != tc.stays {
				t.Fatalf("%v are left after an hour", got)
			}
			if !tc.stays {
				return
			}
			w.Remove(p)
			if left = w.pass("vol"); len(w.replicas("vol")) != 2 || left <= 0 {
				t.Fatalf("%v are left just after the pod, looks again in %s", w.replicas("vol"), left)
			}
			w.Step(left)
			w.pass("vol")
			if got := w.replicas("vol"); len(got) != 0 {
				t.Errorf("%v are left at last", got)
			}
		})
	}
}

// TestPlannedMove: the primary lands on a replica's node, which is promoted by
// who attaches; the old primary's node is a candidate again.
func TestPlannedMove(t *testing.T) {
	w := newFixture(t, 2, 1)
	w.Remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c"}})
	w.Remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "d"}})
	w.attach("vol", "a", primary)
	w.pass("vol")
	w.detach("vol", "a")
	w.pass("vol")
	b := w.attachment("vol", "b")
	yes := true
	b.Spec.Role, b.Status.DPUAttached = primary, &yes
	w.write(b)
	w.pass("vol")
	if got := w.replicas("vol"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("replicas on %v, want a", got)
	}
	if s := w.state("vol"); s.PrimaryGoneSince != nil || s.Wanted != 1 || s.Missing != 0 {
		t.Errorf("state %+v", s)
	}
	if got := w.attachment("vol", "b"); got.Spec.Role != primary || !got.DeletionTimestamp.IsZero() {
		t.Error("the promoted one was touched")
	}
}

// TestDeletedWithTheVolume: also without a primary, and when it is gone.
func TestDeletedWithTheVolume(t *testing.T) {
	for name, end := range map[string]func(*fixture, *storagev1alpha1.DPUVolume){
		"being deleted":   func(*fixture, *storagev1alpha1.DPUVolume) {},
		"without primary": func(w *fixture, _ *storagev1alpha1.DPUVolume) { w.detach("vol", "a") },
		"gone": func(w *fixture, v *storagev1alpha1.DPUVolume) {
			v.Finalizers = nil
			w.must(w.Direct.Update(w.t.Context(), v))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, 4, 2)
			w.attach("vol", "a", primary)
			w.pass("vol")
			ours := w.replicas("vol")
			others := slices.DeleteFunc([]string{"b", "c", "d"}, func(n string) bool { return slices.Contains(ours, n) })
			w.attach("vol", others[0], replica)
			v := &storagev1alpha1.DPUVolume{}
			w.Get(v, "vol")
			w.Remove(v)
			w.must(w.Direct.Get(t.Context(), client.ObjectKeyFromObject(v), v))
			end(w, v)
			w.pass("vol")
			if got := w.replicas("vol"); !slices.Equal(got, others[:1]) {
				t.Errorf("replicas on %v are left, want only the user's own on %s", got, others[0])
			}
		})
	}
}

// TestNoLongerWanted: replication may be changed on a volume that lives.
func TestNoLongerWanted(t *testing.T) {
	w := newFixture(t, 3, 2)
	w.attach("vol", "a", primary)
	w.pass("vol")
	for _, n := range []int32{1, 0} {
		v := &storagev1alpha1.DPUVolume{}
		w.Get(v, "vol")
		v.Spec.Replication.MaxMountReplicaCount = n
		w.must(w.Direct.Update(t.Context(), v))
		w.pass("vol")
		w.letGo()
		w.pass("vol")
		if got := w.replicas("vol"); len(got) != int(n) {
			t.Errorf("%v are left, want %d", got, n)
		}
	}
}

// TestPromotedMeanwhile: what was promoted after it was read is not deleted.
func TestPromotedMeanwhile(t *testing.T) {
	w := newFixture(t, 2, 1)
	w.attach("vol", "a", primary)
	w.pass("vol")
	node := w.replicas("vol")[0]
	read := w.attachment("vol", node)
	now := read.DeepCopy()
	now.Spec.Role = primary
	w.must(w.Direct.Update(t.Context(), now))
	if err := w.r.remove(t.Context(), read); err == nil {
		t.Error("no error: it would not be looked at again")
	}
	if got := w.attachment("vol", node); !got.DeletionTimestamp.IsZero() {
		t.Error("the primary was deleted")
	}
}
