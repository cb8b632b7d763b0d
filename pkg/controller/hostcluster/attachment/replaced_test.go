package attachment

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestNoGrantForAMirrorThatWasReplaced: the cache still has a VolumeAttachment in
// whose place the API server has another. The end of the one that was meant, which
// takes the right to write back, is over already.
func TestNoGrantForAMirrorThatWasReplaced(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.MustReconcile(r, "a-vol")
	old, found := kubetest.Read(w.DPU, mirror("a"))
	if !found || claimOf(w).Status.Phase != moorv1alpha1.ClaimGranted {
		t.Fatal("nothing was granted")
	}
	kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = nil })
	w.DPU.Remove(mirror("a"))
	anew := old.DeepCopy()
	anew.UID, anew.ResourceVersion = "", ""
	w.DPU.Add(anew)
	kubetest.Change(w.DPU, claimOf(w), func(c *moorv1alpha1.WriterClaim) {
		c.Status.Phase, c.Status.Holder, c.Status.Attachment = moorv1alpha1.ClaimFree, "", ""
	})
	w.CacheShows(old)
	w.MustReconcile(r, "a-vol")
	if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimFree || c.Epoch != 1 {
		t.Fatalf("granted to a VolumeAttachment that is gone: %+v", c)
	}
	if a, _ := kubetest.Read(w.Host, user("a")); !strings.Contains(a.Status.Message, "is being deleted") {
		t.Errorf("says %q", a.Status.Message)
	}
	w.CacheIsCurrent()
	w.MustReconcile(r, "a-vol")
	if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimGranted || c.Epoch != 2 {
		t.Errorf("with a cache that has caught up: %+v", c)
	}
}

// TestLatePromotion: between the grant and the promotion the pass stands still, until
// another leader has granted the volume anew, to a VolumeAttachment that was made in
// the place of the one the pass knows. The epoch there is that of the later grant.
func TestLatePromotion(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	var anew *storagev1alpha1.VolumeAttachment
	w.AfterWrite(func(verb string, o client.Object) {
		if _, claim := o.(*moorv1alpha1.WriterClaim); !claim || verb == "create" || anew != nil {
			return
		}
		old, _ := kubetest.Read(w.DPU, mirror("a"))
		kubetest.Change(w.DPU, mirror("a"), func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = nil })
		w.DPU.Remove(mirror("a"))
		anew = old.DeepCopy()
		anew.UID, anew.ResourceVersion, anew.Spec.Epoch = "", "", 3
		w.DPU.Add(anew)
	})
	if err := w.Reconcile(r, "a-vol"); !apierrors.IsConflict(err) {
		t.Errorf("the pass ends with %v, want a conflict", err)
	}
	if now, found := kubetest.Read(w.DPU, mirror("a")); !found || anew == nil || now.UID != anew.UID || now.Spec.Epoch != 3 {
		t.Errorf("the epoch of the new VolumeAttachment is %d", now.Spec.Epoch)
	}
}

// TestGrantKeepsWhatWasRevoked: a DPU that was silent while the volume was taken
// from it still has to clear up, also if another has the volume since.
func TestGrantKeepsWhatWasRevoked(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user("a"))
	w.DPU.Add(&moorv1alpha1.WriterClaim{
		ObjectMeta: kubetest.DPUObject("vol"), Spec: moorv1alpha1.WriterClaimSpec{VolumeName: "vol"},
		Status: &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 4, Revoked: []moorv1alpha1.Revoked{{DPU: "dpu-b", Epoch: 4}}},
	})
	w.MustReconcile(r, "a-vol")
	if c := claimOf(w).Status; c.Phase != moorv1alpha1.ClaimGranted || c.Epoch != 5 || c.RevokedEpoch("dpu-b") != 4 {
		t.Errorf("the claim is %+v", c)
	}
}
