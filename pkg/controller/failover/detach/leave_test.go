package detach

import (
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

const owner = "a-vol"

// newLeft is an attachment whose DPU has given its receipt, and whose vendor's plugin has
// not removed the device: its owner is gone, and the volume is granted to another DPU.
func newLeft(t *testing.T) fixture {
	s := newFixture(t)
	s.r.Host, s.r.Heartbeats = s.Host.Cluster, nodehealth.New(s.Clock, 0, 0)
	kubetest.Change(s.DPU, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) {
		a.Spec.Epoch = 4
		a.Finalizers = []string{storagev1alpha1.FinalizerVolumeAttachment, storagev1alpha1.FinalizerDPUAttachment}
		a.Annotations = map[string]string{storagev1alpha1.AnnotationOwnedByDPUVolumeAttachment: kubetest.HostNamespace + "/" + owner}
		a.Labels = map[string]string{storagev1alpha1.LabelOwnerUID: "first"}
		a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{RetiredEpoch: 4}
	})
	s.DPU.Remove(s.attachment())
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) {
		c.Status.Holder, c.Status.Attachment, c.Status.Epoch = "dpu-b", "b-vol", 5
	})
	s.beats(30, true)
	return s
}

// beats lets seconds pass in which the DPU beats, or not.
func (s fixture) beats(seconds int, beats bool) {
	s.t.Helper()
	for range seconds / 5 {
		s.Step(5 * time.Second)
		s.r.Heartbeats.SelfHeartbeat(nodehealth.DPUCluster)
		if beats {
			s.r.Heartbeats.HearDPU("dpu-a", 0, s.Clock.Now())
		}
	}
}

// waits checks that nothing is written, and left that the attachment is let go.
func (s fixture) waits(when string) {
	s.t.Helper()
	before := s.Writes()
	s.mustPass()
	if n := s.Writes() - before; n != 0 {
		s.t.Errorf("%s: %d writes", when, n)
	}
}

func (s fixture) left(when string) {
	s.t.Helper()
	c := s.claim().Status
	if c.RevokedEpoch("dpu-a") != 4 || c.Phase != moorv1alpha1.ClaimGranted || c.Holder != "dpu-b" || c.Epoch != 5 || len(c.Receipts) != 0 {
		s.t.Errorf("%s: the claim is %+v", when, c)
	}
	if a, found := kubetest.Read(s.DPU, s.attachment()); !found || !slices.Equal(a.Finalizers, []string{storagev1alpha1.FinalizerVolumeAttachment}) {
		s.t.Errorf("%s: finalizers %v, want the vendor's turn", when, a.Finalizers)
	}
}

// TestADPUThatDiesAfterItsReceipt: it is not waited for without end, else the vendor is
// never asked to detach. It is not asked before it has been silent for the whole timeout,
// nor before it is on record that this DPU has to clear up.
func TestADPUThatDiesAfterItsReceipt(t *testing.T) {
	s := newLeft(t)
	s.waits("heard")
	s.beats(20, false)
	s.waits("late")
	s.beats(10, true)
	s.beats(20, false)
	s.waits("late again")
	s.beats(5, false)
	s.mustPass()
	s.left("silent")
	s.waits("done")
}

// TestLeftOnlyIf goes through what forbids it.
func TestLeftOnlyIf(t *testing.T) {
	for name, play := range map[string]func(s fixture){
		"still shown":    func(s fixture) { s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.Attached = true }) },
		"epoch not over": func(s fixture) { s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.RetiredEpoch = 3 }) },
		"still wanted":   func(s fixture) { s.own("first") },
		"holds it again": func(s fixture) {
			s.grant(func(c *moorv1alpha1.WriterClaimStatus) { c.Holder, c.Attachment = "dpu-a", "c-vol" })
		},
		"an older claim": func(s fixture) { s.grant(func(c *moorv1alpha1.WriterClaimStatus) { c.Epoch = 3 }) },
		"no claim": func(s fixture) {
			kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Finalizers = nil })
			s.DPU.Remove(s.claim())
		},
		"silence unheard": func(s fixture) { s.r.Heartbeats = nil },
		"after a restart": func(s fixture) { s.r.Heartbeats = nodehealth.New(s.Clock, 0, 0) },
		"old cache": func(s fixture) {
			a, _ := kubetest.Read(s.DPU, s.attachment())
			s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.Attached = true })
			s.CacheShows(a)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLeft(t)
			s.beats(30, false)
			play(s)
			s.waits(name)
		})
	}
}

func (s fixture) edit(change func(*storagev1alpha1.VolumeAttachment)) {
	s.t.Helper()
	kubetest.Change(s.DPU, s.attachment(), change)
}

func (s fixture) grant(change func(*moorv1alpha1.WriterClaimStatus)) {
	s.t.Helper()
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { change(c.Status) })
}

// own makes the owner in the host cluster.
func (s fixture) own(uid types.UID) {
	o := kubetest.DPUVolumeAttachment("vol", "a")
	o.UID = uid
	s.Host.Add(o)
}

// TestLeftForOneThatCameInItsPlace: who waits for the attachment to go does not keep it.
func TestLeftForOneThatCameInItsPlace(t *testing.T) {
	s := newLeft(t)
	s.own("second")
	s.beats(30, false)
	s.mustPass()
	s.left("another owner")
}

// TestLeftByTheWordOfAnother: where storage or operator ended the epoch, both holds go,
// though the host has another DPU by now, or no failover.
func TestLeftByTheWordOfAnother(t *testing.T) {
	s := newLeft(t)
	s.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerWriterClaim)
		a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{Attached: true}
	})
	s.beats(30, false)
	s.waits("nothing on record")
	s.grant(func(c *moorv1alpha1.WriterClaimStatus) { c.Revoked = []moorv1alpha1.Revoked{{DPU: "dpu-a", Epoch: 4}} })
	s.beats(10, true)
	s.waits("heard")
	s.beats(30, false)
	s.mustPass()
	s.left("on record")
}

// TestLeaveCrash loses each write in turn, with and without effect.
func TestLeaveCrash(t *testing.T) {
	for _, late := range []bool{false, true} {
		for k := 1; k <= 2; k++ {
			s := newLeft(t)
			s.beats(30, false)
			s.LoseWrite(k, late)
			if err := s.pass(); !errors.Is(err, kubetest.ErrLost) {
				t.Fatalf("write %d: %v", k, err)
			}
			if a, found := kubetest.Read(s.DPU, s.attachment()); found && s.claim().Status.RevokedEpoch("dpu-a") == 0 && len(a.Finalizers) == 1 {
				t.Error("let go, and nothing is on record")
			}
			s.mustPass()
			s.left("after a crash")
		}
	}
}

// TestClaimWakes: an attachment that goes, whose DPU is silent and which is on record as one
// that may write of a claim that was lost, is woken when another's word has freed the claim:
// nothing else does. A claim that says the same as before wakes nothing.
func TestClaimWakes(t *testing.T) {
	s := newLeft(t)
	kubetest.Change(s.DPU, s.attachment(), func(a *storagev1alpha1.VolumeAttachment) {
		a.Finalizers = []string{storagev1alpha1.FinalizerWriterClaim}
		a.Status.DPU = storagev1alpha1.VolumeAttachmentDPU{}
	})
	kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) {
		c.Status = &moorv1alpha1.WriterClaimStatus{
			Phase: moorv1alpha1.ClaimLost, Holder: "dpu-a", Epoch: 4, LostEpoch: 4,
			Lost: []moorv1alpha1.LostHolder{{DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: kubetest.AttachmentUID("a-vol"), Epoch: 4}},
		}
	})
	s.beats(60, false)
	s.waits("while the claim is lost")
	lost, free := s.claim(), s.claim()
	free.Status = &moorv1alpha1.WriterClaimStatus{Phase: moorv1alpha1.ClaimFree, Epoch: 4}
	want := []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: kubetest.DPUNamespace, Name: "a-vol"}}}
	if got := OfClaim(t.Context(), lost); !slices.Equal(got, want) || !claimChanged.Update(event.TypedUpdateEvent[*moorv1alpha1.WriterClaim]{ObjectOld: lost, ObjectNew: free}) {
		t.Errorf("a claim that was lost wakes %v, want %v, and when it is freed", got, want)
	}
	if got := OfClaim(t.Context(), kubetest.WriterClaim("vol", "dpu-a", "a-vol", 4)); !slices.Equal(got, want) {
		t.Errorf("a claim that is held wakes %v, want %v", got, want)
	}
	if claimChanged.Update(event.TypedUpdateEvent[*moorv1alpha1.WriterClaim]{ObjectOld: lost, ObjectNew: s.claim()}) {
		t.Error("a claim that says the same wakes")
	}
}

// newReplica is a replica that goes, whose DPU has prepared the device and was never granted the
// right to write, which another DPU holds.
func newReplica(t *testing.T) fixture {
	s := newLeft(t)
	s.edit(func(a *storagev1alpha1.VolumeAttachment) {
		a.Finalizers = append(a.Finalizers, storagev1alpha1.FinalizerWriterClaim)
		a.Spec.Epoch, a.Spec.Role, a.Status.DPU = 0, storagev1alpha1.RoleReplica, storagev1alpha1.VolumeAttachmentDPU{}
	})
	return s
}

// TestAReplicaWhoseDPUIsGone: what a DPU has never been granted is not kept by a DPU that was
// taken out, or died. If it comes back, it clears up before the storage is opened to it again.
func TestAReplicaWhoseDPUIsGone(t *testing.T) {
	s := newReplica(t)
	s.waits("heard")
	s.beats(20, false)
	s.waits("late")
	s.beats(5, false)
	s.mustPass()
	if c := s.claim().Status; c.RevokedEpoch("dpu-a") != 5 || c.Holder != "dpu-b" || c.Epoch != 5 || len(c.Receipts) != 0 {
		t.Errorf("the claim is %+v", c)
	}
	if a, found := kubetest.Read(s.DPU, s.attachment()); !found || !slices.Equal(a.Finalizers, []string{storagev1alpha1.FinalizerVolumeAttachment}) {
		t.Errorf("finalizers %v, want the vendor's turn", a.Finalizers)
	}
	s.waits("done")
}

// TestAReplicaIsKept goes through what forbids it, though the DPU is silent.
func TestAReplicaIsKept(t *testing.T) {
	for name, play := range map[string]func(s fixture){
		"it was granted an epoch": func(s fixture) { s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Spec.Epoch = 4 }) },
		"its DPU knows of an epoch": func(s fixture) {
			s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.Epoch = 4 })
		},
		"it is shown": func(s fixture) { s.edit(func(a *storagev1alpha1.VolumeAttachment) { a.Status.DPU.Attached = true }) },
		"it has just been granted the right to write": func(s fixture) {
			s.grant(func(c *moorv1alpha1.WriterClaimStatus) {
				c.Holder, c.Attachment, c.AttachmentUID = "dpu-a", "a-vol", kubetest.AttachmentUID("a-vol")
			})
		},
		"its DPU holds the volume for another attachment": func(s fixture) {
			s.grant(func(c *moorv1alpha1.WriterClaimStatus) { c.Holder, c.Attachment = "dpu-a", "c-vol" })
		},
		"the claim was lost, and it may have been granted": func(s fixture) {
			s.grant(func(c *moorv1alpha1.WriterClaimStatus) {
				c.Phase, c.Holder, c.Attachment, c.LostEpoch = moorv1alpha1.ClaimLost, "dpu-b", "", 5
				c.Lost = []moorv1alpha1.LostHolder{{DPU: "dpu-b", Attachment: "b-vol", Epoch: 5}, {DPU: "dpu-a", Attachment: "a-vol", AttachmentUID: kubetest.AttachmentUID("a-vol"), Epoch: 4}}
			})
		},
		"there is no claim": func(s fixture) {
			kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Finalizers = nil })
			s.DPU.Remove(s.claim())
		},
		"the claim was made anew, and is not lost yet": func(s fixture) {
			kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Spec.AfterEpoch, c.Status = 5, nil })
		},
		"it is wanted": func(s fixture) { s.own("first") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newReplica(t)
			s.beats(30, false)
			play(s)
			s.waits(name)
		})
	}
}

// TestAReplicaOfWhatNobodyWroteTo: where no epoch was ever granted there is none to clear up after.
func TestAReplicaOfWhatNobodyWroteTo(t *testing.T) {
	for name, status := range map[string]*moorv1alpha1.WriterClaimStatus{"free": {Phase: moorv1alpha1.ClaimFree}, "just made": nil} {
		t.Run(name, func(t *testing.T) {
			s := newReplica(t)
			kubetest.Change(s.DPU, s.claim(), func(c *moorv1alpha1.WriterClaim) { c.Status = status })
			s.beats(30, false)
			s.mustPass()
			if a, found := kubetest.Read(s.DPU, s.attachment()); !found || len(a.Finalizers) != 1 {
				t.Errorf("finalizers %v, want the vendor's turn", a.Finalizers)
			}
		})
	}
}

// TestAReplicaThatIsGrantedMeanwhile: the claim is granted to it after it was read: it stays.
func TestAReplicaThatIsGrantedMeanwhile(t *testing.T) {
	s := newReplica(t)
	s.beats(30, false)
	n := 1
	s.r.DPU.Live = beforeRead{s.r.DPU.Live, &n, func() {
		s.grant(func(c *moorv1alpha1.WriterClaimStatus) {
			c.Holder, c.Attachment, c.AttachmentUID, c.Epoch = "dpu-a", "a-vol", kubetest.AttachmentUID("a-vol"), 6
		})
	}}
	if err := s.pass(); err == nil {
		t.Error("it is let go by an older claim")
	}
	if a, _ := kubetest.Read(s.DPU, s.attachment()); !slices.Contains(a.Finalizers, storagev1alpha1.FinalizerWriterClaim) {
		t.Errorf("finalizers %v", a.Finalizers)
	}
}
