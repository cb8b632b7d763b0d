package volume

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestLastGrantIsOver: of a volume that is attached nowhere it is noted that its last epoch
// is over, once it has been so for a while, and only if the claim says that.
func TestLastGrantIsOver(t *testing.T) {
	free := func(epoch int64) func(*moorv1alpha1.WriterClaim) {
		return func(c *moorv1alpha1.WriterClaim) {
			c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: epoch}
		}
	}
	for name, tc := range map[string]struct {
		change   func(*moorv1alpha1.WriterClaim)
		attached bool
		want     bool
	}{
		"there was a receipt":        {free(4), false, true},
		"it is attached":             {free(4), true, false},
		"there is no receipt":        {func(*moorv1alpha1.WriterClaim) {}, false, false},
		"the claim is older":         {free(3), false, false},
		"the claim has lost it":      {func(c *moorv1alpha1.WriterClaim) { c.Status = nil }, false, false},
		"it waits for other receipt": {func(c *moorv1alpha1.WriterClaim) { c.Status.Phase = moorv1alpha1.ClaimFencing }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			r.Clock = w.Clock
			v := user()
			v.Status.LastGrant = &storagev1alpha1.LastGrant{Epoch: 4, DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "u"}
			claim := kubetest.WriterClaim("vol", "dpu-a", "a-vol", 4)
			tc.change(claim)
			w.Host.Add(v)
			w.DPU.Add(claim)
			if tc.attached {
				w.Host.Add(kubetest.DPUVolumeAttachment("vol", "a"))
			}
			is := func(want bool) {
				t.Helper()
				w.MustReconcile(r, "vol")
				if got, _ := kubetest.Read(w.Host, user()); got.Status.LastGrant == nil || got.Status.LastGrant.Over != want || got.Status.LastGrant.Epoch != 4 {
					t.Errorf("it is remembered as %+v", got.Status.LastGrant)
				}
			}
			is(false)
			w.Step(idleAfter - time.Second)
			is(false)
			w.Step(time.Second)
			is(tc.want)
		})
	}
}

// TestAGrantIsNotOver: a grant that comes between the look at the claim and the mark is not
// marked as over.
func TestAGrantIsNotOver(t *testing.T) {
	w, r := open(t)
	r.Clock = w.Clock
	v := user()
	v.Status.LastGrant = &storagev1alpha1.LastGrant{Epoch: 4, DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: "a"}
	w.Host.Add(v)
	free := kubetest.WriterClaim("vol", "", "", 4)
	free.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 4}
	w.DPU.Add(free)
	w.MustReconcile(r, "vol")
	shown, _ := kubetest.Read(w.Host, user())
	w.CacheShows(shown)
	next := storagev1alpha1.LastGrant{Epoch: 5, DPU: "dpu-b", Attachment: "b-vol", AttachmentUID: "b"}
	kubetest.Change(w.Host, user(), func(v *storagev1alpha1.DPUVolume) { v.Status.LastGrant = &next })
	w.Step(idleAfter)
	err := w.Reconcile(r, "vol")
	if got, _ := kubetest.Read(w.Host, user()); *got.Status.LastGrant != next || !apierrors.IsConflict(err) {
		t.Errorf("it is remembered as %+v, the pass ended with %v", got.Status.LastGrant, err)
	}
}
