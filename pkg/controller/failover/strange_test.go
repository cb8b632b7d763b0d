package failover

import (
	"slices"
	"testing"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// replaced is a fixture whose host a has DPU dpu-c now, while dpu-a holds the volume.
// What live calls dpu-a is the DPU that the host has.
func replaced(t *testing.T) *fixture {
	s := newFixture(t)
	s.host("a", func(n *moorv1alpha1.DPUStorageNode) { n.Spec.DPUName = "dpu-c" })
	s.live(10, "a", "dpu-a", "b", "dpu-b")
	s.f.o.Observer.HearDPU("dpu-a", 1, time.Time{})
	return s
}

// with lets seconds pass in which the old DPU beats too.
func (s *fixture) with(seconds int, who ...string) {
	s.t.Helper()
	for i := range seconds / 5 {
		s.f.o.Observer.HearDPU("dpu-a", s.Clock.Now().Unix()+int64(i), time.Time{})
		s.live(5, who...)
	}
}

// keeps checks that nothing of a dead host was released.
func (s *fixture) keeps(when string) {
	s.t.Helper()
	if s.tainted("a") || !s.hasPod("app") || len(s.claim().Status.Receipts) != 0 {
		s.t.Fatalf("%s: tainted %v, pod %v, the claim is %+v", when, s.tainted("a"), s.hasPod("app"), s.claim().Status)
	}
}

// TestReplacedDPU: a volume that a DPU holds which the host does not have any more is
// fenced from that DPU, and its pods stay until its own epoch is over.
func TestReplacedDPU(t *testing.T) {
	s := replaced(t)
	s.seenDead("a")
	s.mustPass()
	s.mustPass()
	s.wantPhase(fencing)
	s.keeps("without a receipt")
	s.later()
	s.wantSays("True/Fencing", "DPU dpu-a can no longer write under epoch 4", "spec.operatorReceipt into WriterClaim vol")
	m, _ := kubetest.Read(s.DPU, kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
	if m.DeletionTimestamp.IsZero() {
		t.Error("the DPU that holds it is not asked to withdraw")
	}
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
	if !s.tainted("a") || s.hasPod("app") {
		t.Error("not released")
	}
	if r := s.claim().Status.Receipts; r[0].Kind != moorv1alpha1.ReceiptDPU || r[0].Holder != "dpu-a" {
		t.Errorf("receipts %+v", r)
	}
}

// TestReplacedDPUByStorage: the silence that counts is that of the DPU that holds the
// volume, alone and so for the whole timeout; and its holds go with the receipt.
func TestReplacedDPUByStorage(t *testing.T) {
	s := replaced(t)
	s.vouch()
	s.with(40, "b", "dpu-b")
	s.notReady("a")
	s.mustPass()
	s.noticed()
	s.mustPass()
	s.live(15, "b", "dpu-b")
	s.mustPass()
	if sv, found := s.sv(); !found || !sv.DeletionTimestamp.IsZero() {
		t.Fatal("the storage is asked to revoke a DPU that was heard a while ago")
	}
	s.keeps("heard a while ago")
	s.live(10, "b", "dpu-b")
	s.mustPass()
	s.revoked()
	s.mustPass()
	s.wantPhase(freed)
	if epoch := s.claim().Status.RevokedEpoch("dpu-a"); epoch != 4 || s.hasPod("app") {
		t.Errorf("revoked epoch %d, pod %v", epoch, s.hasPod("app"))
	}
	s.letsGo(true)
}

// TestReplacedDPUOfAHostThatIsWell: the condition says for whom is waited and what to do;
// an operator's word counts once the DPU is silent, however well the host is.
func TestReplacedDPUOfAHostThatIsWell(t *testing.T) {
	s := replaced(t)
	everyone := []string{"a", "dpu-a", "b", "dpu-b"}
	s.with(30, everyone...)
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/Held", "volume vol: DPU dpu-a holds the right to write for this host (epoch 4), and the host's DPU is dpu-c now", "spec.dpuName again", "WriterClaim vol")
	before := s.Writes()
	s.mustPass()
	if n := s.Writes() - before; n != 0 {
		t.Errorf("%d writes while it waits", n)
	}
	s.operator(4)
	s.mustPass()
	s.wantPhase(granted)
	s.live(30, everyone...)
	s.mustPass()
	s.wantPhase(freed)
	if s.tainted("a") || !s.hasPod("app") {
		t.Error("released the pods of a living host")
	}
	s.mustPass()
	s.wantSays("False/Recovered")
}

// TestReplacedDPUByLease: the lease that counts is that of the DPU that holds the volume.
func TestReplacedDPUByLease(t *testing.T) {
	for name, tc := range map[string]struct {
		of   string
		want moorv1alpha1.ClaimPhase
	}{"of the holder": {"dpu-a", freed}, "of the host's": {"dpu-c", fencing}} {
		t.Run(name, func(t *testing.T) {
			s := replaced(t)
			n := kubetest.DPUStorageNode(tc.of)
			n.Spec.DPUName = ""
			host, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode("a"))
			n.Status.DPU = leased(host.Status.DPU.Sequence, leaseDuration.Milliseconds(), leaseGrace.Milliseconds())
			s.DPU.Add(n)
			s.f.leases.heard(n)
			s.renewed = s.Clock.Now()
			s.live(100, "b", "dpu-b")
			s.notReady("a")
			s.mustPass()
			s.wantPhase(tc.want)
		})
	}
}

// TestALivingHostIsNotEvictedForAnother: that its own DPU has taken the volumes from it
// says nothing of one that another DPU holds.
func TestALivingHostIsNotEvictedForAnother(t *testing.T) {
	s := newLeaseStage(t)
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.Holder = "dpu-z" })
	s.addVolume("more", "a")
	s.live(40, "a", "b", "dpu-b")
	s.mustPass()
	s.wantPhase(granted)
	if c := s.claims["more"]; c.Phase != fencing {
		t.Errorf("what its own DPU holds is %s: the test shows nothing", c.Phase)
	}
}

// TestHeldForAnotherAttachment: what the host's DPU holds under another name is no more
// free than what it holds under this one.
func TestHeldForAnotherAttachment(t *testing.T) {
	s := newFixture(t)
	s.addVolume("more", "a")
	s.addPod("with", "a", "more")
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.Attachment = "by-hand" })
	s.seenDead("a")
	s.mustPass()
	kubetest.Change(s.DPU, kubetest.VolumeAttachment("a-more", "more", "dpu-a"), func(m *storagev1alpha1.VolumeAttachment) {
		m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
	})
	s.mustPass()
	if s.hasPod("with") || !s.hasPod("app") {
		t.Errorf("the pod of the volume that is free: %v; of the other: %v", s.hasPod("with"), s.hasPod("app"))
	}
	s.wantSays("True/Released", "DPU dpu-a holds the right to write for attachment by-hand")
}

// TestWakesTheHostOfTheAttachment: what becomes of a volume wakes the host that it is
// attached to, whatever DPU holds it.
func TestWakesTheHostOfTheAttachment(t *testing.T) {
	s := replaced(t)
	s.operator(4)
	m, _ := kubetest.Read(s.DPU, kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
	m.Status.DPU.RetiredEpoch = 4
	sv, _ := s.sv()
	s.DPU.Remove(sv)
	sv, _ = s.sv()
	host := kube.RequestFor("", "a")
	for name, got := range map[string]bool{
		"claim":  slices.Contains(s.f.ofClaim(t.Context(), s.claim()), host),
		"mirror": slices.Contains(s.f.ofMirror(t.Context(), m), host),
		"vendor": slices.Contains(s.f.ofRevoked(t.Context(), sv), host),
	} {
		if !got {
			t.Errorf("a change of the %s wakes not the host", name)
		}
	}
}
