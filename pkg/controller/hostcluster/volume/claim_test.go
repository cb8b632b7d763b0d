package volume

import (
	"strings"
	"testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestClaimGoesWithItsVolume: the claim, which its finalizer keeps, goes once the Volume is
// gone and no DPU holds it; one that is held stays, and the volume says for whom it waits.
func TestClaimGoesWithItsVolume(t *testing.T) {
	w, r := open(t)
	w.Host.Add(user())
	w.MustReconcile(r, "vol")
	if m, found := kubetest.Read(w.DPU, mirror()); found {
		w.DPU.Remove(m)
	}
	claim := kubetest.WriterClaim("vol", "dpu-a", "a-vol", 4)
	w.DPU.Add(claim)
	w.Host.Remove(user())
	w.MustReconcile(r, "vol")
	got, found := kubetest.Read(w.Host, user())
	if !found || !strings.Contains(said(got)[0], "DPU dpu-a holds the right to write it (epoch 4) without a receipt") {
		t.Fatalf("found %v, says %q", found, said(got))
	}
	kubetest.Change(w.DPU, claim, func(c *moorv1alpha1.WriterClaim) {
		c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 4}
	})
	w.MustReconcile(r, "vol")
	if _, found := kubetest.Read(w.DPU, claim); found {
		t.Error("the claim is left")
	}
	if _, found := kubetest.Read(w.Host, user()); found {
		t.Error("the volume is left")
	}
}
