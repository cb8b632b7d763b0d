package volume

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
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

// TestClaimOfAVolumeIsVouchedFor: of a claim that is held though its volume is gone, an
// operator can vouch for the holder, unless its attachment is there, so that it can answer.
func TestClaimOfAVolumeIsVouchedFor(t *testing.T) {
	for name, there := range map[string]bool{"its attachment is gone": false, "its attachment is there": true} {
		t.Run(name, func(t *testing.T) {
			w, r := open(t)
			r.Clock = w.Clock
			w.Host.Add(user())
			w.MustReconcile(r, "vol")
			if m, found := kubetest.Read(w.DPU, mirror()); found {
				w.DPU.Remove(m)
			}
			claim := kubetest.WriterClaim("vol", "dpu-a", "a-vol", 4)
			w.DPU.Add(claim)
			if there {
				w.DPU.Add(kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
			}
			w.Host.Remove(user())
			w.MustReconcile(r, "vol")
			if got, _ := kubetest.Read(w.Host, user()); !strings.Contains(said(got)[0], "patch writerclaim vol --type merge") {
				t.Errorf("says %q", said(got))
			}
			kubetest.Change(w.DPU, claim, func(c *moorv1alpha1.WriterClaim) {
				c.Spec.OperatorReceipt = &moorv1alpha1.OperatorReceipt{
					Epoch: 4, Holder: "dpu-a", AttachmentUID: c.Status.AttachmentUID, Time: &metav1.Time{Time: w.Clock.Now()}, Operator: "jo", Reason: "it was scrapped",
				}
			})
			w.MustReconcile(r, "vol")
			if _, found := kubetest.Read(w.Host, user()); found != there {
				t.Errorf("the volume is left: %v", found)
			}
		})
	}
}

// TestClaimGoesThoughTheDPUVolumeWentFirst: a Volume that a restore brought back is deleted
// by hand; its claim goes too, once nothing holds it, and not before the Volume.
func TestClaimGoesThoughTheDPUVolumeWentFirst(t *testing.T) {
	w, r := open(t)
	claim, volume := kubetest.WriterClaim("vol", "dpu-a", "a-vol", 4), mirror()
	w.DPU.Add(volume)
	volume, _ = kubetest.Read(w.DPU, volume)
	claim.OwnerReferences = []metav1.OwnerReference{{Kind: "Volume", Name: volume.Name, UID: volume.UID}}
	w.DPU.Add(claim)
	step := func(what string, gone bool, again time.Duration) {
		t.Helper()
		result, err := r.Reconcile(t.Context(), kube.RequestFor(kubetest.HostNamespace, "vol"))
		if err != nil {
			t.Fatal(err)
		}
		if _, found := kubetest.Read(w.DPU, claim); found == gone || result.RequeueAfter != again {
			t.Errorf("%s: the claim is there: %v; looked at again after %s", what, found, result.RequeueAfter)
		}
	}
	step("its Volume is there", false, 0)
	w.DPU.Remove(mirror())
	step("it is held", false, claimAgain)
	kubetest.Change(w.DPU, claim, func(c *moorv1alpha1.WriterClaim) {
		c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 4}
	})
	step("it is free", true, 0)
	step("it is gone", true, 0)
}
