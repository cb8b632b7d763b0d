package failover

import (
	"slices"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	corev1 "k8s.io/api/core/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube"
	"github.com/moor-storage/moor/internal/kube/kubetest"
)

// newPaths is a fixture in which the device of vol is open under its epoch, host b has a
// replica, and the pod comes back if it is deleted.
func newPaths(t *testing.T) *fixture {
	s := newFixture(t)
	s.takesEpochs()
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Status.DPU.OpenEpoch = ptr.To(int64(4)) })
	replica := kubetest.DPUVolumeAttachment("vol", "b")
	replica.Spec.Role, replica.Status.Warmth = storagev1alpha1.RoleReplica, storagev1alpha1.WarmthPreEmulated
	s.Host.Add(replica)
	s.owned("app")
	return s
}

func (s *fixture) owned(pod string) {
	s.t.Helper()
	kubetest.Change(s.Host, kubetest.Pod(pod, ""), func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "x", UID: "x", Controller: ptr.To(true)}}
	})
}

// loses has the DPU of a host tell that it has lost its path to the volumes, and the
// attachment of vol say so, as the other controllers have it.
func (s *fixture) loses(host string, volumes ...string) {
	s.t.Helper()
	s.host(host, func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.DPU.LostPaths = nil
		for _, v := range volumes {
			n.Status.DPU.LostPaths = append(n.Status.DPU.LostPaths, moorv1alpha1.LostPath{Volume: v, Message: "no answer"})
		}
	})
	kubetest.Change(s.Host, kubetest.DPUVolumeAttachment("vol", host), func(a *storagev1alpha1.DPUVolumeAttachment) {
		status := metav1.ConditionTrue
		if slices.Contains(volumes, "vol") {
			status = metav1.ConditionFalse
		}
		meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: storagev1alpha1.ConditionPathHealthy, Status: status, Reason: "x", LastTransitionTime: metav1.NewTime(s.Clock.Now())})
	})
}

// beats lets time pass in which all is well but the paths.
func (s *fixture) beats(seconds int) {
	for range seconds / 5 {
		s.live(5, "a", "dpu-a", "b", "dpu-b")
		s.f.o.Observer.HearDPU("dpu-b", s.Clock.Now().Unix(), time.Time{})
	}
}

// TestAPathIsLost: the volume stays until the timeout, is taken with the storage's word, and
// then its pod is let go in order; no other of the host, and the host stays in service.
func TestAPathIsLost(t *testing.T) {
	s := newPaths(t)
	s.addVolume("second", "a")
	s.addPod("other", "a", "second")
	s.owned("other")
	s.loses("a", "vol")
	s.beats(10)
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/PathLost", "Healthy", "volume vol", "moves once that has lasted for 15s", "host b")
	s.beats(10)
	s.mustPass()
	s.wantPhase(fencing)
	if got := s.shutOut(); got != 5 {
		t.Fatalf("the storage is asked for epoch %d, want 5", got)
	}
	if !s.hasPod("app") {
		t.Fatal("the pod is let go before there is a receipt")
	}
	s.wantSays("False/PathLost", "waiting for proof")
	s.fencedBelow(5)
	s.mustPass()
	s.wantPhase(freed)
	if r := s.claim().Status.Receipts; len(r) != 1 || r[0].Kind != moorv1alpha1.ReceiptMedium {
		t.Errorf("receipts %+v", r)
	}
	if s.hasPod("app") {
		t.Error("the pod stays")
	}
	if !s.hasPod("other") || s.tainted("a") {
		t.Error("a pod with another volume was let go, or the host put out of service")
	}
	if c, _ := kubetest.Read(s.DPU, &moorv1alpha1.WriterClaim{ObjectMeta: kubetest.DPUObject("second")}); c.Status.Phase != granted {
		t.Errorf("the other volume is %s", c.Status.Phase)
	}
	there := func() bool {
		s.mirror(func(m *storagev1alpha1.VolumeAttachment) {
			m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f != storagev1alpha1.FinalizerWriterClaim })
			m.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
		})
		s.mustPass()
		_, found := kubetest.Read(s.DPU, kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
		return found
	}
	if !there() {
		t.Fatal("the attachment was let go while its path is lost: it would be made anew, and granted")
	}
	s.loses("a")
	if there() {
		t.Error("the attachment stays though its path is back")
	}
}

// TestWhatTheDPUHasBorne counts for the timeout, as a duration: by what clock the DPU lives is of no matter.
func TestWhatTheDPUHasBorne(t *testing.T) {
	s := newPaths(t)
	s.loses("a", "vol")
	s.host("a", func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.DPU.LostPaths[0].BorneMillis, n.Status.DPU.LostPaths[0].Since = 6000, metav1.Unix(1, 0)
	})
	s.beats(5)
	s.mustPass()
	s.wantPhase(granted)
	s.beats(5)
	s.mustPass()
	s.wantPhase(fencing)
}

// TestPathsThatStay: what speaks against a move, each in words, however long it lasts.
func TestPathsThatStay(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fixture)
		says   string
	}{
		"the storage is away": {func(s *fixture) { s.loses("b", "vol") }, "nothing is moved, and I/O waits"},
		"the replica's DPU says so, its attachment not yet": {func(s *fixture) {
			s.host("b", func(n *moorv1alpha1.DPUStorageNode) {
				n.Status.DPU.LostPaths = []moorv1alpha1.LostPath{{Volume: "vol"}}
			})
		}, "nothing is moved"},
		"the replica is not ready": {func(s *fixture) {
			kubetest.Change(s.Host, kubetest.DPUVolumeAttachment("vol", "b"), func(a *storagev1alpha1.DPUVolumeAttachment) {
				a.Status.Warmth = storagev1alpha1.WarmthStorageAttached
			})
		}, "no other DPU has the volume"},
		"the replica goes": {func(s *fixture) {
			kubetest.Change(s.Host, kubetest.DPUVolumeAttachment("vol", "b"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Finalizers = []string{"x"} })
			if err := s.Host.Direct.Delete(s.t.Context(), kubetest.DPUVolumeAttachment("vol", "b")); err != nil {
				s.t.Fatal(err)
			}
		}, "no other DPU has the volume"},
		"no epochs": {func(s *fixture) {
			s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Status.DPU.OpenEpoch = nil })
		}, "neither knows epochs nor vouches"},
		"open under none": {func(s *fixture) {
			s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Status.DPU.OpenEpoch = ptr.To(int64(0)) })
		}, "neither knows epochs nor vouches"},
		"never": {func(s *fixture) {
			kubetest.Change(s.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Spec.Replication.PathTimeoutSeconds = ptr.To(int32(0)) })
		}, "its pathTimeout is 0s"},
		"a pod without a controller": {func(s *fixture) {
			kubetest.Change(s.Host, kubetest.Pod("app", ""), func(p *corev1.Pod) { p.OwnerReferences = nil })
		}, "pod default/app has no controller"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPaths(t)
			s.loses("a", "vol")
			c.change(s)
			for range 3 {
				s.beats(20)
				s.mustPass()
			}
			s.wantPhase(granted)
			s.wantSays("False/PathLost", c.says)
			if !s.hasPod("app") {
				t.Error("the pod was deleted")
			}
			s.loses("a")
			s.mustPass()
			s.wantSays("False/Recovered")
		})
	}
}

// TestAPathIsLostToAStorageThatRevokes: a vendor that knows no epochs and vouches that it
// revokes is asked to, though the DPU is heard; the DPU's silence is not waited for.
func TestAPathIsLostToAStorageThatRevokes(t *testing.T) {
	s := newPaths(t)
	s.vouch()
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Status.DPU.OpenEpoch, m.Status.Fence = nil, nil })
	kubetest.Change(s.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) {
		v.Status.State = &storagev1alpha1.DPUVolumeState{CSIDriverName: "vendor"}
	})
	s.loses("a", "vol")
	s.beats(20)
	s.mustPass()
	s.wantPhase(fencing)
	s.wantSays("False/PathLost", "the DPU does not reach the storage, and snap-controller has not noticed yet")
	if sv, _ := s.sv(); !sv.DeletionTimestamp.IsZero() {
		t.Fatal("the storage is asked before it is certain that the volume is not attached again")
	}
	s.noticed()
	s.mustPass()
	s.wantPhase(fencing)
	s.wantSays("False/PathLost", "CSIDriver vendor is asked to revoke it")
	sv, _ := s.sv()
	kubetest.Change(s.DPU, sv, func(sv *storagev1alpha1.SVVolumeAttachment) {
		sv.Status.DetachError = &storagev1.VolumeError{Message: "no route to the array"}
	})
	s.mustPass()
	s.wantSays("False/PathLost", "CSIDriver vendor is asked to revoke it: no route to the array")
	s.revoked()
	s.mustPass()
	s.wantPhase(freed)
	if r := s.claim().Status.Receipts; len(r) != 1 || r[0].Kind != moorv1alpha1.ReceiptStorage {
		t.Errorf("receipts %+v", r)
	}
	if s.hasPod("app") {
		t.Error("the pod stays")
	}
}

// TestPodsThatAreDeletedGo: their I/O is ended, though nothing is known of any other way, since
// they could not end before; and the right to write is free only by a receipt.
func TestPodsThatAreDeletedGo(t *testing.T) {
	s := newPaths(t)
	s.loses("b", "vol")
	s.loses("a", "vol")
	s.mirror(func(m *storagev1alpha1.VolumeAttachment) { m.Status.DPU.OpenEpoch = nil })
	kubetest.Change(s.Host, kubetest.DPUVolume("vol"), func(v *storagev1alpha1.DPUVolume) { v.Spec.Replication = nil })
	kubetest.Change(s.Host, kubetest.Pod("app", ""), func(p *corev1.Pod) { p.OwnerReferences, p.Finalizers = nil, []string{"x"} })
	s.beats(20)
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/PathLost", "nothing is done by itself", "delete the pod")
	s.Host.Remove(kubetest.Pod("app", ""))
	s.mustPass()
	s.wantPhase(fencing)
	s.wantSays("False/PathLost", "waiting for proof")
	s.beats(20)
	s.mustPass()
	s.wantPhase(fencing)
	s.retire()
	s.mustPass()
	s.wantPhase(freed)
}

// TestASilentReplicaIsNoWitness: what its DPU said last is old.
func TestASilentReplicaIsNoWitness(t *testing.T) {
	s := newPaths(t)
	s.loses("a", "vol")
	s.beats(5)
	s.live(40, "a", "dpu-a", "b", "dpu-b") // dpu-b by the host's object alone, which tells nothing of paths
	s.mustPass()
	s.wantPhase(granted)
	s.wantSays("False/PathLost", "nothing is moved")
	s.beats(5)
	s.mustPass()
	s.wantPhase(fencing)
}

// TestADPUWithoutSNAPIsNoWitness: it sees no storage.
func TestADPUWithoutSNAPIsNoWitness(t *testing.T) {
	s := newPaths(t)
	s.loses("a", "vol")
	ready := func(is bool) {
		s.host("b", func(n *moorv1alpha1.DPUStorageNode) { n.Status.DPU.SNAPReady = is })
		s.beats(20)
		s.mustPass()
	}
	ready(false)
	s.wantPhase(granted)
	s.wantSays("False/PathLost", "nothing is moved")
	ready(true)
	s.wantPhase(fencing)
}

// TestAPathComesBack before the timeout: nothing has happened; and the time begins again with
// the next loss.
func TestAPathComesBack(t *testing.T) {
	s := newPaths(t)
	s.loses("a", "vol")
	s.beats(10)
	s.mustPass()
	s.loses("a")
	s.beats(10)
	s.mustPass()
	s.loses("a", "vol")
	s.beats(10)
	s.mustPass()
	s.wantPhase(granted)
}

// TestAMoveIsBroughtToItsEnd: a claim never goes back from Fencing to Granted, whatever the
// paths do meanwhile; and once the host has lost the volume, its pod goes although no other
// DPU reaches the storage any more.
func TestAMoveIsBroughtToItsEnd(t *testing.T) {
	for name, meanwhile := range map[string]func(*fixture){
		"the storage is away for all now": func(s *fixture) { s.loses("b", "vol") },
		"the replica is gone": func(s *fixture) {
			kubetest.Change(s.Host, kubetest.DPUVolumeAttachment("vol", "b"), func(a *storagev1alpha1.DPUVolumeAttachment) { a.Status.Warmth = "" })
		},
		"another instance": (*fixture).restarted,
	} {
		t.Run(name, func(t *testing.T) {
			s := newPaths(t)
			s.loses("a", "vol")
			s.beats(20)
			s.mustPass()
			s.wantPhase(fencing)
			meanwhile(s)
			s.fencedBelow(5)
			s.mustPass()
			s.wantPhase(freed)
			s.mustPass()
			if s.hasPod("app") {
				t.Error("the host has lost the volume, and its pod stays")
			}
		})
	}
}

// restarted is another instance, to which all have beaten for long enough.
func (s *fixture) restarted() {
	s.restart()
	s.beats(30)
}

// TestAPathOfAHostThatIsNotWell is left to what is done about the host.
func TestAPathOfAHostThatIsNotWell(t *testing.T) {
	s := newPaths(t)
	s.loses("a", "vol")
	s.notReady("a")
	s.live(20, "dpu-a", "b", "dpu-b")
	s.f.o.Observer.HearDPU("dpu-b", 1, time.Time{})
	s.f.o.Observer.HearDPU("dpu-b", 2, time.Time{})
	s.mustPass()
	s.wantPhase(granted)
	if state, words := s.says(); strings.Contains(state, "PathLost") || strings.Contains(words, "witness") {
		t.Errorf("%s: %s", state, words)
	}
}

// TestLostPathsWake a host, and no heartbeat that tells the same.
func TestLostPathsWake(t *testing.T) {
	s := newPaths(t)
	before, _ := kubetest.Read(s.Host, kubetest.DPUStorageNode("a"))
	beat, lost := before.DeepCopy(), before.DeepCopy()
	beat.Status.DPU.Sequence++
	beat.ResourceVersion, lost.ResourceVersion = "beat", "lost"
	lost.Status.DPU.LostPaths = []moorv1alpha1.LostPath{{Volume: "vol"}}
	there := s.f.observedChanged()
	for name, c := range map[string]struct {
		now  *moorv1alpha1.DPUStorageNode
		want bool
	}{"a beat": {beat, false}, "a loss": {lost, true}} {
		if hostChanged(event.UpdateEvent{ObjectOld: before, ObjectNew: c.now}) != c.want {
			t.Errorf("%s: in the host cluster", name)
		}
		if there.Update(event.TypedUpdateEvent[*moorv1alpha1.DPUStorageNode]{ObjectOld: before, ObjectNew: c.now}) != c.want {
			t.Errorf("%s: in the DPU cluster", name)
		}
	}
}

// TestTheConditionIsBehind: a loss of which the attachment does not tell yet is looked at soon.
func TestTheConditionIsBehind(t *testing.T) {
	s := newPaths(t)
	s.host("a", func(n *moorv1alpha1.DPUStorageNode) {
		n.Status.DPU.LostPaths = []moorv1alpha1.LostPath{{Volume: "vol"}}
	})
	s.beats(20)
	result, err := s.f.Reconcile(t.Context(), kube.RequestFor("", "a"))
	if err != nil || result.RequeueAfter != conditionLag {
		t.Fatalf("looks again after %s, %v", result.RequeueAfter, err)
	}
	s.mustPass()
	s.wantPhase(granted)
}
