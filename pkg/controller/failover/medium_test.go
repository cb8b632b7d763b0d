package failover

import (
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// takesEpochs lets the vendor know under which epoch the device writes, and have said
// that nothing before epoch 4 is accepted.
func (s *fixture) takesEpochs() {
	s.t.Helper()
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) {
		epoch := int64(4)
		m.Status.DPU.OpenEpoch = &epoch
	})
	s.fencedBelow(4)
}

// fencedBelow is what the vendor's attacher writes when the storage has answered.
func (s *fixture) fencedBelow(epoch int64) {
	s.t.Helper()
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) {
		m.Status.Fence = &storagev1alpha1.StorageFence{AttachmentUID: m.UID, Epoch: epoch}
	})
}

// shutOut is the epoch below which the storage is asked to accept nothing.
func (s *fixture) shutOut() int64 {
	s.t.Helper()
	m, found := kubetest.Read(s.DPU, kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
	if !found {
		s.t.Fatal("the VolumeAttachment is gone")
	}
	return m.Spec.FenceEpoch
}

// TestMedium: the storage is asked once the claim is in Fencing, and its word frees the
// claim at once: the DPU is heard, says nothing, and shows the device on.
func TestMedium(t *testing.T) {
	s := newFixture(t)
	s.takesEpochs()
	s.AfterWrite(func(verb string, o client.Object) {
		s.censor(verb, o)
		m, ok := o.(*storagev1alpha1.VolumeAttachment)
		if !ok || m.Name != "a-vol" || m.Spec.FenceEpoch == 0 {
			return
		}
		if c := s.claim(); c.Status.Phase == granted {
			t.Errorf("the holder is shut out while it has the right to write: %+v", c.Status)
		}
	})
	s.mustPass()
	if s.shutOut() != 0 {
		t.Fatal("the storage is asked to shut a living holder out")
	}
	s.seenDead("a")
	s.mustPass()
	s.wantPhase(fencing)
	if got := s.shutOut(); got != 5 {
		t.Fatalf("the storage is asked for epoch %d, want 5", got)
	}
	s.later()
	s.wantPhase(fencing) // the word about epoch 4 is of the grant
	s.wantSays("True/Fencing", "and the storage to accept nothing of this epoch")
	s.fencedBelow(5)
	s.mustPass()
	s.wantPhase(freed)
	c := s.claim().Status
	if r := c.Receipts; len(r) != 1 || r[0].Kind != moorv1alpha1.ReceiptMedium || r[0].Epoch != 4 {
		t.Errorf("receipts %+v", r)
	}
	if !slices.Contains(c.Revoked, moorv1alpha1.Revoked{DPU: "dpu-a", Epoch: 4}) {
		t.Errorf("the DPU may show the volume still, and has not to clear up: %+v", c.Revoked)
	}
	if s.hasPod("app") {
		t.Error("the pod was not released")
	}
}

// TestMediumOfASilentDPU: so it is when host and DPU are silent together; the vendor does
// not vouch that it revokes.
func TestMediumOfASilentDPU(t *testing.T) {
	s := newFixture(t)
	s.takesEpochs()
	s.notReady("a")
	s.live(40, "b", "dpu-b")
	s.mustPass()
	s.wantPhase(fencing)
	s.fencedBelow(5)
	s.mustPass()
	s.wantPhase(freed)
	if r := s.claim().Status.Receipts; len(r) != 1 || r[0].Kind != moorv1alpha1.ReceiptMedium {
		t.Errorf("receipts %+v", r)
	}
}

// TestMediumIsAskedBeforeTheEnd: the attachment is not deleted before the storage is
// asked: its vendor's attacher may let go of it then.
func TestMediumIsAskedBeforeTheEnd(t *testing.T) {
	s := newFixture(t)
	s.takesEpochs()
	s.AfterWrite(func(verb string, o client.Object) {
		s.censor(verb, o)
		m, found := kubetest.Read(s.DPU, kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
		if found && !m.DeletionTimestamp.IsZero() && m.Spec.FenceEpoch != 5 {
			t.Errorf("the attachment goes, and the storage is asked for epoch %d", m.Spec.FenceEpoch)
		}
	})
	s.seenDead("a")
	s.mustPass()
	if m, _ := kubetest.Read(s.DPU, kubetest.VolumeAttachment("a-vol", "vol", "dpu-a")); m.DeletionTimestamp.IsZero() {
		t.Fatal("the attachment stays")
	}
}

// TestMediumIsNotAsked of a storage that knows no epochs, and what it says of another
// attachment of the name is no receipt.
func TestMediumIsNotAsked(t *testing.T) {
	s := newFixture(t)
	s.seenDead("a")
	s.mustPass()
	s.wantPhase(fencing)
	if got := s.shutOut(); got != 0 {
		t.Errorf("a storage that knows no epochs is asked for epoch %d", got)
	}
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) {
		m.Status.Fence = &storagev1alpha1.StorageFence{AttachmentUID: "before", Epoch: 9}
	})
	s.mustPass()
	s.wantPhase(fencing)
}
