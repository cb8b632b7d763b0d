package fence

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/liveness"
	world "github.com/moor-storage/moor/pkg/controller/hostsync/hostsynctest"
)

const (
	granted = moorv1alpha1.ClaimGranted
	fencing = moorv1alpha1.ClaimFencing
	freed   = moorv1alpha1.ClaimFree
)

// TestHostDead is the whole story.
func TestHostDead(t *testing.T) {
	s := newStage(t)
	s.addPod("other", "a")
	s.addPod("elsewhere", "b", "vol")
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("none")
	s.seenDead("a")
	s.mustPass()
	s.wantPhase(fencing)
	s.wantSays("True/Fencing", "HostDead", "no answer", "waiting for proof that DPU dpu-a can no longer write under epoch 4")
	writes := s.Writes()
	for range 5 {
		s.live(10, "dpu-a", "b", "dpu-b")
		s.mustPass()
	}
	s.wantPhase(fencing)
	if s.Writes() != writes || s.tainted("a") || !s.hasPod("app") {
		t.Errorf("without a receipt: %d writes, tainted %v, pod %v", s.Writes()-writes, s.tainted("a"), s.hasPod("app"))
	}
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
	s.wantSays("True/Released")
	if r := s.claim().Status.Receipts; len(r) != 1 || r[0].Kind != moorv1alpha1.ReceiptDPU || r[0].Epoch != 4 || !r[0].Time.Time.Equal(s.clock.Now()) {
		t.Errorf("receipts %+v", r)
	}
	if !s.tainted("a") || s.hasPod("app") || !s.hasPod("other") || !s.hasPod("elsewhere") || s.tainted("b") {
		t.Error("released the wrong things, or not all")
	}
	s.core("a", func(n *corev1.Node) {
		if effect := n.Spec.Taints[0].Effect; effect != corev1.TaintEffectNoSchedule {
			t.Errorf("the taint's effect is %s: NoExecute has pods deleted by name, the new ones too", effect)
		}
	})
	want := "FailoverDetected FailoverDetected FailoverFencing FailoverHeld FailoverFenced OutOfService FailoverReleased FailoverReleased"
	if got := s.story(); got != want {
		t.Errorf("the story is %s\nwant %s", got, want)
	}
}

// TestNotBefore: what is no death, or no failover, begins nothing.
func TestNotBefore(t *testing.T) {
	for name, tc := range map[string]struct {
		play func(s *stage)
		says string
	}{
		"NotReady alone":             {func(s *stage) { s.notReady("a") }, "False/Held"},
		"host silent alone":          {func(s *stage) { s.live(40, "dpu-a", "b") }, "False/Held"},
		"cut off":                    {func(s *stage) { s.notReady("a"); s.live(40, "dpu-a", "b") }, "False/Held"},
		"DPU silent":                 {func(s *stage) { s.live(40, "a", "b") }, "False/Held"},
		"both silent, kubelet heard": {func(s *stage) { s.live(40, "kubelet-a", "b") }, "False/Held"},
		"three silent for too short": {func(s *stage) { s.live(10, "b", "dpu-b") }, "none"},
		"nothing heard":              {func(s *stage) { s.clock.SetTime(s.clock.Now().Add(time.Hour)) }, "none"},
		"seen dead, but beats":       {func(s *stage) { s.seenDead("a"); s.live(5, "b"); s.live(5, "a", "dpu-a") }, "False/Held"},
		"seen dead by a DPU that is silent": {func(s *stage) {
			s.live(40, "a", "b")
			s.seenDead("a")
		}, "none"},
		"after a restart": {func(s *stage) { s.live(40, "b"); s.notReady("a"); s.restart() }, "False/Held"},
		"failover off": {func(s *stage) {
			world.Change(s.World, s.Host, world.Volume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Spec.Replication.Failover = storagev1alpha1.FailoverOff })
			s.seenDead("a")
		}, "none"},
		"no replication": {func(s *stage) {
			world.Change(s.World, s.Host, world.Volume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Spec.Replication = nil })
			s.seenDead("a")
		}, "none"},
		"a replica": {func(s *stage) {
			world.Change(s.World, s.Host, world.Attachment("vol", "a"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Spec.Role = storagev1alpha1.RoleReplica })
			s.seenDead("a")
		}, "none"},
		"no budget": {func(s *stage) { s.f.Budget = Budget{}; s.seenDead("a") }, "False/Held"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			tc.play(s)
			for range 3 {
				s.mustPass()
			}
			s.wantPhase(granted)
			s.wantSays(tc.says)
			if s.tainted("a") || !s.hasPod("app") {
				t.Error("released")
			}
		})
	}
}

// bothDead lets host and DPU fall silent.
func bothDead(t *testing.T) *stage {
	s := newStage(t)
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
	s := newStage(t)
	result, err := s.f.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "a"}})
	if err != nil || result.RequeueAfter != liveness.DefaultSilence {
		t.Fatalf("looks again after %s, %v", result.RequeueAfter, err)
	}
	s.live(15, "b", "dpu-b")
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
	for _, deaf := range []liveness.Cluster{liveness.HostCluster, liveness.DPUCluster} {
		s := newStage(t)
		for range 20 {
			s.clock.SetTime(s.clock.Now().Add(2 * time.Second))
			s.f.Observer.Echo(1 - deaf)
			s.mustPass()
		}
		s.wantPhase(granted)
	}
}

func TestBothDeadByStorage(t *testing.T) {
	s := bothDead(t)
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
func (s *stage) letsGo(without bool) {
	s.t.Helper()
	s.mustPass()
	m := &storagev1alpha1.VolumeAttachment{ObjectMeta: world.Mirror("a-vol")}
	if got, found := world.Read(s.World, s.DPU, m); !found || !strings.Contains(strings.Join(got.Finalizers, " "), storagev1alpha1.FinalizerWriterClaim) {
		s.t.Fatal("the attachment went before its owner: it would be made anew")
	}
	world.Remove(s.World, s.Host, world.Attachment("vol", "a"))
	s.mustPass()
	got, _ := world.Read(s.World, s.DPU, m)
	if left := strings.Join(got.Finalizers, " "); without && left != storagev1alpha1.FinalizerVolumeAttachment {
		s.t.Errorf("finalizers %s are left", left)
	}
}

func TestStorageDoesNotVouch(t *testing.T) {
	s := bothDead(t)
	s.vouch()
	d, _ := world.Read(s.World, s.DPU, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "vendor"}})
	d.Annotations = nil
	if err := s.DPU.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	s.noticed()
	s.mustPass()
	if sv, found := s.sv(); !found || !sv.DeletionTimestamp.IsZero() {
		t.Error("the SVVolumeAttachment was deleted")
	}
	s.wantPhase(fencing)
	s.wantSays("True/Fencing", AnnotationRevokes)
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

func (s *stage) operator(epoch int64) {
	world.Change(s.World, s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) {
		c.Spec.OperatorReceipt = &moorv1alpha1.OperatorReceipt{Epoch: epoch, Operator: "jo", Reason: "pulled the plug"}
	})
}

// TestOperatorBegins: for a silent DPU whose host lives, a person begins it;
// the pods of a living host stay.
func TestOperatorBegins(t *testing.T) {
	s := newStage(t)
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

// TestOtherDriversVolumes: silence alone does not put a host out of service
// that has volumes which nobody has fenced.
func TestOtherDriversVolumes(t *testing.T) {
	s := bothDead(t)
	s.core("a", func(n *corev1.Node) {
		n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/" + driver + "^vol"}, {Name: "kubernetes.io/csi/other^x"}}
	})
	s.operator(4)
	s.mustPass()
	s.wantPhase(freed)
	if s.tainted("a") || !s.hasPod("app") {
		t.Error("put out of service")
	}
	s.wantSays("True/Released", "kubernetes.io/csi/other^x")
}

// TestPodOfTwoVolumes goes only when neither can be written any more.
func TestPodOfTwoVolumes(t *testing.T) {
	s := newStage(t)
	s.addVolume("two", "a")
	s.addPod("both", "a", "vol", "two")
	s.seenDead("a")
	s.mustPass()
	s.retire()
	s.mustPass()
	if !s.hasPod("both") || s.hasPod("app") || !s.tainted("a") {
		t.Error("the pod of two volumes went, or the other stayed")
	}
	s.wantSays("True/Fencing", "also uses a volume that is not free", "volume two")
	world.Change(s.World, s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: world.Mirror("a-two")}, func(m *storagev1alpha1.VolumeAttachment) {
		m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
	})
	s.mustPass()
	if s.hasPod("both") {
		t.Error("the pod of two volumes stays")
	}
}

// TestManyWriters: there is nothing to fence; the pods go if a DPU saw it.
func TestManyWriters(t *testing.T) {
	for _, certain := range []bool{true, false} {
		s := newStage(t)
		world.Change(s.World, s.Host, world.Volume("vol"), func(v *storagev1alpha1.DPUVolume) {
			v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		})
		if certain {
			s.seenDead("a")
		} else {
			s.live(40, "b", "dpu-b")
			s.notReady("a")
		}
		s.mustPass()
		s.mustPass()
		s.wantPhase(granted)
		if s.hasPod("app") == certain || s.tainted("a") != certain {
			t.Errorf("certain %v: pod %v, tainted %v", certain, s.hasPod("app"), s.tainted("a"))
		}
	}
}

// back lets host a come back.
func (s *stage) back() {
	s.t.Helper()
	s.host("a", func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.Host = &moorv1alpha1.HostSight{Alive: true} })
	s.core("a", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue })
	s.live(10, "a", "dpu-a", "b", "dpu-b")
}

// TestReturnInTheMiddle: what was begun is brought to an end.
func TestReturnInTheMiddle(t *testing.T) {
	s := newStage(t)
	s.seenDead("a")
	s.mustPass()
	s.back()
	s.mustPass()
	s.wantPhase(fencing)
	s.wantSays("True/Fencing", "still being fenced")
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
	s.mustPass()
	if s.hasPod("app") {
		t.Error("the pod that lost its volume stays")
	}
	if s.tainted("a") {
		t.Error("a healthy host was put out of service")
	}
	s.mustPass()
	s.wantSays("False/Recovered")
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Finalizers = m.Finalizers[2:] }) // DPU and snap-controller are done
	s.mustPass()
	if _, found := world.Read(s.World, s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: world.Mirror("a-vol")}); found {
		t.Error("the attachment that was taken is not made anew")
	}
}

func TestReturn(t *testing.T) {
	s := newStage(t)
	s.seenDead("a")
	s.mustPass()
	s.retire()
	s.mustPass()
	s.back()
	world.Remove(s.World, s.Host, world.Attachment("vol", "a"))
	s.mustPass()
	s.wantSays("True/Returning", "still being detached")
	if !s.tainted("a") {
		t.Error("back in service before all is detached")
	}
	world.Change(s.World, s.Host, world.Attachment("vol", "a"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = nil })
	s.mustPass()
	s.wantSays("False/Recovered")
	if s.tainted("a") {
		t.Error("not back in service")
	}
	writes := s.Writes()
	s.mustPass()
	if s.Writes() != writes {
		t.Error("writes though all is well")
	}
}

// TestPersonsTaint: an out-of-service taint that a person put stays.
func TestPersonsTaint(t *testing.T) {
	s := newStage(t)
	s.core("a", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "jo", Effect: corev1.TaintEffectNoExecute}}
	})
	s.seenDead("a")
	s.mustPass()
	s.retire()
	s.mustPass()
	world.Change(s.World, s.Host, world.Attachment("vol", "a"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = nil })
	world.Remove(s.World, s.Host, world.Attachment("vol", "a"))
	s.back()
	s.mustPass()
	n, _ := world.Read(s.World, s.Host, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Value != "jo" {
		t.Errorf("taints %+v", n.Spec.Taints)
	}
}

// TestFailoverCrash loses each write in turn, with and without effect, and goes on
// with a new instance that remembers nothing.
func TestFailoverCrash(t *testing.T) {
	for _, late := range []bool{false, true} {
		lost := 0
		for k := 1; k <= 40; k++ {
			s := newStage(t)
			s.vouch()
			s.live(30, "b")
			s.notReady("a")
			s.LoseWrite(k, late)
			if !s.toTheEnd(t) {
				break
			}
			lost++
		}
		if lost < 7 {
			t.Errorf("late %v: only %d writes were lost", late, lost)
		}
	}
}

// toTheEnd plays everybody until the failover has ended, and starts fence
// anew after each error.
func (s *stage) toTheEnd(t *testing.T) (lost bool) {
	t.Helper()
	for range 15 {
		if err := s.pass("a"); err != nil {
			if !errors.Is(err, world.ErrLost) && !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
			lost = true
			s.restart()
			s.live(35, "b")
			continue
		}
		if m, found := world.Read(s.World, s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: world.Mirror("a-vol")}); found && !m.DeletionTimestamp.IsZero() {
			s.noticed()
		}
		if sv, found := s.sv(); found && !sv.DeletionTimestamp.IsZero() {
			s.revoked()
		}
		if !s.hasPod("app") {
			world.Remove(s.World, s.Host, world.Attachment("vol", "a"))
			if m, found := world.Read(s.World, s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: world.Mirror("a-vol")}); !found || len(m.Finalizers) == 1 {
				break
			}
		}
	}
	s.wantPhase(freed)
	if r := s.claim().Status.Receipts; len(r) != 1 || s.hasPod("app") || !s.tainted("a") {
		t.Errorf("receipts %+v, pod %v, tainted %v", r, s.hasPod("app"), s.tainted("a"))
	}
	return lost
}

// TestTwoLeaders: an old leader with an old reading of the claim writes
// nothing.
func TestTwoLeaders(t *testing.T) {
	s := newStage(t)
	s.seenDead("a")
	s.mustPass()
	stale := s.claim()
	receipt := moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptDPU, Holder: "dpu-a", Epoch: 4}
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
	world.Change(s.World, s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { // hostsync grants to another
		c.Status.Phase, c.Status.Holder, c.Status.Attachment, c.Status.Epoch = granted, "dpu-b", "b-vol", 5
	})
	if err := freeClaim(t.Context(), s.Clusters.DPU, s.clock, stale, receipt); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	for range 3 {
		s.mustPass()
	}
	if c := s.claim().Status; c.Phase != granted || c.Holder != "dpu-b" || c.Epoch != 5 {
		t.Errorf("the claim of the new holder is %+v", c)
	}
}

// TestOldCacheBeginsNothing: the claim is read live before it is written.
func TestOldCacheBeginsNothing(t *testing.T) {
	s := newStage(t)
	s.CacheShows(s.claim())
	world.Change(s.World, s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) {
		c.Status.Holder, c.Status.Attachment, c.Status.Epoch = "dpu-b", "b-vol", 5
	})
	s.seenDead("a")
	s.mustPass()
	if c := s.claim().Status; c.Phase != granted || c.Holder != "dpu-b" {
		t.Errorf("the claim is %+v", c)
	}
}

// TestStorm: with too many at once nothing begins, and it is said.
func TestStorm(t *testing.T) {
	s := newStage(t)
	for _, name := range []string{"c", "d"} {
		s.addHost(name)
	}
	s.live(10, "a", "dpu-a", "b", "dpu-b", "c", "dpu-c", "d", "dpu-d")
	for _, name := range []string{"a", "c", "d"} {
		s.seenDead(name)
	}
	s.live(5, "dpu-a", "b", "dpu-b", "dpu-c", "dpu-d")
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/Held", "ControlPlaneSick", "3 of 4 hosts look dead at once", "HostDead")
	s.core("d", func(n *corev1.Node) { n.Spec.Unschedulable = true }) // its death is known
	s.mustPass()
	s.wantPhase(fencing)
}

func TestBudgetIsOnRecord(t *testing.T) {
	s := newStage(t)
	s.f.Budget = Budget{PerMinute: 5, PerZone: 1}
	s.host("b", func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.Conditions = []metav1.Condition{{Type: ConditionFailover, Status: metav1.ConditionTrue, Reason: ReasonFencing, LastTransitionTime: metav1.NewTime(s.clock.Now())}}
	})
	s.seenDead("a")
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/Held", "in zone \"z\" is spent")
	s.live(60, "dpu-a", "b", "dpu-b")
	s.mustPass()
	s.wantPhase(fencing)
}

// TestIllegal: the censor that watches all these tests knows what is illegal.
func TestIllegal(t *testing.T) {
	held := moorv1alpha1.WriterClaimStatus{Phase: fencing, Holder: "dpu-a", Attachment: "a-vol", Epoch: 4}
	receipt := func(kind moorv1alpha1.ReceiptKind, epoch int64) moorv1alpha1.WriterClaimStatus {
		return moorv1alpha1.WriterClaimStatus{Phase: freed, Epoch: 4, Receipts: []moorv1alpha1.Receipt{{Kind: kind, Holder: "dpu-a", Epoch: epoch}}}
	}
	as := func(c moorv1alpha1.WriterClaimStatus, phase moorv1alpha1.ClaimPhase) moorv1alpha1.WriterClaimStatus {
		c.Phase = phase
		return c
	}
	retired := storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
	vouched := &moorv1alpha1.OperatorReceipt{Epoch: 4}
	for name, tc := range map[string]struct {
		law   law
		legal bool
	}{
		"fence":                        {law{before: as(held, granted), after: held}, true},
		"by the DPU":                   {law{before: held, after: receipt("DPU", 4), dpu: retired}, true},
		"by the storage":               {law{before: held, after: receipt("Storage", 4), storageGone: true, ended: true}, true},
		"by an operator":               {law{before: held, after: receipt("Operator", 4), operator: vouched}, true},
		"no receipt":                   {law{before: held, after: moorv1alpha1.WriterClaimStatus{Phase: freed, Epoch: 4}, dpu: retired}, false},
		"not retired":                  {law{before: held, after: receipt("DPU", 4)}, false},
		"retired before":               {law{before: held, after: receipt("DPU", 4), dpu: storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 3}}, false},
		"still attached":               {law{before: held, after: receipt("DPU", 4), dpu: storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4, Attached: true}}, false},
		"of an older epoch":            {law{before: held, after: receipt("DPU", 3), dpu: retired}, false},
		"storage still attached":       {law{before: held, after: receipt("Storage", 4), ended: true}, false},
		"could be attached again":      {law{before: held, after: receipt("Storage", 4), storageGone: true}, false},
		"storage without Fencing":      {law{before: as(held, granted), after: receipt("Storage", 4), storageGone: true, ended: true}, false},
		"nobody vouches":               {law{before: held, after: receipt("Operator", 4)}, false},
		"operator without Fencing":     {law{before: as(held, granted), after: receipt("Operator", 4), operator: vouched}, false},
		"vouches for another epoch":    {law{before: held, after: receipt("Operator", 4), operator: &moorv1alpha1.OperatorReceipt{Epoch: 3}}, false},
		"lease bound":                  {law{before: held, after: receipt("LeaseBound", 4)}, false},
		"back to Granted":              {law{before: held, after: as(held, granted)}, false},
		"a grant":                      {law{before: moorv1alpha1.WriterClaimStatus{Phase: freed, Epoch: 4}, after: as(held, granted)}, false},
		"a new epoch":                  {law{before: as(held, granted), after: moorv1alpha1.WriterClaimStatus{Phase: fencing, Holder: "dpu-a", Attachment: "a-vol", Epoch: 5}}, false},
		"another holder while Fencing": {law{before: as(held, granted), after: moorv1alpha1.WriterClaimStatus{Phase: fencing, Holder: "dpu-b", Attachment: "a-vol", Epoch: 4}}, false},
	} {
		if words := tc.law.broken(); (words == "") != tc.legal {
			t.Errorf("%s: %q, want legal %v", name, words, tc.legal)
		}
	}
}

// TestKeepsWhatWouldBeMadeAnew: while a failover is under way the attachment
// stays until its owner goes, even if the DPU has let go of it.
func TestKeepsWhatWouldBeMadeAnew(t *testing.T) {
	s := newStage(t)
	s.seenDead("a")
	s.mustPass()
	s.retire()
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) {
		m.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim}
	})
	s.mustPass()
	s.mustPass()
	s.wantPhase(freed)
	if _, found := world.Read(s.World, s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: world.Mirror("a-vol")}); !found {
		t.Fatal("the attachment went before its owner: it would be made anew, and granted to the dead host")
	}
	world.Remove(s.World, s.Host, world.Attachment("vol", "a"))
	s.mustPass()
	if _, found := world.Read(s.World, s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: world.Mirror("a-vol")}); found {
		t.Error("the attachment stays though its owner goes")
	}
}

// TestRevoked: the last epoch of each DPU that another ended, and no other.
func TestRevoked(t *testing.T) {
	var list []moorv1alpha1.Revoked
	for _, r := range []moorv1alpha1.Receipt{{Holder: "a", Epoch: 1}, {Holder: "b", Epoch: 2}, {Holder: "a", Epoch: 3}} {
		list = revoked(list, r)
	}
	s := &moorv1alpha1.WriterClaimStatus{Revoked: list}
	if len(list) != 2 || s.RevokedEpoch("a") != 3 || s.RevokedEpoch("b") != 2 || s.RevokedEpoch("c") != 0 {
		t.Errorf("got %+v", list)
	}
}

// TestZeroTrustHost: that nobody beats is no silence; the DPU's word is enough
// to fence, and no Node is touched.
func TestZeroTrustHost(t *testing.T) {
	s := newStage(t)
	s.host("a", func(n *moorv1alpha1.DPUStorageNode) { n.Spec.HostMode = moorv1alpha1.ZeroTrust })
	s.notReady("a")
	for range 6 {
		s.live(10, "dpu-a", "b", "dpu-b")
		s.mustPass()
	}
	s.wantPhase(granted)
	s.wantSays("none")
	s.seenDead("a")
	s.mustPass()
	s.wantPhase(fencing)
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
	if s.tainted("a") || !s.hasPod("app") {
		t.Error("a Node or a pod was touched")
	}
	if r := s.claim().Status.Receipts; len(r) != 1 || r[0].Kind != moorv1alpha1.ReceiptDPU {
		t.Errorf("receipts %+v", r)
	}
}
