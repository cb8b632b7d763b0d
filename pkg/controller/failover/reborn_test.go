package failover

import (
	"strings"
	"testing"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// reborn takes the VolumeAttachment of host a away by force, and makes another by its name.
func (s *fixture) reborn() {
	s.t.Helper()
	old, _ := kubetest.Read(s.DPU, kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
	s.stripped()
	anew := kubetest.VolumeAttachment("a-vol", "vol", "dpu-a")
	anew.Annotations = old.Annotations
	anew.Finalizers = []string{storagev1alpha1.FinalizerVolumeAttachment, storagev1alpha1.FinalizerWriterClaim}
	anew.Spec.VolumeAttachmentRef = old.Spec.VolumeAttachmentRef
	s.DPU.Add(anew)
}

func (s *fixture) stripped() {
	s.t.Helper()
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = nil })
	s.DPU.Remove(kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
}

// TestRebornIsNoReceipt: that an attachment shows nothing and has no finalizer of its DPU
// proves nothing if it was made in the place of the one that the DPU showed.
func TestRebornIsNoReceipt(t *testing.T) {
	for name, take := range map[string]func(*fixture){"made anew": (*fixture).reborn, "gone": (*fixture).stripped} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			take(s)
			s.live(40, "b", "dpu-b")
			s.notReady("a")
			for range 3 {
				s.mustPass()
				s.live(5, "b", "dpu-b")
			}
			s.wantPhase(fencing)
			s.keeps("by what is not on an attachment")
			if _, message := s.says(); !strings.Contains(message, "WriterClaim vol") || !strings.Contains(message, "proves nothing") {
				t.Errorf("says %q", message)
			}
			s.operator(4)
			s.mustPass()
			s.wantPhase(freed)
		})
	}
}

// TestRebornIsRevokedByTheStorage: what the storage says is about DPU and volume.
func TestRebornIsRevokedByTheStorage(t *testing.T) {
	s := newFixture(t)
	s.vouch()
	s.reborn()
	s.live(40, "b", "dpu-b")
	s.notReady("a")
	s.mustPass()
	s.noticed()
	s.mustPass()
	s.revoked()
	s.mustPass()
	s.wantPhase(freed)
}

// TestLostClaimReleasesNothing: a claim that does not say who may write does not mean that no DPU can.
func TestLostClaimReleasesNothing(t *testing.T) {
	for name, lose := range map[string]func(*fixture){
		"deleted": func(s *fixture) {
			kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Finalizers = nil })
			s.DPU.Remove(s.claim())
		},
		"made anew": func(s *fixture) {
			kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status = nil })
		},
		"restored with its attachment": func(s *fixture) {
			kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) {
				c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 3}
			})
			s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Spec.Epoch, m.Status.DPU.Epoch = 3, 3 })
			kubetest.Change(s.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) {
				v.Status.LastGrant = &storagev1alpha1.LastGrant{Epoch: 4, DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: kubetest.AttachmentUID("a-vol")}
			})
		},
		"lost": func(s *fixture) {
			kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) {
				c.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimLost, Holder: "dpu-z", Epoch: 4}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			lose(s)
			s.seenDead("a")
			for range 3 {
				s.mustPass()
				s.live(5, "dpu-a", "b", "dpu-b")
			}
			if s.tainted("a") || !s.hasPod("app") {
				t.Error("the pod was released")
			}
			if _, message := s.says(); !strings.Contains(message, "does not know who may write") {
				t.Errorf("says %q", message)
			}
		})
	}
}
