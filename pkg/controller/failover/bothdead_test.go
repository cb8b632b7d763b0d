package failover

import (
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// bothDead lets host and DPU fall silent.
func bothDead(t *testing.T) *fixture {
	s := newFixture(t)
	s.live(40, "b", "dpu-b")
	s.notReady("a")
	s.mustPass()
	s.wantPhase(fencing)
	return s
}

// TestBothDeadSoon: three witnesses that are silent are believed before the
// control plane calls the host NotReady, and the pass that finds it out comes
// by itself.
func TestBothDeadSoon(t *testing.T) {
	s := newFixture(t)
	if after := s.looksAgain(); after != 0 {
		t.Fatalf("looks again after %s: what changes wakes it", after)
	}
	woken := s.woken()
	s.live(10, "b", "dpu-b")
	if s.f.o.Observer.Review(); woken["a"] != 0 {
		t.Fatalf("woken by silence of 10 s: %v", woken)
	}
	s.Step(4 * time.Second)
	s.f.o.Observer.SelfHeartbeat(nodehealth.HostCluster)
	s.f.o.Observer.SelfHeartbeat(nodehealth.DPUCluster)
	if s.f.o.Observer.Review(); woken["a"] == 0 {
		t.Fatalf("not woken by silence of 14 s: %v", woken)
	}
	s.mustPass()
	s.wantPhase(fencing)
	s.wantSays("True/Fencing", "BothDead", "kubelet and DPU are all silent")
	s.vouch()
	s.noticed()
	s.mustPass()
	s.revoked()
	s.mustPass()
	s.wantPhase(freed)
}

// TestDeafInOneCluster: a dead DPU makes no dead host while the host cluster
// does not answer, nor a dead host a dead DPU while that one does not.
func TestDeafInOneCluster(t *testing.T) {
	for _, deaf := range []nodehealth.Cluster{nodehealth.HostCluster, nodehealth.DPUCluster} {
		s := newFixture(t)
		for range 20 {
			s.Step(2 * time.Second)
			s.f.o.Observer.SelfHeartbeat(1 - deaf)
			s.mustPass()
		}
		s.wantPhase(granted)
	}
}

func TestBothDeadByStorage(t *testing.T) {
	s := bothDead(t)
	s.later()
	s.wantSays("True/Fencing", "the DPU is silent")
	s.vouch()
	s.mustPass()
	if sv, found := s.sv(); !found || !sv.DeletionTimestamp.IsZero() {
		t.Error("revoked before snap-controller has noticed")
	}
	s.noticed()
	s.mustPass()
	s.mustPass()
	s.wantPhase(fencing)
	s.wantSays("True/Fencing", "vendor is asked to revoke")
	s.revoked()
	s.mustPass()
	s.wantPhase(freed)
	if r := s.claim().Status.Receipts; r[0].Kind != moorv1alpha1.ReceiptStorage {
		t.Errorf("receipts %+v", r)
	}
	if epoch := s.claim().Status.RevokedEpoch("dpu-a"); epoch != 4 {
		t.Errorf("that the DPU did not confirm is not on record: epoch %d", epoch)
	}
	if !s.tainted("a") || s.hasPod("app") {
		t.Error("not released")
	}
	s.letsGo(true)
}

// letsGo: the attachment ends once the host cluster wants it no more, and not
// before.
func (s *fixture) letsGo(without bool) {
	s.t.Helper()
	s.mustPass()
	m := &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject("a-vol")}
	if got, found := kubetest.Read(s.DPU, m); !found || !strings.Contains(strings.Join(got.Finalizers, " "), storagev1alpha1.FinalizerWriterClaim) {
		s.t.Fatal("the attachment went before its owner: it would be made anew")
	}
	s.Host.Remove(kubetest.DPUVolumeAttachment("vol", "a"))
	s.mustPass()
	got, _ := kubetest.Read(s.DPU, m)
	if left := strings.Join(got.Finalizers, " "); without && left != storagev1alpha1.FinalizerVolumeAttachment {
		s.t.Errorf("finalizers %s are left", left)
	}
}

// TestAbsenceIsNoRevocation: the request of the vendor is gone, and no attacher has said that
// it was done: its finalizer was taken off by force, or the attacher's word is of an
// attachment that had the name before.
func TestAbsenceIsNoRevocation(t *testing.T) {
	for name, word := range map[string]*storagev1alpha1.StorageRevocation{
		"nothing is said": nil, "of another attachment": {AttachmentUID: "before", NodeID: "node-a"},
	} {
		t.Run(name, func(t *testing.T) {
			s := bothDead(t)
			s.vouch()
			s.noticed()
			s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Status.Revocation = word })
			s.mustPass()
			s.requestStripped()
			s.mustPass()
			s.wantPhase(fencing)
			s.later()
			s.wantSays("True/Fencing", "is gone without the word of the attacher of CSIDriver vendor", "spec.operatorReceipt")
		})
	}
}

func TestStorageDoesNotVouch(t *testing.T) {
	s := bothDead(t)
	s.vouch()
	d, _ := kubetest.Read(s.DPU, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "vendor"}})
	d.Annotations = nil
	if err := s.DPU.Direct.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	s.noticed()
	s.mustPass()
	if sv, found := s.sv(); !found || !sv.DeletionTimestamp.IsZero() {
		t.Error("the SVVolumeAttachment was deleted")
	}
	s.wantPhase(fencing)
	s.later()
	s.wantSays("True/Fencing", storagev1alpha1.AnnotationRevokes)
}

func TestBothDeadByOperator(t *testing.T) {
	s := bothDead(t)
	for _, epoch := range []int64{3, 5} {
		s.operator(epoch)
		s.mustPass()
		s.wantPhase(fencing)
	}
	s.operator(4)
	s.mustPass()
	s.wantPhase(freed)
	r := s.claim().Status.Receipts
	if r[0].Kind != moorv1alpha1.ReceiptOperator || !strings.Contains(r[0].Message, "jo") || s.hasPod("app") {
		t.Errorf("receipts %+v, pod %v", r, s.hasPod("app"))
	}
	s.letsGo(true)
}

func (s *fixture) operator(epoch int64) {
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) {
		now := metav1.NewTime(s.Clock.Now())
		c.Spec.OperatorReceipt = &moorv1alpha1.OperatorReceipt{
			Epoch: epoch, Holder: c.Status.Holder, AttachmentUID: c.Status.AttachmentUID, Time: &now, Operator: "jo", Reason: "pulled the plug",
		}
	})
}

// TestOperatorBegins: for a silent DPU whose host lives, a person begins it;
// the pods of a living host stay.
func TestOperatorBegins(t *testing.T) {
	s := newFixture(t)
	s.operator(4)
	s.mustPass()
	s.wantPhase(granted)
	s.live(40, "a", "b")
	s.mustPass()
	s.wantPhase(freed)
	if s.tainted("a") || !s.hasPod("app") {
		t.Error("released the pods of a living host")
	}
}
