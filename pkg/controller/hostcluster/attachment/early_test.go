package attachment

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	world "github.com/moor-storage/moor/pkg/controller/hostcluster/hostclustertest"
)

// freed is what a claim is once the epoch of its holder is over.
func freed(c *moorv1alpha1.WriterClaim) {
	c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: c.Status.Epoch}
}

// moved is a volume whose primary on a has gone, with a prepared replica on b;
// the hosts have Nodes, and a claim is bound to the volume.
func moved(t *testing.T) (*world.World, *Reconciler) {
	t.Helper()
	w, r := beside(t)
	w.AddHost(host("a"), host("b"), world.Persistent())
	world.Change(w, w.Host, user("a"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = nil })
	world.Remove(w, w.Host, user("a"))
	world.Change(w, w.DPU, claimOf(w), freed)
	return w, r
}

func outOfService(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Effect: corev1.TaintEffectNoSchedule}}
}

// leave is a pod that is being deleted.
func leave(w *world.World, node string) {
	p := world.PodOn(node)
	p.Finalizers = []string{"x/y"}
	w.AddHost(p)
	world.Remove(w, w.Host, world.PodOn(node))
}

// wentAhead reports whether b may write although its host has not asked for it.
func wentAhead(w *world.World) bool {
	claim, m := claimOf(w).Status, mirror("b")
	m, _ = world.Read(w, w.DPU, m)
	a, _ := world.Read(w, w.Host, user("b"))
	granted := claim.Phase == moorv1alpha1.ClaimGranted && claim.Attachment == "b-vol"
	return granted && m.Spec.Role == storagev1alpha1.RolePrimary && m.Spec.Epoch == claim.Epoch && a.Spec.Role == storagev1alpha1.RoleReplica
}

// TestWhenAReplicaGoesAhead: once a pod is bound to its host that will use it, and
// nothing speaks against it.
func TestWhenAReplicaGoesAhead(t *testing.T) {
	primary := func(w *world.World, _ *Reconciler) { w.AddHost(user("a")) }
	for name, tc := range map[string]struct {
		pod   func(*world.World)
		world func(*world.World, *Reconciler)
		ahead bool
	}{
		"a pod is bound to its host":    {ahead: true},
		"to another":                    {pod: func(w *world.World) { w.AddHost(world.PodOn("a")) }},
		"to none yet":                   {pod: func(w *world.World) { w.AddHost(world.PodOn("")) }},
		"no pod":                        {pod: func(*world.World) {}},
		"one that is being deleted":     {pod: func(w *world.World) { leave(w, "b") }},
		"its kubelet is out of service": {world: func(w *world.World, _ *Reconciler) { world.Change(w, w.Host, host("b"), outOfService) }},
		"its Node is gone":              {world: func(w *world.World, _ *Reconciler) { world.Remove(w, w.Host, host("b")) }},
		"another primary waits":         {world: primary},
		"another primary is not mirrored yet": {world: func(w *world.World, r *Reconciler) {
			world.Change(w, w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = nil })
			world.Remove(w, w.DPU, mirror("a"))
			primary(w, r)
		}},
		"the other primary was taken away": {world: func(w *world.World, r *Reconciler) {
			primary(w, r)
			world.Change(w, w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = []string{"x/y"} })
			world.Remove(w, w.DPU, mirror("a"))
		}, ahead: true},
		"somebody holds the claim": {world: func(w *world.World, _ *Reconciler) {
			world.Change(w, w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
				c.Status.Phase, c.Status.Holder, c.Status.Attachment = moorv1alpha1.ClaimGranted, "dpu-c", "c-vol"
			})
		}},
		"it is being fenced": {world: func(w *world.World, _ *Reconciler) {
			world.Change(w, w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
				c.Status.Phase, c.Status.Holder, c.Status.Attachment = moorv1alpha1.ClaimFencing, "dpu-a", "a-vol"
			})
		}},
		"the cache shows a pod that has ended": {pod: func(w *world.World) {
			ended := world.PodOn("b")
			ended.Status.Phase = corev1.PodFailed
			w.AddHost(ended)
		}, world: func(_ *world.World, r *Reconciler) {
			old, _ := moved(t)
			old.AddHost(world.PodOn("b"))
			r.Users.Host.Client = old.Host
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := moved(t)
			if tc.pod == nil {
				tc.pod = func(w *world.World) { w.AddHost(world.PodOn("b")) }
			}
			tc.pod(w)
			if tc.world != nil {
				tc.world(w, r)
			}
			w.MustPass(r, "b-vol")
			if got := wentAhead(w); got != tc.ahead {
				t.Errorf("went ahead: %v, want %v", got, tc.ahead)
			}
			a, found := world.Read(w, w.Host, user("b"))
			if !found || !a.DeletionTimestamp.IsZero() || !tc.ahead && (a.Status.Message != "" || conditions(a)["Ready"] != "True") {
				t.Errorf("a replica that does not go ahead is one as before: found %v, %+v", found, a.Status)
			}
			before := w.Writes()
			w.MustPass(r, "b-vol")
			if n := w.Writes() - before; n != 0 {
				t.Errorf("a pass over what has not changed wrote %d times", n)
			}
		})
	}
}

// ahead is a replica that has gone ahead and is shown.
func ahead(t *testing.T) (*world.World, *Reconciler) {
	t.Helper()
	w, r := moved(t)
	w.AddHost(world.PodOn("b"))
	w.MustPass(r, "b-vol")
	world.Change(w, w.DPU, mirror("b"), func(m *storagev1alpha1.VolumeAttachment) {
		m.Status.DPU.Attached, m.Status.DPU.PreEmulated, m.Status.DPU.Epoch = true, false, m.Spec.Epoch
	})
	w.MustPass(r, "b-vol")
	if !wentAhead(w) {
		t.Fatalf("claim %+v", claimOf(w).Status)
	}
	return w, r
}

// TestAheadIsShown: its status is that of a primary, and when its host asks, there
// is nothing left to do.
func TestAheadIsShown(t *testing.T) {
	w, r := ahead(t)
	got, _ := world.Read(w, w.Host, user("b"))
	if s := got.Status; s.DPUAttached == nil || !*s.DPUAttached || s.Epoch != 2 || s.Warmth != storagev1alpha1.AttachmentAttached || conditions(got)["Ready"] != "True" || conditions(got)["PreEmulated"] != "" {
		t.Errorf("status %+v, %v", s, conditions(got))
	}
	agree(t, got)
	world.Change(w, w.Host, user("b"), role(storagev1alpha1.RolePrimary))
	before := w.Writes()
	w.MustPass(r, "b-vol")
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
		world func(*world.World)
		back  bool
	}{
		"all is as it was": {func(*world.World) {}, false},
		"its pod is gone":  {func(w *world.World) { world.Remove(w, w.Host, world.PodOn("b")) }, true},
		"its pod is being deleted": {func(w *world.World) {
			world.Change(w, w.Host, world.PodOn("b"), func(p *corev1.Pod) { p.Finalizers = []string{"x/y"} })
			world.Remove(w, w.Host, world.PodOn("b"))
		}, true},
		"its pod has ended": {func(w *world.World) {
			world.Change(w, w.Host, world.PodOn("b"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		}, true},
		"its kubelet is out of service": {func(w *world.World) { world.Change(w, w.Host, host("b"), outOfService) }, true},
		"another host asks":             {func(w *world.World) { w.AddHost(user("c")) }, true},
		"its host has asked": {func(w *world.World) {
			world.Change(w, w.Host, user("b"), role(storagev1alpha1.RolePrimary))
			world.Remove(w, w.Host, world.PodOn("b"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := ahead(t)
			tc.world(w)
			w.MustPass(r, "b-vol")
			if back := !exists(w, user("b")); back != tc.back {
				t.Fatalf("deleted: %v, want %v", back, tc.back)
			}
			if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimGranted || c.Attachment != "b-vol" {
				t.Errorf("only the receipt of its DPU frees the claim, which is %+v", c)
			}
			w.MustPass(r, "b-vol")
			m, found := world.Read(w, w.DPU, mirror("b"))
			if going := !found || !m.DeletionTimestamp.IsZero(); going != tc.back {
				t.Errorf("withdrawn: %v, want %v", going, tc.back)
			}
		})
	}
}

// TestTakenBackAsItWasRead: where the host asks at that very moment, it keeps the
// volume: it may have mounted it already.
func TestTakenBackAsItWasRead(t *testing.T) {
	w, r := ahead(t)
	world.Remove(w, w.Host, world.PodOn("b"))
	old, _ := world.Read(w, w.Host, user("b"))
	w.CacheShows(old)
	world.Change(w, w.Host, user("b"), role(storagev1alpha1.RolePrimary))
	if err := w.Pass(r, "b-vol"); !apierrors.IsConflict(err) {
		t.Errorf("error %v", err)
	}
	if !exists(w, user("b")) {
		t.Error("the volume of a host that has asked for it was taken")
	}
}

// TestManyWritersDoNotGoAhead: there is no right to write to wait for.
func TestManyWritersDoNotGoAhead(t *testing.T) {
	w, r := open(t, corev1.ReadWriteMany)
	w.AddHost(host("b"), world.Persistent(), replicaOn("b"), world.PodOn("b"))
	w.MustPass(r, "b-vol")
	if m, _ := world.Read(w, w.DPU, mirror("b")); m.Spec.Role != storagev1alpha1.RoleReplica {
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
	w.AddHost(world.PodOn("b"))
	w.CacheShows(claimOf(w))
	world.Change(w, w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
		c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "dpu-c", Attachment: "c-vol", Epoch: 2}
	})
	if err := w.Pass(r, "b-vol"); !apierrors.IsConflict(err) {
		t.Errorf("error %v", err)
	}
	if c := claimOf(w).Status; c.Holder != "dpu-c" || c.Epoch != 2 {
		t.Errorf("claim %+v", c)
	}
	if m, _ := world.Read(w, w.DPU, mirror("b")); m.Spec.Role != storagev1alpha1.RoleReplica || m.Spec.Epoch != 0 {
		t.Errorf("its DPU was told of role %s, epoch %d", m.Spec.Role, m.Spec.Epoch)
	}
}

// TestInterruptedOnTheWayAhead: whatever write is lost, the next pass ends it; or, if
// the pod has gone in between, gives back what was granted.
func TestInterruptedOnTheWayAhead(t *testing.T) {
	for _, late := range []bool{false, true} {
		for n := 1; n <= 3; n++ {
			for _, stays := range []bool{true, false} {
				w, r := moved(t)
				w.AddHost(world.PodOn("b"))
				w.LoseWrite(n, late)
				if err := w.Pass(r, "b-vol"); err == nil {
					t.Errorf("write %d was not lost", n)
				}
				granted := claimOf(w).Status.Phase == moorv1alpha1.ClaimGranted
				if !stays {
					world.Remove(w, w.Host, world.PodOn("b"))
				}
				w.MustPass(r, "b-vol")
				if stays && !wentAhead(w) {
					t.Errorf("write %d lost (late %v): claim %+v", n, late, claimOf(w).Status)
				}
				if kept := exists(w, user("b")); !stays && kept == granted {
					t.Errorf("write %d lost (late %v): the right was granted: %v, and its attachment stays: %v", n, late, granted, kept)
				}
			}
		}
	}
}
