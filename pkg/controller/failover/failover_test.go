package failover

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

const (
	granted = moorv1alpha1.ClaimGranted
	fencing = moorv1alpha1.ClaimFencing
	freed   = moorv1alpha1.ClaimFree
)

// TestHostDead is the whole story.
func TestHostDead(t *testing.T) {
	s := newFixture(t)
	s.addPod("other", "a")
	s.addPod("elsewhere", "b", "vol")
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("none")
	s.seenDead("a")
	s.mustPass()
	s.wantPhase(fencing)
	if _, message := s.says(); strings.Contains(message, "waiting") {
		t.Errorf("that the DPU is asked is told at once: %s", message)
	}
	s.later()
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
	if r := s.claim().Status.Receipts; len(r) != 1 || r[0].Kind != moorv1alpha1.ReceiptDPU || r[0].Epoch != 4 || !r[0].Time.Time.Equal(s.Clock.Now().Truncate(time.Second)) {
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
	want := "FailoverDetected FailoverFencing FailoverHeld FailoverFenced OutOfService FailoverReleased FailoverReleased"
	if got := s.Reasons(); got != want {
		t.Errorf("the events are %s\nwant %s", got, want)
	}
}

// TestNotBefore: what is no death, or no failover, begins nothing.
func TestNotBefore(t *testing.T) {
	for name, tc := range map[string]struct {
		play func(s *fixture)
		says string
	}{
		"NotReady alone":             {func(s *fixture) { s.notReady("a") }, "False/Held"},
		"host silent alone":          {func(s *fixture) { s.live(40, "dpu-a", "b") }, "False/Held"},
		"cut off":                    {func(s *fixture) { s.notReady("a"); s.live(40, "dpu-a", "b") }, "False/Held"},
		"DPU silent":                 {func(s *fixture) { s.live(40, "a", "b") }, "False/Held"},
		"both silent, kubelet heard": {func(s *fixture) { s.live(40, "kubelet-a", "b") }, "False/Held"},
		"three silent for too short": {func(s *fixture) { s.live(10, "b", "dpu-b") }, "none"},
		"nothing heard":              {func(s *fixture) { s.Step(time.Hour) }, "none"},
		"seen dead, but beats":       {func(s *fixture) { s.seenDead("a"); s.live(5, "b"); s.live(5, "a", "dpu-a") }, "False/Held"},
		"seen dead by a DPU that is silent": {func(s *fixture) {
			s.live(40, "a", "b")
			s.seenDead("a")
		}, "none"},
		"after a restart": {func(s *fixture) { s.live(40, "b"); s.notReady("a"); s.restart() }, "False/Held"},
		"failover off": {func(s *fixture) {
			kubetest.Change(s.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Spec.Replication.Failover = storagev1alpha1.FailoverOff })
			s.seenDead("a")
		}, "none"},
		"no replication": {func(s *fixture) {
			kubetest.Change(s.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Spec.Replication = nil })
			s.seenDead("a")
		}, "none"},
		"a replica": {func(s *fixture) {
			s.replica()
			s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Spec.Role = storagev1alpha1.RoleReplica })
			kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status.Holder, c.Status.Attachment = "dpu-b", "b-vol" })
			s.seenDead("a")
		}, "none"},
		"no budget": {func(s *fixture) { s.change(func(o *Options) { o.Budget = Budget{} }); s.seenDead("a") }, "False/Held"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
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

// TestFencesAnEarlyPromotion: a replica whose DPU may write, or had begun to be told
// so, is fenced as a primary is.
func TestFencesAnEarlyPromotion(t *testing.T) {
	for name, told := range map[string]storagev1alpha1.Role{"its DPU knows": storagev1alpha1.RolePrimary, "it does not yet": storagev1alpha1.RoleReplica} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.replica()
			s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Spec.Role = told })
			s.seenDead("a")
			s.mustPass()
			s.wantPhase(fencing)
			s.retire()
			s.mustPass()
			s.wantPhase(freed)
			if !s.tainted("a") || s.hasPod("app") {
				t.Error("its pod was not released")
			}
		})
	}
}

// TestOtherDriversVolumes: silence alone does not put a host out of service
// that has volumes which were not fenced.
func TestOtherDriversVolumes(t *testing.T) {
	s := bothDead(t)
	s.core("a", func(n *corev1.Node) {
		n.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/" + kubetest.Driver + "^vol"}, {Name: "kubernetes.io/csi/other^x"}}
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
	s := newFixture(t)
	s.addVolume("two", "a")
	s.addPod("both", "a", "vol", "two")
	s.seenDead("a")
	s.mustPass()
	s.retire()
	s.mustPass()
	if !s.hasPod("both") || s.hasPod("app") || !s.tainted("a") {
		t.Error("the pod of two volumes went, or the other stayed")
	}
	s.later()
	s.wantSays("True/Fencing", "also uses a volume that is not free", "volume two")
	kubetest.Change(s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject("a-two")}, func(m *storagev1alpha1.VolumeAttachment) {
		m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
	})
	s.mustPass()
	if s.hasPod("both") {
		t.Error("the pod of two volumes stays")
	}
}

func manyWriters(v *storagev1alpha1.DPUVolume) {
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
}

// TestManyWriters: there is nothing to fence; the pods go if a DPU saw it.
func TestManyWriters(t *testing.T) {
	for _, certain := range []bool{true, false} {
		s := newFixture(t)
		kubetest.Change(s.Host, kubetest.DPUVolume("vol"), manyWriters)
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

// TestKeepsWhatWouldBeMadeAnew: while a failover is under way the attachment
// stays until its owner goes, even if the DPU has let go of it.
func TestKeepsWhatWouldBeMadeAnew(t *testing.T) {
	s := newFixture(t)
	s.seenDead("a")
	s.mustPass()
	s.retire()
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) {
		m.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim}
	})
	s.mustPass()
	s.mustPass()
	s.wantPhase(freed)
	if _, found := kubetest.Read(s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject("a-vol")}); !found {
		t.Fatal("the attachment went before its owner: it would be made anew, and granted to the dead host")
	}
	s.Host.Remove(kubetest.DPUVolumeAttachment("vol", "a"))
	s.mustPass()
	if _, found := kubetest.Read(s.DPU, &storagev1alpha1.VolumeAttachment{ObjectMeta: kubetest.DPUObject("a-vol")}); found {
		t.Error("the attachment stays though its owner goes")
	}
}

// TestZeroTrustHost: a host that sends no heartbeats is not silent; the DPU's
// report is enough to fence, and no Node is touched.
func TestZeroTrustHost(t *testing.T) {
	s := newFixture(t)
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
