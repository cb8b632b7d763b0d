package attachment

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/writer"
)

// TestSettledCostsNothing: a pass over what has arrived asks the API servers for
// nothing, and writes nothing.
func TestSettledCostsNothing(t *testing.T) {
	arrive := func(w *kubetest.Clusters, r *Reconciler) {
		w.MustReconcile(r, "a-vol")
		kubetest.Change(w.DPU, mirror("a"), shown)
		w.MustReconcile(r, "a-vol")
	}
	for name, tc := range map[string]struct {
		is   string
		open func() (*kubetest.Clusters, *Reconciler)
	}{
		"a primary": {"a-vol", func() (*kubetest.Clusters, *Reconciler) { return beside(t) }},
		"a replica": {"b-vol", func() (*kubetest.Clusters, *Reconciler) { return beside(t) }},
		"a primary that its node asked for": {"a-vol", func() (*kubetest.Clusters, *Reconciler) {
			w, r := byNode(t)
			w.Host.Add(kubetest.PV("pv", "data", "vol"), kubetest.Pod("pod", "a", "data"), asked("a"))
			arrive(w, r)
			return w, r
		}},
		"a replica that was promoted early": {"b-vol", func() (*kubetest.Clusters, *Reconciler) {
			w, r := moved(t)
			w.Host.Add(kubetest.Pod("pod", "b", "data"))
			w.MustReconcile(r, "b-vol")
			kubetest.Change(w.DPU, mirror("b"), shown)
			w.MustReconcile(r, "b-vol")
			return w, r
		}},
		"being fenced": {"a-vol", func() (*kubetest.Clusters, *Reconciler) {
			w, r := open(t, corev1.ReadWriteOnce)
			w.Host.Add(user("a"))
			arrive(w, r)
			kubetest.Change(w.DPU, &moorv1alpha1.WriterClaim{ObjectMeta: kubetest.DPUObject("vol")}, func(c *moorv1alpha1.WriterClaim) {
				c.Status.Phase = moorv1alpha1.ClaimFencing
			})
			w.MustReconcile(r, "a-vol")
			return w, r
		}},
		"one of many writers": {"a-vol", func() (*kubetest.Clusters, *Reconciler) {
			w, r := open(t, corev1.ReadWriteMany)
			w.Host.Add(user("a"))
			arrive(w, r)
			return w, r
		}},
	} {
		w, r := tc.open()
		reads, writes := w.LiveReads(), w.Writes()
		w.MustReconcile(r, tc.is)
		if reads, writes = w.LiveReads()-reads, w.Writes()-writes; reads != 0 || writes != 0 {
			t.Errorf("%s: %d reads of the API servers, %d writes", name, reads, writes)
		}
	}
}

// courseOfClaim is what becomes of a claim, in this order.
func courseOfClaim() []*moorv1alpha1.WriterClaimStatus {
	held := func(phase moorv1alpha1.ClaimPhase, node string, epoch int64) *moorv1alpha1.WriterClaimStatus {
		return &moorv1alpha1.WriterClaimStatus{Phase: phase, Holder: "dpu-" + node, Attachment: node + "-vol", AttachmentUID: kubetest.AttachmentUID(node + "-vol"), Epoch: epoch}
	}
	free := func(epoch int64) *moorv1alpha1.WriterClaimStatus {
		return &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: epoch}
	}
	return []*moorv1alpha1.WriterClaimStatus{
		nil, held(moorv1alpha1.ClaimGranted, "a", 1), held(moorv1alpha1.ClaimFencing, "a", 1), free(1),
		held(moorv1alpha1.ClaimGranted, "a", 2), held(moorv1alpha1.ClaimGranted, "b", 3),
	}
}

// courseOfMirror is what becomes of a mirror, in this order; no pass makes a replica
// with an epoch.
func courseOfMirror() []func(*storagev1alpha1.VolumeAttachment) {
	is := func(role storagev1alpha1.Role, epoch int64) func(*storagev1alpha1.VolumeAttachment) {
		return func(m *storagev1alpha1.VolumeAttachment) { m.Spec.Role, m.Spec.Epoch = role, epoch }
	}
	return []func(*storagev1alpha1.VolumeAttachment){
		is(storagev1alpha1.RoleReplica, 0), is(storagev1alpha1.RoleReplica, 1), is(storagev1alpha1.RolePrimary, 1), is(storagev1alpha1.RolePrimary, 2),
	}
}

// TestOldCacheGrantsNothing: whatever the cache has of claim and mirror, and however
// far the API server is ahead of it, a pass grants and promotes nothing that
// it would not by the API server's word.
func TestOldCacheGrantsNothing(t *testing.T) {
	grants, promotions, silent := 0, 0, 0
	for _, going := range []bool{false, true} {
		w, r := open(t)
		w.Host.Add(user("a"))
		w.MustReconcile(r, "a-vol")
		if going {
			w.DPU.Remove(mirror("a"))
		}
		behind(going, func(claimWas, claim *moorv1alpha1.WriterClaimStatus, mirrorWas, is func(*storagev1alpha1.VolumeAttachment)) {
			w.CacheIsCurrent()
			put(t, w, claimWas, mirrorWas)
			shown := mirrorOn(w)
			shown.DeletionTimestamp = nil
			w.CacheShows(claimOf(w))
			w.CacheShows(shown)
			put(t, w, claim, is)
			before, m, reads := claimOf(w), mirrorOn(w), w.LiveReads()
			_ = w.Reconcile(r, "a-vol") // an old cache may make it fail
			granted, promoted := judgePass(t, before, claimOf(w), m, mirrorOn(w))
			grants, promotions = grants+granted, promotions+promoted
			if w.LiveReads() == reads {
				silent++
			}
		})
	}
	if grants == 0 || promotions == 0 || silent == 0 {
		t.Errorf("%d grants, %d promotions, %d passes by the cache alone: the table tests nothing", grants, promotions, silent)
	}
}

// behind goes through what a cache may have of claim and mirror, and what of the same
// course the API server may have then; of a mirror that is going, that it is.
func behind(going bool, try func(claimWas, claim *moorv1alpha1.WriterClaimStatus, mirrorWas, is func(*storagev1alpha1.VolumeAttachment))) {
	claims, mirrors := courseOfClaim(), courseOfMirror()
	for i := range claims {
		for _, claim := range claims[i:] {
			for j := range mirrors {
				for _, is := range mirrors[j:] {
					try(claims[i], claim, mirrors[j], is)
					if going {
						break
					}
				}
			}
		}
	}
}

// put writes what the API server has of claim and mirror. The host cluster remembers no
// grant: another claim is put in the place of the one that was granted.
func put(t *testing.T, w *kubetest.Clusters, status *moorv1alpha1.WriterClaimStatus, change func(*storagev1alpha1.VolumeAttachment)) {
	t.Helper()
	kubetest.Change(w.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Status.LastGrant = nil })
	claim, m := claimOf(w), mirrorOn(w)
	claim.Status = status.DeepCopy()
	change(m)
	if err := errors.Join(w.DPU.Direct.Status().Update(t.Context(), claim), w.DPU.Direct.Update(t.Context(), m)); err != nil {
		t.Fatal(err)
	}
}

func mirrorOn(w *kubetest.Clusters) *storagev1alpha1.VolumeAttachment {
	m, _ := kubetest.Read(w.DPU, mirror("a"))
	return m
}

// judgePass holds what a pass of a-vol made of claim and mirror against what they
// were at the API server.
func judgePass(t *testing.T, claim, claimAfter *moorv1alpha1.WriterClaim, m, after *storagev1alpha1.VolumeAttachment) (granted, promoted int) {
	t.Helper()
	a := writer.Holder{DPU: "dpu-a", Attachment: "a-vol", UID: kubetest.AttachmentUID("a-vol")}
	verdict := writer.Judge(claim, a)
	if writer.IsLost(claimAfter) { // it knows less than the mirror
		if !writer.Behind(claim, writer.Seen(m)) || !cmp.Equal(m.Spec, after.Spec) {
			t.Errorf("claim %+v of mirror %+v is lost, and the mirror became %+v", claim.Status, m.Spec, after.Spec)
		}
		return 0, 0
	}
	if !cmp.Equal(claim.Status, claimAfter.Status) {
		granted = 1
		if !verdict.Grant || !m.DeletionTimestamp.IsZero() || !writer.Holds(claimAfter, a) || claimAfter.Status.Epoch != verdict.Epoch {
			t.Errorf("claim %+v of mirror %+v became %+v", claim.Status, m.Spec, claimAfter.Status)
		}
	}
	if !cmp.Equal(m.Spec, after.Spec) {
		promoted = 1
		if verdict.Refused != "" || after.IsReplica() || after.Spec.Epoch != verdict.Epoch || !writer.Holds(claimAfter, a) {
			t.Errorf("mirror %+v became %+v under claim %+v", m.Spec, after.Spec, claim.Status)
		}
	}
	return granted, promoted
}
