package detach

import (
	"testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// TestSurrender: a DPU that has retired the epoch under which the claim is granted to it, of an
// attachment that stands, frees it. One that shows the volume, or has retired less, does not.
func TestSurrender(t *testing.T) {
	for name, tc := range map[string]struct {
		said storagev1alpha1.VolumeAttachmentDPU
		free bool
	}{
		"retired":          {storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}, true},
		"retired more":     {storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 9}, true},
		"retired less":     {storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 3}, false},
		"shown after that": {storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4, Attached: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			kubetest.Change(s.DPU, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU, a.Spec.Epoch = tc.said, 4 })
			s.mustPass()
			if !tc.free {
				s.held(name)
				return
			}
			if c := s.claim().Status; c.Phase != moorv1alpha1.ClaimFree || c.Epoch != 4 || len(c.Receipts) != 1 || c.Receipts[0].Kind != moorv1alpha1.ReceiptDPU || len(c.Revoked) != 0 {
				t.Errorf("the claim is %+v", c)
			}
			if a, found := kubetest.Read(s.DPU, s.attachment()); !found || !a.DeletionTimestamp.IsZero() {
				t.Error("the attachment goes")
			}
		})
	}
}

// TestSurrenderAsTheServerHasIt: a cache that is behind frees nothing.
func TestSurrenderAsTheServerHasIt(t *testing.T) {
	s := newFixture(t)
	kubetest.Change(s.DPU, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) {
		a.Status.DPU, a.Spec.Epoch = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}, 4
	})
	old, _ := kubetest.Read(s.DPU, s.attachment())
	kubetest.Change(s.DPU, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.Attached = true })
	s.CacheShows(old)
	s.mustPass()
	s.held("as the API server has it, it is shown")
}
