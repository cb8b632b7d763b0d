package attachment

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// freed is what a claim is once the epoch of its holder is over.
func freed(c *moorv1alpha1.WriterClaim) {
	c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: c.Status.Epoch}
}

// moved is a volume whose primary on a has gone, with a prepared replica on b;
// the hosts have Nodes, and a claim is bound to the volume.
func moved(t *testing.T) (*kubetest.Clusters, *Reconciler) {
	t.Helper()
	w, r := beside(t)
	w.Host.Add(host("a"), host("b"), kubetest.PV("pv", "data", "vol"))
	kubetest.Change(w.Host, user("a"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = nil })
	w.Host.Remove(user("a"))
	kubetest.Change(w.DPU, claimOf(w), freed)
	return w, r
}

func outOfService(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoSchedule}}
}

// leave is a pod that is being deleted.
func leave(w *kubetest.Clusters, node string) {
	p := kubetest.Pod("pod", node, "data")
	p.Finalizers = []string{"x/y"}
	w.Host.Add(p)
	w.Host.Remove(kubetest.Pod("pod", node, "data"))
}

// promotedEarly reports whether b may write although its host has not asked for it.
func promotedEarly(w *kubetest.Clusters) bool {
	claim, m := claimOf(w).Status, mirror("b")
	m, _ = kubetest.Read(w.DPU, m)
	a, _ := kubetest.Read(w.Host, user("b"))
	granted := claim.Phase == moorv1alpha1.ClaimGranted && claim.Attachment == "b-vol"
	return granted && m.Spec.Role == storagev1alpha1.RolePrimary && m.Spec.Epoch == claim.Epoch && a.Spec.Role == storagev1alpha1.RoleReplica
}

// TestWhenAReplicaIsPromotedEarly: once a pod is bound to its host that will use it, and
// nothing speaks against it.
func TestWhenAReplicaIsPromotedEarly(t *testing.T) {
	primary := func(w *kubetest.Clusters, _ *Reconciler) { w.Host.Add(user("a")) }
	for name, tc := range map[string]struct {
		pod   func(*kubetest.Clusters)
		given func(*kubetest.Clusters, *Reconciler)
		early bool
	}{
		"a pod is bound to its host":    {early: true},
		"to another":                    {pod: func(w *kubetest.Clusters) { w.Host.Add(kubetest.Pod("pod", "a", "data")) }},
		"to none yet":                   {pod: func(w *kubetest.Clusters) { w.Host.Add(kubetest.Pod("pod", "", "data")) }},
		"no pod":                        {pod: func(*kubetest.Clusters) {}},
		"one that is being deleted":     {pod: func(w *kubetest.Clusters) { leave(w, "b") }},
		"its kubelet is out of service": {given: func(w *kubetest.Clusters, _ *Reconciler) { kubetest.Change(w.Host, host("b"), outOfService) }},
		"its Node is gone":              {given: func(w *kubetest.Clusters, _ *Reconciler) { w.Host.Remove(host("b")) }},
		"another primary waits":         {given: primary},
		"another primary is not mirrored yet": {given: func(w *kubetest.Clusters, r *Reconciler) {
			kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = nil })
			w.DPU.Remove(mirror("a"))
			primary(w, r)
		}},
		"the other primary was taken away": {given: func(w *kubetest.Clusters, r *Reconciler) {
			primary(w, r)
			kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = []string{"x/y"} })
			w.DPU.Remove(mirror("a"))
		}, early: true},
		"another holds the claim": {given: func(w *kubetest.Clusters, _ *Reconciler) {
			kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
				c.Status.Phase, c.Status.Holder, c.Status.Attachment = moorv1alpha1.ClaimGranted, "dpu-c", "c-vol"
			})
		}},
		"it is being fenced": {given: func(w *kubetest.Clusters, _ *Reconciler) {
			kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
				c.Status.Phase, c.Status.Holder, c.Status.Attachment = moorv1alpha1.ClaimFencing, "dpu-a", "a-vol"
			})
		}},
		"the cache shows a pod that has ended": {pod: func(w *kubetest.Clusters) {
			ended := kubetest.Pod("pod", "b", "data")
			ended.Status.Phase = corev1.PodFailed
			w.Host.Add(ended)
		}, given: func(_ *kubetest.Clusters, r *Reconciler) {
			old, _ := moved(t)
			old.Host.Add(kubetest.Pod("pod", "b", "data"))
			r.Users.Host.Client = old.Host.Client
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := moved(t)
			if tc.pod == nil {
				tc.pod = func(w *kubetest.Clusters) { w.Host.Add(kubetest.Pod("pod", "b", "data")) }
			}
			tc.pod(w)
			if tc.given != nil {
				tc.given(w, r)
			}
			w.MustReconcile(r, "b-vol")
			if got := promotedEarly(w); got != tc.early {
				t.Errorf("promoted early: %v, want %v", got, tc.early)
			}
			a, found := kubetest.Read(w.Host, user("b"))
			if !found || !a.DeletionTimestamp.IsZero() || !tc.early && (a.Status.Message != "" || conditions(a)["Ready"] != "True") {
				t.Errorf("a replica that is not promoted early is one as before: found %v, %+v", found, a.Status)
			}
			before := w.Writes()
			w.MustReconcile(r, "b-vol")
			if n := w.Writes() - before; n != 0 {
				t.Errorf("a pass over what has not changed wrote %d times", n)
			}
		})
	}
}

// earlyPrimary is a replica that was promoted early and is shown.
func earlyPrimary(t *testing.T) (*kubetest.Clusters, *Reconciler) {
	t.Helper()
	w, r := moved(t)
	w.Host.Add(kubetest.Pod("pod", "b", "data"))
	w.MustReconcile(r, "b-vol")
	kubetest.Change(w.DPU, mirror("b"), func(m *storagev1alpha1.VolumeAttachment) {
		m.Status.DPU.Attached, m.Status.DPU.PreEmulated, m.Status.DPU.Epoch = true, false, m.Spec.Epoch
	})
	w.MustReconcile(r, "b-vol")
	if !promotedEarly(w) {
		t.Fatalf("claim %+v", claimOf(w).Status)
	}
	return w, r
}

// TestEarlyPromotionIsShown: its status is that of a primary, and when its host asks, there
// is nothing left to do.
func TestEarlyPromotionIsShown(t *testing.T) {
	w, r := earlyPrimary(t)
	got, _ := kubetest.Read(w.Host, user("b"))
	if s := got.Status; s.DPUAttached == nil || !*s.DPUAttached || s.Epoch != 2 || s.Warmth != storagev1alpha1.WarmthAttached || conditions(got)["Ready"] != "True" || conditions(got)["PreEmulated"] != "" {
		t.Errorf("status %+v, %v", s, conditions(got))
	}
	agree(t, got)
	kubetest.Change(w.Host, user("b"), role(storagev1alpha1.RolePrimary))
	before := w.Writes()
	w.MustReconcile(r, "b-vol")
	if n := w.Writes() - before; n != 0 {
		t.Errorf("the promotion wrote %d times", n)
	}
	if c := claimOf(w).Status; c.Epoch != 2 || c.Attachment != "b-vol" {
		t.Errorf("claim %+v", c)
	}
}

// TestWhenItIsTakenBack: once its host will not ask for it, or another does. It
// goes as any attachment does, which gives the right to write back.
func TestWhenItIsTakenBack(t *testing.T) {
	for name, tc := range map[string]struct {
		given func(*kubetest.Clusters)
		back  bool
	}{
		"all is as it was": {func(*kubetest.Clusters) {}, false},
		"its pod is gone":  {func(w *kubetest.Clusters) { w.Host.Remove(kubetest.Pod("pod", "b", "data")) }, true},
		"its pod is being deleted": {func(w *kubetest.Clusters) {
			kubetest.Change(w.Host, kubetest.Pod("pod", "b", "data"), func(p *corev1.Pod) { p.Finalizers = []string{"x/y"} })
			w.Host.Remove(kubetest.Pod("pod", "b", "data"))
		}, true},
		"its pod has ended": {func(w *kubetest.Clusters) {
			kubetest.Change(w.Host, kubetest.Pod("pod", "b", "data"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		}, true},
		"its kubelet is out of service": {func(w *kubetest.Clusters) { kubetest.Change(w.Host, host("b"), outOfService) }, true},
		"another host asks":             {func(w *kubetest.Clusters) { w.Host.Add(user("c")) }, true},
		"its host has asked": {func(w *kubetest.Clusters) {
			kubetest.Change(w.Host, user("b"), role(storagev1alpha1.RolePrimary))
			w.Host.Remove(kubetest.Pod("pod", "b", "data"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := earlyPrimary(t)
			tc.given(w)
			w.MustReconcile(r, "b-vol")
			if back := !exists(w, user("b")); back != tc.back {
				t.Fatalf("deleted: %v, want %v", back, tc.back)
			}
			if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimGranted || c.Attachment != "b-vol" {
				t.Errorf("only the receipt of its DPU frees the claim, which is %+v", c)
			}
			w.MustReconcile(r, "b-vol")
			m, found := kubetest.Read(w.DPU, mirror("b"))
			if going := !found || !m.DeletionTimestamp.IsZero(); going != tc.back {
				t.Errorf("withdrawn: %v, want %v", going, tc.back)
			}
		})
	}
}

// TestTakenBackAsItWasRead: where the host asks at that very moment, it keeps the
// volume: it may have mounted it already.
func TestTakenBackAsItWasRead(t *testing.T) {
	w, r := earlyPrimary(t)
	w.Host.Remove(kubetest.Pod("pod", "b", "data"))
	old, _ := kubetest.Read(w.Host, user("b"))
	w.CacheShows(old)
	kubetest.Change(w.Host, user("b"), role(storagev1alpha1.RolePrimary))
	if err := w.Reconcile(r, "b-vol"); !apierrors.IsConflict(err) {
		t.Errorf("error %v", err)
	}
	if !exists(w, user("b")) {
		t.Error("the volume of a host that has asked for it was taken")
	}
}

// TestManyWritersAreNotPromotedEarly: there is no right to write to wait for.
func TestManyWritersAreNotPromotedEarly(t *testing.T) {
	w, r := open(t, corev1.ReadWriteMany)
	w.Host.Add(host("b"), kubetest.PV("pv", "data", "vol"), replicaOn("b"), kubetest.Pod("pod", "b", "data"))
	w.MustReconcile(r, "b-vol")
	if m, _ := kubetest.Read(w.DPU, mirror("b")); m.Spec.Role != storagev1alpha1.RoleReplica {
		t.Errorf("role %s", m.Spec.Role)
	}
}

// TestRivalry: what wakes the replicas of a volume.
func TestRivalry(t *testing.T) {
	is, rep, going := user("a"), replicaOn("a"), user("a")
	now := metav1.Now()
	going.DeletionTimestamp = &now
	update := func(from, to *storagev1alpha1.DPUVolumeAttachment) bool {
		return rivalry.Update(event.UpdateEvent{ObjectOld: from, ObjectNew: to})
	}
	for name, tc := range map[string]struct{ got, want bool }{
		"a primary comes":      {rivalry.Create(event.CreateEvent{Object: is}), true},
		"a replica comes":      {rivalry.Create(event.CreateEvent{Object: rep}), false},
		"it becomes one":       {update(rep, is), true},
		"it is to go":          {update(is, going), true},
		"it is still to go":    {update(going, going), false},
		"something else of it": {update(is, is), false},
		"it is gone":           {rivalry.Delete(event.DeleteEvent{Object: is}), true},
		"a replica is gone":    {rivalry.Delete(event.DeleteEvent{Object: rep}), false},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: wakes %v, want %v", name, tc.got, tc.want)
		}
	}
}

// TestClaimOfAnOldCache: one that the cache has as free, and that is held, is not
// granted again.
func TestClaimOfAnOldCache(t *testing.T) {
	w, r := moved(t)
	w.Host.Add(kubetest.Pod("pod", "b", "data"))
	w.CacheShows(claimOf(w))
	kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
		c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-c", Attachment: "c-vol", Epoch: 2}
	})
	if err := w.Reconcile(r, "b-vol"); !apierrors.IsConflict(err) {
		t.Errorf("error %v", err)
	}
	if c := claimOf(w).Status; c.Holder != "dpu-c" || c.Epoch != 2 {
		t.Errorf("claim %+v", c)
	}
	if m, _ := kubetest.Read(w.DPU, mirror("b")); m.Spec.Role != storagev1alpha1.RoleReplica || m.Spec.Epoch != 0 {
		t.Errorf("its DPU was told of role %s, epoch %d", m.Spec.Role, m.Spec.Epoch)
	}
}

// TestEarlyPromotionInterrupted: whatever write is lost, the next pass ends it; or, if
// the pod has gone in between, gives back what was granted.
func TestEarlyPromotionInterrupted(t *testing.T) {
	for _, late := range []bool{false, true} {
		for n := 1; n <= 3; n++ {
			for _, stays := range []bool{true, false} {
				w, r := moved(t)
				w.Host.Add(kubetest.Pod("pod", "b", "data"))
				w.LoseWrite(n, late)
				if err := w.Reconcile(r, "b-vol"); err == nil {
					t.Errorf("write %d was not lost", n)
				}
				granted := claimOf(w).Status.Phase == moorv1alpha1.ClaimGranted
				if !stays {
					w.Host.Remove(kubetest.Pod("pod", "b", "data"))
				}
				w.MustReconcile(r, "b-vol")
				if stays && !promotedEarly(w) {
					t.Errorf("write %d lost (late %v): claim %+v", n, late, claimOf(w).Status)
				}
				if kept := exists(w, user("b")); !stays && kept == granted {
					t.Errorf("write %d lost (late %v): the right was granted: %v, and its attachment stays: %v", n, late, granted, kept)
				}
			}
		}
	}
}
