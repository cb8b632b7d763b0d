package attachment_test

import (
	"testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestTheStorageStaysClosed: a DPU from which the volume was taken while it was
// silent may still show it. The vendor is not asked for it again before the DPU
// itself has said that it does not.
func TestTheStorageStaysClosed(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.CSIDriver("a", nil), &moorv1alpha1.WriterClaim{
		ObjectMeta: kubetest.DPUObject("v"), Spec: moorv1alpha1.WriterClaimSpec{VolumeName: "v"},
		Status: &moorv1alpha1.WriterClaimStatus{
			Phase: moorv1alpha1.ClaimGranted, Holder: "d2", Epoch: 5,
			Revoked: []moorv1alpha1.Revoked{{DPU: "d1", Epoch: 4}, {DPU: "d3", Epoch: 9}},
		},
	})
	retire := func(epoch int64) {
		t.Helper()
		m.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.RetiredEpoch = epoch })
		m.settle()
	}
	for _, epoch := range []int64{0, 3} {
		retire(epoch)
		if _, asked := m.asked(); asked {
			t.Fatalf("the storage was opened to a DPU that has confirmed epoch %d of 4", epoch)
		}
	}
	retire(4)
	if _, asked := m.asked(); !asked {
		t.Error("the DPU has cleared up, and the vendor is not asked")
	}
}

// TestTheStorageStaysClosedIfTheClaimWasLost: with the claim went who was locked out, so
// every DPU has to clear up first; and before snap-host-controller has noticed that,
// no DPU is let in.
func TestTheStorageStaysClosedIfTheClaimWasLost(t *testing.T) {
	m := newFixture(t)
	other := kubetest.VolumeAttachment("y", "v", "d2")
	other.Spec.Epoch = 5
	m.Add(kubetest.CSIDriver("a", nil), other)
	closed := func(why string) {
		t.Helper()
		m.settle()
		if _, asked := m.asked(); asked {
			t.Fatalf("the storage was opened: %s", why)
		}
	}
	closed("there is no claim, and another attachment has an epoch")
	m.Add(&moorv1alpha1.WriterClaim{ObjectMeta: kubetest.DPUObject("v"), Spec: moorv1alpha1.WriterClaimSpec{VolumeName: "v"}})
	closed("the claim was made anew, and knows less than another attachment")
	kubetest.Change(m.Cluster, &moorv1alpha1.WriterClaim{ObjectMeta: kubetest.DPUObject("v")}, func(c *moorv1alpha1.WriterClaim) {
		c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "d2", Epoch: 6, LostEpoch: 5}
	})
	closed("the claim was lost, and this DPU has not cleared up since")
	m.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.RetiredEpoch = 5 })
	m.settle()
	if _, asked := m.asked(); !asked {
		t.Error("the DPU has cleared up, and the vendor is not asked")
	}
}

// TestTheStorageStaysClosedWithoutAClaim: a claim of a single writer was there before its
// attachments. If it is gone, who may not be let in has gone with it; and one that is made
// anew says after which epoch, before anything else is noted.
func TestTheStorageStaysClosedWithoutAClaim(t *testing.T) {
	m := newFixture(t)
	m.Add(kubetest.CSIDriver("a", nil))
	m.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerWriterClaim)
	})
	closed := func(why string) {
		t.Helper()
		m.settle()
		if _, asked := m.asked(); asked {
			t.Fatalf("the storage was opened: %s", why)
		}
	}
	closed("there is no claim")
	anew := &moorv1alpha1.WriterClaim{ObjectMeta: kubetest.DPUObject("v"), Spec: moorv1alpha1.WriterClaimSpec{VolumeName: "v", AfterEpoch: 5}}
	m.Add(anew)
	closed("the claim was made anew, and has not noted who may write")
	kubetest.Change(m.Cluster, anew, func(c *moorv1alpha1.WriterClaim) {
		c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 5, LostEpoch: 5}
	})
	closed("this DPU has not cleared up")
	m.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.RetiredEpoch = 5 })
	m.settle()
	if _, asked := m.asked(); !asked {
		t.Error("the DPU has cleared up, and the vendor is not asked")
	}
}

// TestTheStorageStaysClosedForAnother: a DPU that holds the claim for a VolumeAttachment which
// is gone may show the volume still, and a fence that saw the storage close may free the claim
// next. The vendor is not asked to let it in for another VolumeAttachment before.
func TestTheStorageStaysClosedForAnother(t *testing.T) {
	for name, tc := range map[string]struct {
		claim moorv1alpha1.WriterClaimStatus
		opens bool
	}{
		"of the name that is gone":        {moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFencing, Holder: "d1", Attachment: "x", AttachmentUID: "before", Epoch: 1}, false},
		"of the name, and granted":        {moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "d1", Attachment: "x", AttachmentUID: "before", Epoch: 1}, false},
		"of another name":                 {moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFencing, Holder: "d1", Attachment: "y", AttachmentUID: "y-1", Epoch: 1}, false},
		"it is this very one":             {moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFencing, Holder: "d1", Attachment: "x", AttachmentUID: "VolumeAttachment-x-1", Epoch: 1}, true},
		"it is another DPU's":             {moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "d2", Attachment: "y", AttachmentUID: "y-1", Epoch: 1}, true},
		"it is free":                      {moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 1}, true},
		"it was granted before UIDs were": {moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimGranted, Holder: "d1", Attachment: "x", Epoch: 1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := newFixture(t)
			m.Add(kubetest.CSIDriver("a", nil), &moorv1alpha1.WriterClaim{
				ObjectMeta: kubetest.DPUObject("v"), Spec: moorv1alpha1.WriterClaimSpec{VolumeName: "v"}, Status: &tc.claim,
			})
			m.settle()
			if _, asked := m.asked(); asked != tc.opens {
				t.Fatalf("the vendor is asked: %v, want %v (UID %s)", asked, tc.opens, m.x().UID)
			}
			if tc.opens {
				return
			}
			m.wantMessage("DPU d1 holds the right to write it for another VolumeAttachment")
			// The claim is freed by the storage's word: the DPU has to clear up first.
			kubetest.Change(m.Cluster, &moorv1alpha1.WriterClaim{ObjectMeta: kubetest.DPUObject("v")}, func(c *moorv1alpha1.WriterClaim) {
				c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 1, Revoked: []moorv1alpha1.Revoked{{DPU: "d1", Epoch: 1}}}
			})
			m.settle()
			if _, asked := m.asked(); asked {
				t.Fatal("the storage was opened to a DPU that has not cleared up")
			}
			m.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.RetiredEpoch = 1 })
			m.settle()
			if _, asked := m.asked(); !asked {
				t.Error("the DPU has cleared up, and the vendor is not asked")
			}
		})
	}
}
